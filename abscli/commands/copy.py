"""`abs copy`: a consistent copy of a store, with only what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output, note, width

EXAMPLES = (
    ("abs copy snapshots /backup/snapshots", "Copies all complete epochs; next time only what is missing."),
    ("abs copy snapshots@before-upgrade s3://bucket/upgrade", "Copies one epoch with all files that it needs."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 10, 11, 12,
    _0="Copied, or nothing was missing.",
    _2="Usage: invalid option, or PATH is not a copy of this store.",
    _3="A damaged epoch was not copied; the others were.",
    _6="Stopped before the end (disk, network); repeat the command.",
    _10="No such store or epoch, or no epoch is complete.",
    _11="A job or another copy command uses the copy.",
)
SEE_ALSO = ("drill", "gc", "validate")
GUIDE = "operations/monitoring.md"


def copy(
    ref: Ref,
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Target directory or prefix; may hold an older copy."),
    ],
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Copy a store incrementally.

    It copies all complete epochs (or PATH@7) with tags and metadata, also while the job runs. If PATH already has a
    copy, only missing files are copied; epochs that the store has removed since stay in the copy. Every file is
    verified against its checksum. An interrupted copy is continued by the same command. For Flink and Spark it
    writes a verified copy of one checkpoint to a new directory. A job can resume from a copy; its sinks then belong
    to the copy, so stop the original job.
    """
    from abscli.api import Restored, open_store
    from abscli.cli.output import progress
    from abscli.cli.plans import option_errors
    from abscli.cli.running import check_directory, emit_result, watching
    from abscli.text.columns import size

    check_directory(path, "PATH")
    store = open_store(ref)
    copied = 0
    with option_errors(), progress() as show, watching() as watch:

        def more(count: int) -> None:
            nonlocal copied
            copied += count
            show(f"copied {size(copied)}")

        done = store.copy(path, progress=more, watch=watch)
    text = done.text(width=width()) if isinstance(done, Restored) else done.text(width())
    emit_result(done.to_json(), text, output)
    for line in done.notes:
        note(line)
    if not isinstance(done, Restored) and not done.whole:
        raise typer.Exit(exits.FINDING)
