"""`abs report`: one page of a store, an epoch, or what another command has said."""

from __future__ import annotations

from typing import Annotated

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose
from abscli.cli.output import Output
from abscli.cli.reading import AS_TYPED, Reading, reads

EXAMPLES = (
    ("abs report snapshots --out report.html", "The whole store: what is wrong, what to type next, then all epochs."),
    ("abs report snapshots@7 --out epoch-7.html", "One epoch: its operators, tasks, state, channels and positions."),
    ("abs report checkpoints/0d9f... --out report.html", "A job of Flink's; a checkpoint of Spark likewise."),
    ("abs validate snapshots -o json > v.json; abs report v.json --out v.html", "What a check has said."),
    ("abs report plan.json --out plan.html", "A plan, with what restarts lit up in the job graph."),
    ("abs report snapshots -o json | jq -r .headline", "The same facts, for a script."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="The page was written, however the store stands: 'abs validate' is the one that judges.",
    _2="A bad option, or a file that is no validation, diff or plan that holds.",
    _3="A file without which nothing can be said is damaged.",
)


@reads("uid", "search", "path_map")
def report(
    ref: Annotated[
        str,
        typer.Argument(metavar="REF",
                       help="PATH, PATH@7, PATH@latest or PATH@TAG of a store; or a file: the JSON of a validation, a "
                       "diff or a plan."),
    ],
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the page to this file; one that is there is replaced."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file, as 'abs validate' does; else presence and sizes alone.")
    ] = False,
    no_stats: Annotated[
        bool, typer.Option("--no-stats", help="Read no state: key groups, skew and large keys are left out.")
    ] = False,
    topology: Annotated[
        list[str] | None,
        typer.Option("--topology", metavar="FILE",
                     help="Of a checkpoint of Flink: its plan of the job (REST's /jobs/ID/plan); repeatable."),
    ] = None,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make one page of a store, an epoch, a check or a plan.

    What is wrong comes first, with what it means and what to type about it; then the next commands, the epochs with
    their status and where their time went, the job graph with what is damaged or restarts lit up, sizes of state by
    operator and key group, channels with their conservation, where sources go on, growth and skew. Of a whole store
    one epoch is shown in depth: the newest that can be restored; PATH@7 shows that one. An epoch has an anchor: open
    report.html#epoch-4.

    The page is one file that asks nobody for anything, and is readable without scripts; with them its tables can be
    filtered and sorted. It is the same, byte for byte, for the same input. The facts stand in it as JSON, as -o json
    prints them; --out may then be left out. Long lists are cut, and say so: 1,000 epochs, 300 tasks, 300 positions;
    'abs inspect -o json' has all.

    The store is checked by presence and sizes, and by what its facts say of each other; --verify reads all files. State
    is read in bounded time, as by 'abs inspect --stats'. The barrier's way and the commit are what is left of an
    epoch's duration: no system tells them apart. What a system does not record is shown as unknown.

    A file that another command wrote with -o json is shown as it was said then. Its job graph is looked up in the store
    that it names where that lies on this machine; else the page has the operators that the file names.
    """
    import time

    from abscli.api import report_on
    from abscli.cli.output import emit_json, emit_ndjson, emit_text, progress
    from abscli.text.columns import bar, clean, size

    if out is None and output is Output.TABLE:
        raise typer.BadParameter("name the file of the page (or have the facts: -o json)", param_hint="'--out'")
    with progress() as show:
        begun = time.monotonic()
        page = report_on(
            ref, **reading.given(), topology=topology or (), verify=verify, stats=not no_stats, show=show,
            progress=lambda read, total: show(f"checked {bar(read, total, time.monotonic() - begun)}"),
        )  # fmt: skip
        written = None if out is None else page.save(out)
    if output is Output.JSON:
        emit_json(page.to_json())
    elif output is Output.NDJSON:
        emit_ndjson(*page.items())
    else:
        emit_text(f"{page.state}: {clean(page.headline)}\n{out}: {size(written)}")
