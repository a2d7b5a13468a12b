"""`abs rewrite`: a changed copy of a checkpoint."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

EXAMPLES = (
    ("abs rewrite savepoint-1 --changes changes.yaml", "Shows what each change would do; writes nothing."),
    ("abs rewrite job/chk-42 --layout canonical --to /srv/savepoint", "Writes a savepoint for any state backend."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 10, 11, 12,
    _0="The changes were shown, or the copy was written.",
    _2="Usage: invalid option or changes, or a change that is not possible.",
    _3="The state, or the copy, is damaged; nothing was written.",
    _4="A file of the checkpoint is missing.",
)
SEE_ALSO = ("state", "restore", "validate")
GUIDE = "flink.md"


class Layout(StrEnum):
    """How keyed state lies in the copy."""

    CANONICAL = "canonical"


@reads("type", "search", "path_map", "uid")
def rewrite(
    ref: Ref,
    changes: Annotated[
        str | None,
        typer.Option("--changes", metavar="FILE", show_default=False,
                     help="File that lists the changes, in YAML or JSON."),
        CHOSEN_FILE,
    ] = None,
    layout: Annotated[
        Layout | None,
        typer.Option("--layout", show_default=False, help="Layout in which keyed state is written."), ANY_FILE
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", show_default=False,
                     help="New directory, or empty prefix, for the copy."),
        CHOSEN_FILE,
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; write nothing."), ANY_FILE
    ] = False,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write a modified copy of a Flink checkpoint.

    The changes come from a file: other uids, removed operators, states or keys, new values, source positions and key
    groups. --layout canonical writes a savepoint that any state backend restores, also without the cluster. No JVM
    is needed, and the checkpoint is only read. The copy appears at --to after all of it was verified; without --to
    the command shows what each change would do. A change that cannot be exact is refused, and nothing is written.
    """
    from abscli.cli.output import progress, width
    from abscli.cli.running import emit_result
    from abscli.text.columns import size

    if changes is None and layout is None:
        raise typer.BadParameter("say what changes, or --layout canonical", param_hint="'--changes'")
    store = reading.open(ref)
    done = 0
    with progress() as show:

        def more(count: int) -> None:
            nonlocal done
            done += count
            show(f"read and written {size(done)}")

        rewritten = store.rewrite(changes, to, layout=layout, dry_run=dry_run, progress=more)
    emit_result(rewritten.to_json(), rewritten.text(width()), output)
