"""`abs demo`: from a job to a restored job, on input that every machine has."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import Master, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_ndjson, emit_text, note
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    from abscli.examples.scenario import Story

EXAMPLES = (
    ("abs demo", "Runs in a temporary directory, and removes it."),
    ("abs demo /tmp/abs-demo", "Keeps the jobs, stores and output."),
)
EXIT_STATUS = exits.status(
    3, 6, 130,
    _0="Both jobs recovered, and all results are equal.",
    _2="Usage: invalid option, no Java, or DIR is not empty.",
    _3="A comparison failed.",
)
SEE_ALSO = ("init", "run")
GUIDE = "cycle.md"


def demo(
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", show_default=False,
                       help="Directory for the files (default: a temporary directory)."),
    ] = None,
    master: Master = "local[*]",
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run, kill, restore and compare two real jobs.

    The jobs are a word count and a job with a cycle, which follows the imports of Python modules. Each job runs to
    its end. Then a worker is killed with SIGKILL, and another worker replaces it. Then the job itself is killed,
    inspected, planned, restored and resumed. All results are compared with each other, and with an answer that is
    computed without the engine. Nothing is kept unless you give DIR.
    """
    from abscli.cli.running import check_directory
    from formats.redaction import refuse_credentials

    refuse_credentials(master, "--master")
    with contextlib.ExitStack() as stack:
        if directory is None:
            from formats.scratch import scratch

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-", dir=scratch())))
        else:
            refuse_credentials(directory, "DIR")
            check_directory(directory, "DIR")
            folder = Path(directory)
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise typer.BadParameter(f"{directory} is not an empty directory", param_hint="'DIR'")
        stories = _tell(folder, master)
    holds = all(story.holds for story in stories)
    if output is Output.TABLE:
        emit_text("\n\n".join(_text(story) for story in stories))
        note(f"\nNext: {_next(directory)}")
    else:
        import msgspec

        header = {"schema": "abs.demo", "version": FORMAT_VERSION, "passed": holds}
        items = [msgspec.to_builtins(story) for story in stories]
        if output is Output.JSON:
            emit_json({**header, "jobs": items})
        else:
            emit_ndjson(header, ({"type": "job", **item} for item in items))
    if not holds:
        raise typer.Exit(exits.FINDING)


def _next(directory: str | None) -> str:
    """What to type now, to look on."""
    if directory is None:
        return "`abs demo DIR` keeps jobs, stores and output in DIR, to look at"
    job = Path(directory) / "wordcount" / "killed"
    return (
        f"abs inspect {quote(str(job / 'store'))}\n"
        f"      abs topology {quote(str(job / 'wordcount.yaml'))}, and write a job of your own next to it"
    )


def _tell(folder: Path, master: str) -> list[Story]:
    from abscli.cli.running import job_progress
    from abscli.engine.drivers.spark import start_context
    from abscli.examples.scenario import tell

    note(f"starting Spark on {master}")
    context = start_context(master)
    try:
        stories = []
        for name, interval in (("wordcount", 0.2), ("imports", 0.1)):
            with job_progress(name) as show:
                stories.append(tell(name, folder / name, context, interval, note, show))
        return stories
    finally:
        context.stop()


def _epochs(count: int, which: str = "") -> str:
    return f"{count} {which}epoch{'s'[: count != 1]}"


def _text(story: Story) -> str:
    killed, survived = story.killed, story.survived
    place = f"epoch {survived.epoch}" if survived.epoch else "the start"
    open_epoch = "between two epochs"
    if killed.open_epoch is not None:
        open_epoch = f"in epoch {killed.open_epoch}, which {killed.acked} of {killed.expected} tasks had acked"
    replayed = story.source_records_replayed
    again = "" if replayed is None else f", {replayed:,} source records replayed"
    lines = [
        f"{story.job}: {story.rows:,} rows",
        f"  undisturbed  {_epochs(story.baseline_epochs)} in {story.baseline_seconds:.1f} s",
        f"  survived     worker {survived.worker} (process {survived.process}) lost: {survived.restarted} tasks "
        f"rolled back to {place}, {survived.untouched} unaffected, {survived.records:,} source records replayed",
        f"  time         {survived.seconds:.1f} s from the kill until all had caught up",
        f"  killed       worker {killed.worker} (process {killed.process}) after {killed.records:,} records, "
        f"{open_epoch}",
        f"  restored     epoch {story.restored_epoch} as epoch {story.new_epoch}: "
        f"{story.back_edge_records:,} back-edge log records replayed{again}",
        f"  time         {story.seconds_to_epoch:.1f} s from the kill to the first new complete epoch; "
        f"{story.seconds_lost:.1f} s of work lost",
        f"  resumed      {_epochs(story.resumed_epochs, 'more ')} to the end",
        *(f"  {'ok' if holds else 'FAILED':<12} {check}" for check, holds in story.checks.items()),
    ]
    return "\n".join(lines)
