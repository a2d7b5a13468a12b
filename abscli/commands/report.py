"""`abs report`: one page of a store, an epoch, or what another command has said."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Force, OutputForm, Quiet, SinkJob, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

EXAMPLES = (
    ("abs report checkpoints/0d9f... --out report.html", "Writes a report of all checkpoints of a Flink job."),
    ("abs report plan.json --out plan.html", "Shows in the job graph which tasks a plan restarts."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="The report was written, damaged store or not: 'abs validate' judges.",
    _2="Usage: invalid option, or a file that is not a validation, diff or plan.",
    _3="A file that the report cannot do without is damaged.",
)
SEE_ALSO = ("inspect", "validate")
GUIDE = "operations/reports.md"


@reads("uid", "search", "path_map")
def report(
    ref: Annotated[
        str,
        typer.Argument(metavar="REF",
                       help="Store, epoch (PATH@7), plan, or JSON of validate or diff."),
    ],
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the report to this file."),
        CHOSEN_FILE,
    ] = None,
    force: Force = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read and verify all files."),
        ANY_FILE,
    ] = False,
    no_stats: Annotated[
        bool, typer.Option("--no-stats", help="Do not read state."), ANY_FILE
    ] = False,
    job: SinkJob = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="PATH", show_default=False,
                     help="For a JSON file: read the job graph from this store."),
        CHOSEN_FILE,
    ] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option("--topology", metavar="FILE",
                     help="Flink's plan of the job (JSON); repeatable."),
        CHOSEN_FILE,
    ] = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write an HTML report of a store, an epoch or a plan.

    The report is one file that makes no network requests. It begins with the verdict, the age of the newest
    restorable epoch, the problems and the commands to type; then come the effect of a restore, epochs, job graph,
    state, channels and source positions. For a store the newest restorable epoch is shown in detail; PATH@7 selects
    another epoch. REF can also be a file with the -o json output
    of a validation, a diff or a plan. Without --verify only presence and sizes of files are checked. With -o json
    the same facts are printed, and --out can be omitted.
    """
    import time

    from abscli.api import report_on
    from abscli.api.reporting import report_file
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, progress
    from abscli.cli.plans import option_errors
    from abscli.text.columns import bar, clean, size

    if out is None and output is Output.TABLE:
        raise typer.BadParameter("name the file of the page (or have the facts: -o json)", param_hint="'--out'")
    if out is not None:
        report_file(out, force=force).check()  # before the store is read, which may take minutes
    with option_errors(), progress() as show:
        begun = time.monotonic()
        page = report_on(
            ref, **reading.given(), topology=topology or (), verify=verify, stats=not no_stats, job=job,
            store=store, show=show,
            progress=lambda read, total: show(f"checked {bar(read, total, time.monotonic() - begun)}"),
        )  # fmt: skip
        written = None if out is None else page.save(out, force=force)
    if output is Output.JSON:
        emit_json(page.to_json())
    elif output is Output.NDJSON:
        emit_ndjson(*page.items())
    else:
        emit_text(f"{page.facts.state.word}: {clean(page.summary)}\n{out}: {size(written)}")
