"""`abs diff`: what changed between two epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import ANY_FILE, CHOSEN_FILE, Force, OutputForm, Quiet, Verbose
from abscli.cli.output import Output, emit_json, emit_line, emit_ndjson, emit_text, progress, warn, width
from abscli.cli.reading import AS_TYPED, Reading, reads

if TYPE_CHECKING:
    from abscli.api import Store
    from abscli.diff.state import Side
    from formats.output_file import OutputFile

EXAMPLES = (
    ("abs diff snapshots@7 snapshots@8", "Shows what changed: keys per operator, positions, logs."),
    ("abs diff savepoint-10d2f4 --uids uids.txt --exit-code", "Checks a Flink savepoint before a deployment."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="The epochs were compared.",
    _3="--exit-code: they differ; otherwise: a needed file is damaged.",
)
SEE_ALSO = ("state", "inspect", "topology")
GUIDE = "operations/query.md"


@reads("uid", "search", "path_map")
def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="REF",
                       help="First epoch: PATH, PATH@7, PATH@latest or PATH@TAG."),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="Second epoch or job file (unless --uids is given)."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OPERATOR", help="Compare only this operator."),
        ANY_FILE,
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Show the changed rows."), ANY_FILE
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the rows to a .parquet, .arrow or .jsonl file."),
        CHOSEN_FILE,
    ] = None,
    force: Force = False,
    uids: Annotated[
        str | None,
        typer.Option("--uids", metavar="FILE",
                     help="File of uids, one per line, or Flink's plan JSON."),
        CHOSEN_FILE,
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with code 3 if the two differ."), ANY_FILE
    ] = False,
    reading: Reading = AS_TYPED,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Compare two epochs: state, positions, logs and job graph.

    Per operator it counts keys that were added, removed, changed and unchanged; --rows shows them. Differences
    of the job graph are shown with their consequence for a restore. If the second REF is a job file, it shows what
    would become of each operator's state if that job resumed from the epoch. With --uids it compares a Flink
    snapshot with the operators of a job: which state would have no owner, and which operators would begin without
    state. Nothing is changed.
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
    file = None if out is None else _rows_file(out, force=force)
    left, right = (reading.open(ref) for ref in (before, after))
    if out is not None:
        from formats.output_file import check_outside

        for store in (left, right):
            check_outside(out, store.path)
    comparison = left.comparison(right, operator=operator)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # tables of one size come and go: a fifth less time, half the memory
    changes = _Changes(comparison.sides, comparison.operator, output, file, wanted=rows)
    if output is Output.NDJSON:
        emit_ndjson(render.header(*comparison.ends))
    with changes, progress() as show:
        page = comparison.page(changes if changes.wanted else None, lambda done: show(f"compared {done:,} keys"))
    if output is Output.TABLE:
        emit_text(render.text(page, changes.kept, width=width(), verbose=verbose > 0))
    elif output is Output.JSON:
        emit_json(render.to_json(page, changes.kept if rows and out is None else None, out))
    else:
        for item in render.items(page):
            emit_line(item)
    if exit_code and page.identical is None:
        warn("not everything could be compared, so there may be differences")
    if exit_code and not page.identical:
        raise typer.Exit(exits.FINDING)


def _is_job(ref: str) -> bool:
    """Whether a REF is the file of a job; a store is a folder, or a file that is not called so."""
    import os

    return ref.endswith((".yaml", ".yml", ".json", ".py")) and os.path.isfile(ref)


def _rows_file(out: str, *, force: bool) -> OutputFile:
    from formats.query.export import BadExport, check_ending, rows_file

    if check_ending(out) == ".csv":
        raise BadExport(
            "changes have nested columns, which CSV cannot hold", hint="use a file name that ends in .parquet or .jsonl"
        )
    file = rows_file(out, force=force)
    file.check()  # before the stores are read, which may take minutes
    return file


class _Changes:
    """Where single changes go: to a file, to stdout line by line, or kept for the result (a table shows the first)."""

    def __init__(
        self, sides: tuple[Side, Side], operator: str | None, output: Output, file: OutputFile | None, *, wanted: bool
    ) -> None:
        self.kept: list[dict[str, Any]] = []
        self.wanted = wanted or file is not None
        self._output = output
        self._writer = self._open(sides, operator, file) if file is not None else None

    def _open(self, sides: tuple[Side, Side], operator: str | None, file: OutputFile) -> Any:
        import pyarrow as pa

        from abscli.diff.state import rows_schema
        from formats.query.export import BadExport, RowsFile, check_ending

        schema = rows_schema(*sides, operator)
        if schema is None and check_ending(file.path) != ".jsonl":
            raise BadExport(
                "a file of this type cannot contain rows of operators with different columns",
                path=file.path,
                hint="select an operator with --operator, or use a file name that ends in .jsonl",
            )
        lead = [("operator", pa.string()), ("state", pa.string())]
        return RowsFile(file, pa.schema([*lead, *(schema or ())]))

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
