"""`abs tag`: names of epochs, which stay while they have one."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output, emit_json, emit_marked, emit_ndjson, note, plain_ascii, progress, width

EXAMPLES = (
    ("abs tag snapshots before-upgrade", "Tags the newest complete epoch: snapshots@before-upgrade."),
    ("abs tag snapshots", "Lists the tags of a store."),
)
EXIT_STATUS = exits.status(
    3, 6, 10, 11, 12,
    _3="The epoch is damaged or not complete; it gets no tag.",
    _10="No such store, epoch or tag, or the epoch is being removed.",
)
SEE_ALSO = ("gc", "copy", "restore")
GUIDE = "operations/monitoring.md"


def tag(
    ref: Ref,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False,
                       help="Name of the tag. Omit it to list tags."),
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="Move the tag if it is already on another epoch."), CHOSEN_FILE
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the tag."), CHOSEN_FILE
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only that files exist and have the right size."),
        ANY_FILE,
    ] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Tag an epoch, so that it is retained.

    An epoch with a tag, and every file that it refers to, is removed neither by 'abs gc' nor by a running job. Every
    command accepts PATH@NAME. PATH tags the newest complete epoch, PATH@7 that epoch. The epoch is verified first: a
    damaged epoch gets no tag. Without NAME the tags are listed; --remove removes a tag. A job may run meanwhile.
    Flink and Spark checkpoints cannot be tagged.
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
            note(f"epoch {', '.join(map(str, gone))} is no longer tagged {name}")
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
