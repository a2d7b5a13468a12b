"""`abs diff`: what changed between two epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_line, emit_ndjson, emit_text, progress, warn, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api import Store
    from abscli.diff.state import Side

EXAMPLES = (
    ("abs diff snapshots@7 snapshots@8", "What epoch 8 changed: keys of every operator, positions, logs."),
    ("abs diff snapshots@7 snapshots@8 --rows -o ndjson", "With every key that changed, a line each."),
    ("abs diff snapshots@7 snapshots@8 --operator counts --out changes.parquet", "The same into a file."),
    ("abs diff savepoint-10d2f4-6792269b97e8 --uids uids.txt --exit-code", "Before a deployment on Flink."),
    ("abs diff snapshots job.yaml", "Before a job goes on that has changed: what becomes of its operators."),
    ("abs diff expected snapshots --exit-code -q", "For CI: 3 if the newest epochs of two stores differ."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="They were compared.",
    _3="With --exit-code: they differ, not all could be compared, or a run of the job would be refused. Otherwise: a "
    "file that is needed is damaged.",
)


@reads("uid", "search", "path_map")
def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="REF",
                       help="From: PATH, PATH@7, PATH@latest or PATH@TAG; PATH alone is its newest epoch."),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="To: likewise, of the same store or of another one; or a job file, one of Python "
                       "is imported. Left out with --uids."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OPERATOR", help="Compare the state of this operator alone.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show the changes themselves, not only their number.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the changes to x.parquet, x.arrow or x.jsonl.")
    ] = None,
    uids: Annotated[
        str | None,
        typer.Option("--uids", metavar="FILE",
                     help="Compare a snapshot of Flink with a job: its operators' uids, one a line, or its plan JSON."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if they differ, or cannot be compared.")
    ] = False,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Compare two epochs: state, positions, logs and job graph.

    State is compared key by key, in pieces, so that memory does not grow with it; files that both epochs refer to are
    not read where no newer file overrides them. Of every operator: keys added, removed, changed and unchanged. Of the
    job graph: what differs, and what that means for restoring the first epoch's state into the second's job.

    A change has the columns operator, state, change (added, removed, changed), key, from and to.

    With a job file in place of the second REF, before the job is run as it is now: what becomes of each operator of the
    epoch, of the records on its edges, which lines the job file lacks ('moved' and 'removed', see 'abs run'), and which
    of its modules have changed since.

    With --uids, before a deployment on Flink: which state of the snapshot no operator of the job would own, and which
    operators would begin without state.
    """
    from abscli.text import diff as render

    if uids is not None:
        if after is not None or operator or rows or out:
            raise typer.BadParameter("one REF is compared with the job's operators", param_hint="'--uids'")
        _owners(reading.open(before), uids, output, exit_code)
        return
    if after is None:
        raise typer.BadParameter("missing argument: a second epoch, or --uids", param_hint="'REF'")
    if _is_job(after):
        if operator or rows or out:
            raise typer.BadParameter("an epoch is compared with a job file as a whole", param_hint="'JOB'")
        _owners(reading.open(before), after, output, exit_code)
        return
    _check_out(out)
    left, right = (reading.open(ref) for ref in (before, after))
    if out is not None:
        from formats.output_file import check_outside

        for store in (left, right):
            check_outside(out, store.path)
    comparison = left.comparison(right, operator=operator)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # tables of one size come and go: a fifth less time, half the memory
    changes = _Changes(comparison.sides, comparison.operator, output, out, wanted=rows)
    if output is Output.NDJSON:
        emit_ndjson(render.header(*comparison.ends))
    with changes, progress() as show:
        page = comparison.page(changes if changes.wanted else None, lambda done: show(f"compared {done:,} keys"))
    if output is Output.TABLE:
        emit_text(render.text(page, changes.kept, width=width()))
    elif output is Output.JSON:
        emit_json(render.to_json(page, changes.kept if rows and out is None else None, out))
    else:
        for item in render.items(page):
            emit_line(item)
    if exit_code and page.identical is None:
        warn("not everything could be compared, so that they may differ")
    if exit_code and not page.identical:
        raise typer.Exit(exits.FINDING)


def _is_job(ref: str) -> bool:
    """Whether a REF is the file of a job; a store is a folder, or a file that is not called so."""
    import os

    return ref.endswith((".yaml", ".yml", ".json", ".py")) and os.path.isfile(ref)


def _check_out(out: str | None) -> None:
    if out is not None:
        from formats.query.export import BadExport, check_ending

        if check_ending(out) == ".csv":
            raise BadExport("changes have nested columns, which CSV cannot hold", hint="end it in .parquet or .jsonl")


class _Changes:
    """Where single changes go: to a file, to stdout line by line, or kept for the result (a table shows the first)."""

    def __init__(
        self, sides: tuple[Side, Side], operator: str | None, output: Output, out: str | None, *, wanted: bool
    ) -> None:
        self.kept: list[dict[str, Any]] = []
        self.wanted = wanted or out is not None
        self._output = output
        self._writer = self._open(sides, operator, out) if out is not None else None

    def _open(self, sides: tuple[Side, Side], operator: str | None, out: str) -> Any:
        import pyarrow as pa

        from abscli.diff.state import rows_schema
        from formats.query.export import BadExport, RowsFile, check_ending

        schema = rows_schema(*sides, operator)
        if schema is None and check_ending(out) != ".jsonl":
            raise BadExport(
                "the operators have different columns, or none, which one such file cannot hold",
                path=out,
                hint="name one with --operator, or end the file in .jsonl",
            )
        lead = [("operator", pa.string()), ("state", pa.string())]
        return RowsFile(out, pa.schema([*lead, *(schema or ())]))

    def __call__(self, operator: str, state: str | None, table: Any) -> None:
        import pyarrow as pa

        from abscli.text.diff import ROWS, row_items

        if self._writer is not None:
            names = [pa.array([text] * table.num_rows, pa.string()) for text in (operator, state)]
            self._writer.write(pa.table([*names, *table.columns], names=["operator", "state", *table.schema.names]))
        elif self._output is Output.NDJSON:
            for item in row_items(operator, state, table):
                emit_line({"type": "row", **item})
        elif self._output is Output.JSON:
            self.kept += row_items(operator, state, table)
        elif len(self.kept) <= ROWS:
            self.kept += row_items(operator, state, table.slice(0, ROWS + 1))

    def __enter__(self) -> _Changes:
        if self._writer is not None:
            self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)


def _owners(before: Store, file: str, output: Output, exit_code: bool) -> None:
    """A snapshot against the operators of a job."""
    owners = before.owners(file)
    if output is Output.TABLE:
        emit_text(owners.text(width()))
    elif output is Output.JSON:
        emit_json(owners.to_json())
    else:
        emit_ndjson(owners.to_json())
    if exit_code and not owners.fits:
        raise typer.Exit(exits.FINDING)
