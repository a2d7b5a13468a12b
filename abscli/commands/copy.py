"""`abs copy`: a consistent copy of a store, with only what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Ref, Verbose
from abscli.cli.output import Output, note, width

EXAMPLES = (
    ("abs copy snapshots /backup/snapshots", "All complete epochs; the next time what is missing there."),
    ("abs copy snapshots@before-upgrade before-upgrade", "One epoch, with all files that it needs."),
    ("abs copy snapshots s3://bucket/snapshots", "To a bucket; with the two the other way round, from there."),
    ("abs copy checkpoint copied", "A Spark checkpoint up to its newest whole batch, as restore makes it."),
    ("abs copy snapshots /backup/snapshots -o json | jq .bytes", "The bytes that were new."),
)
EXIT_STATUS = exits.status(
    3, 4, 6, 10, 11, 12,
    _0="Copied; or all of it was there.",
    _2="A bad option, or a directory that is no copy of this store, or one that has gone on by itself.",
    _3="An epoch of the store is damaged, and not copied; the others are.",
    _6="Stopped part-way (disk, network); copying again goes on.",
    _10="No such store or epoch; or nothing in it is complete.",
    _11="A job runs on the copy, or another copy is being made to it.",
)


def copy(
    ref: Ref,
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="Directory of the copy, or a place in a bucket: new, or an older copy."),
    ],
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Copy a store, with only what is missing.

    Of a store of abs all complete epochs are copied, the newest first, with tags, attempts and job graphs; of REF@7
    that epoch with all that it needs. A job may run meanwhile: what it removes while it is copied is left out, and said
    so. Every file is compared with its digest before it gets its name; what is damaged is not copied, and the command
    ends with 3. Where an older copy lies at PATH only what is missing, or not of its size, is written, and what the
    store has removed since stays: 'abs gc PATH' thins the copy out, 'abs validate PATH' reads all of it.

    The copy is a store at every moment. One that is made for the first time and was broken off has no abs-store.json,
    and every command says so; an older one has the epochs that it had. The same command goes on with either.

    A job can go on from the copy ('abs run --resume', 'abs restore'), with attempts of its own, from which on it is no
    copy any more: another 'abs copy' to it is refused. A sink belongs to one line of attempts: stop the original.
    Where the sink shows what an attempt has made that the copy does not know, the run is refused until --take-over says
    that the sink is to follow the copy; then, and where the copy knows that attempt, what is newer than the epoch that
    the copy goes on from moves to superseded/ in the sink.

    Of Flink and Spark a checked copy of one checkpoint is made in a new directory, the same as by 'abs plan-recovery'
    and 'abs restore --to', from which its own tools start.
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
