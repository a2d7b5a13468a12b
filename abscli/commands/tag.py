"""`abs tag`: names of epochs, which stay while they have one."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output, emit_json, emit_marked, emit_ndjson, note, plain_ascii, progress, width

EXAMPLES = (
    ("abs tag snapshots", "All tags of a store."),
    ("abs tag snapshots before-upgrade", "The newest complete epoch stays, as snapshots@before-upgrade."),
    ("abs tag snapshots@7 good --move", "Takes the name from the epoch that has it."),
    ("abs tag snapshots good --remove", "Takes the name away; abs gc may remove the epoch from then on."),
    ("abs tag snapshots -o json | jq '.tags[].name'", "The names, for a script."),
)
EXIT_STATUS = exits.status(
    3, 6, 10, 11, 12,
    _0="Done, or there was nothing to do.",
    _3="The epoch is damaged, or was never complete: it gets no tag.",
    _10="No such store, epoch or tag; or the epoch is being removed just now.",
)


def tag(
    ref: Ref,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False,
                       help="Name for the epoch: a letter, then letters, digits, '_', '.', '-'. Left out: list them."),
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="Take the name from the epoch that has it now.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take the name away.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Look whether the files of the epoch are there, without reading them.")
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Give an epoch a name, so that it stays.

    Of PATH the newest complete epoch is tagged, of PATH@7 that one. While an epoch has a tag, neither 'abs gc' nor a
    running job ('abs run --keep') removes it, nor any file that it refers to, in older epochs too. Every command takes
    PATH@NAME for PATH@7. An epoch may have several names, a name is of one epoch. The epoch is checked as by 'abs
    validate PATH@7' first: one that is not whole gets no tag. A job may run meanwhile.

    Without NAME the tags are listed: all of PATH, of PATH@7 those of that epoch. Flink and Spark remove their
    checkpoints themselves, and know no tags.
    """
    from abscli.api import open_store
    from abscli.cli.plans import option_errors
    from abscli.stores import tags as page

    for option, value in (("--move", move), ("--remove", remove), ("--quick", quick)):
        if value and name is None:
            raise typer.BadParameter("name the tag that is meant", param_hint=f"'{option}'")
    if remove and (move or quick):
        raise typer.BadParameter("goes with no other option", param_hint="'--remove'")
    store = open_store(ref)
    named = None if store.named is None else store.resolve()
    added, gone = None, list[int]()
    with option_errors(), progress() as show:
        if name is not None and remove:
            gone = store.untag(name, named)
            note(f"epoch {', '.join(map(str, gone))} is not tagged {name} any more")
        elif name is not None:
            number = store.resolve()
            new = store.tag(
                name, number, quick=quick, move=move, progress=lambda read, _: show(f"reading, {read:,} bytes")
            )
            added = {"name": name, "epoch": number, "new": new}
            note(f"epoch {number} is tagged {name}" if new else f"epoch {number} is tagged {name} already")
    listed = store.tags(named)
    if output is Output.TABLE:
        if name is None:
            emit_marked(page.text(store.path, store.job, listed, width=width(), ascii=plain_ascii()))
        return
    result = page.to_json(store.path, store.job, listed, added=added, removed=gone)
    emit_json(result) if output is Output.JSON else emit_ndjson(*page.items(result))
