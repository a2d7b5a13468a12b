"""`abs gc`: which epochs and files may go."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose, at_least, duration
from abscli.cli.output import Output, emit_json, emit_marked, emit_ndjson, plain_ascii, progress, width

EXAMPLES = (
    ("abs gc snapshots", "What would go if the newest 10 complete epochs stay; nothing is changed."),
    ("abs gc snapshots --keep 3 --yes", "Removes all but the newest 3 complete epochs, and what nothing needs."),
    ("abs gc snapshots --older-than 30d -o json | jq .bytes", "The bytes that epochs of more than 30 days take."),
)
EXIT_STATUS = exits.status(
    3, 6, 10, 11, 12,
    _0="It was shown, or with --yes removed.",
    _3="The store's own facts are damaged: nothing is removed.",
    _11="A job runs on the store: it removes epochs itself (abs run --keep).",
)


def gc(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Directory of a store that abs wrote.")],
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", parser=at_least(1), help="Complete epochs that stay, the newest ones.")
    ] = 10,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DURATION", parser=duration,
                     help="Only epochs that were triggered longer ago than this, such as 7d."),
    ] = None,
    min_age: Annotated[
        float,
        typer.Option("--min-age", metavar="DURATION", parser=duration,
                     help="Files that nothing refers to go only when they are as old as this."),
    ] = "1h",  # type: ignore[assignment]
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it; without, nothing is changed.")] = False,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Remove old epochs, and files that nothing needs.

    Shows what would go, why, and how many bytes that is; --yes does it. Complete epochs count whose files are all
    there, and the newest of them stay; with them stays everything that they refer to, in older epochs too. Of epochs
    that never became complete those go that are older than a complete one. Nothing goes that an epoch which cannot be
    read may need, and nothing while a job runs.
    """
    import contextlib

    from abscli.stores.native import text_gc as render
    from abscli.stores.native.garbage import carry_out, plan_removal
    from abscli.stores.own import open_native
    from formats.errors import StoreInUse
    from formats.native import lock
    from formats.storage import LocalStorage

    store = open_native(path, purpose="`abs gc`")
    storage = store.storage
    if not isinstance(storage, LocalStorage):
        raise typer.BadParameter("stores behind a URI are read-only", param_hint="'PATH'")
    if not yes and lock.held(storage):
        raise StoreInUse("a job runs on it, and removes epochs itself: as many as its --keep says stay", path=path)
    with lock.exclusive(storage) if yes else contextlib.nullcontext(), progress() as show:
        store.held_by_us = yes
        show("looking for what nothing needs")
        removal = plan_removal(store, keep, min_age=min_age, older_than=older_than)
        if yes:
            show(f"removing {len(removal.epochs)} epoch{'s'[: len(removal.epochs) != 1]}")
            carry_out(storage, removal)
    if output is Output.TABLE:
        options = [f"--keep {keep}"] if keep != 10 else []
        options += [f"--older-than {older_than:g}s"] if older_than is not None else []
        options += [f"--min-age {min_age:g}s"] if min_age != 3600 else []
        command = render.carry_out_command(path, options)
        emit_marked(render.text(removal, store=path, job=store.job, removed=yes, command=command, width=width(),
                                ascii=plain_ascii()))  # fmt: skip
        return
    result = render.to_json(removal, store=path, job=store.job, keep=keep, removed=yes)
    emit_json(result) if output is Output.JSON else emit_ndjson(*render.items(result))
