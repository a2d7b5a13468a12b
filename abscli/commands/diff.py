"""`abs diff`: what changed between two epochs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abscli.cli import exits
from abscli.cli.options import FormatChoice, OutputForm, PathMap, Quiet, Search, Uid, Verbose, looking
from abscli.cli.output import Output, emit_json, emit_line, emit_ndjson, emit_text, progress, warn, width

if TYPE_CHECKING:
    from abscli.cli.options import StoreFormat
    from abscli.diff.epochs import TopologyDiff
    from abscli.diff.state import Side
    from abscli.text.diff import DiffPage, End
    from formats.open import Looking
    from formats.view import CheckpointStore

EXAMPLES = (
    ("abs diff snapshots@7 snapshots@8", "What epoch 8 changed: keys of every operator, positions, logs."),
    ("abs diff snapshots@7 snapshots@8 --rows -o ndjson", "With every key that changed, a line each."),
    ("abs diff snapshots@7 snapshots@8 --operator counts --out changes.parquet", "The same into a file."),
    ("abs diff savepoint-10d2f4-6792269b97e8 --uids uids.txt --exit-code", "Before a deployment on Flink."),
    ("abs diff expected snapshots --exit-code -q", "For CI: 3 if the newest epochs of two stores differ."),
)
EXIT_STATUS = exits.status(
    3, 10, 12,
    _0="They were compared.",
    _3="With --exit-code: they differ, or not all could be compared. Otherwise: a file that is needed is damaged.",
)


def diff(
    before: Annotated[
        str, typer.Argument(metavar="REF", help="From: PATH, PATH@7 or PATH@latest; PATH alone is its newest epoch.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="REF", show_default=False,
                       help="To: likewise, of the same store or of another one; left out with --uids."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="ID", help="Compare the state of this operator alone.")
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
    uid: Uid = None,
    search: Search = None,
    path_map: PathMap = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if they differ, or cannot be compared.")
    ] = False,
    format: FormatChoice = None,
    output: OutputForm = Output.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Compare two epochs: state, positions, logs and job graph.

    State is compared key by key, in pieces, so that memory does not grow with it; files that both epochs refer to are
    not read where no newer file overrides them. Of every operator: keys added, removed, changed and unchanged. Of the
    job graph: what differs, and what that means for restoring the first epoch's state into the second's job.

    A change has the columns operator, state, change (added, removed, changed), key, from and to.

    With --uids, before a deployment on Flink: which state of the snapshot no operator of the job would own, and which
    operators would begin without state.
    """
    from abscli.text import diff as render
    from formats.errors import UnknownTask
    from formats.open import known_as, only_epoch, open_store, parse_reference, resolve_epoch

    extra = looking(search=search, path_map=path_map, uid=uid)
    if uids is not None:
        if after is not None or operator or rows or out:
            raise typer.BadParameter("one REF is compared with the job's operators", param_hint="'--uids'")
        _owners(before, uids, extra, format, output, exit_code)
        return
    if after is None:
        raise typer.BadParameter("missing argument: a second epoch, or --uids", param_hint="'REF'")
    _check_out(out)
    ends: list[End] = []
    stores: list[CheckpointStore] = []
    for ref in (before, after):
        path, named = parse_reference(ref)
        store = open_store(path, format, extra)
        stores.append(store)
        epoch = resolve_epoch(store, only_epoch(store) if named is None else named)
        ends.append(render.End(path, store.format, store.job, epoch))
    if operator is not None:
        for store, end in zip(stores, ends, strict=True):
            with contextlib.suppress(UnknownTask):
                operator = known_as(store, end.epoch, operator)
    import pyarrow as pa

    from abscli.diff.state import Side

    pa.set_memory_pool(pa.system_memory_pool())  # tables of one size come and go: a fifth less time, half the memory
    sides = (Side(stores[0], ends[0].epoch), Side(stores[1], ends[1].epoch))
    changes = _Changes(sides, operator, output, out, wanted=rows)
    if output is Output.NDJSON:
        emit_ndjson(render.header(*ends))
    with changes, progress() as show:
        page = _page(sides, ends, operator, changes, lambda done: show(f"compared {done:,} keys"))
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


def _page(
    sides: tuple[Side, Side], ends: list[End], operator: str | None, changes: _Changes, show: Any
) -> DiffPage:
    from abscli.diff.epochs import diff_logs, diff_positions, diff_topology
    from abscli.diff.state import diff_operators
    from abscli.text.diff import DiffPage
    from formats.errors import UnknownTask
    from formats.open import as_flink

    details = tuple(side.store.detail(side.epoch) for side in sides)
    graphs = [side.store.topology(side.epoch) for side in sides]
    ids = tuple([op.id for op in detail.operators] for detail in details)
    if operator is not None and operator not in (*ids[0], *ids[1]):
        known = ", ".join(dict.fromkeys([*ids[0], *ids[1]]))
        raise UnknownTask(f"neither epoch has an operator {operator!r}", hint=f"there are {known}")
    operators = diff_operators(
        *sides, (ids[0], ids[1]), only=operator, sink=changes if changes.wanted else None, progress=show
    )
    topology, raw = diff_topology(graphs[0], graphs[1], (details[0], details[1])), None
    pair = [(flink, side.epoch) for side in sides if (flink := as_flink(side.store)) is not None]
    if len(pair) == 2:
        from abscli.stores.flink.diff import diff_files, diff_states

        topology += diff_states(pair[0], pair[1])
        raw = diff_files(pair[0], pair[1])
    return DiffPage(
        ends[0],
        ends[1],
        operators,
        list(diff_positions(details[0], details[1])),
        list(diff_logs(details[0], details[1], _digests(sides))),
        topology + _changes_of_spark(sides),
        raw,
    )


def _changes_of_spark(sides: tuple[Side, Side]) -> list[TopologyDiff]:
    """Settings and schemas that differ, where both sides are Spark's."""
    if any(side.store.format != "spark" for side in sides):
        return []
    from abscli.stores.spark.changes import changes
    from formats.spark.store import SparkStore

    left, right = (side.store for side in sides)
    if not isinstance(left, SparkStore) or not isinstance(right, SparkStore):
        return []
    return list(changes(left, sides[0].epoch, right, sides[1].epoch))


def _owners(
    ref: str, file: str, looking: Looking, format: StoreFormat | None, output: Output, exit_code: bool
) -> None:
    """A snapshot of Flink against the operators of a job."""
    from abscli.stores.flink import owners
    from abscli.stores.flink import text_owners as render
    from formats.bounds import read_user_file
    from formats.errors import OtherFormat
    from formats.flink.plan_json import is_plan, read_plan
    from formats.flink.store import FlinkStore
    from formats.job.file import MAX_BYTES
    from formats.open import only_epoch, open_store, parse_reference, resolve_epoch

    path, named = parse_reference(ref)
    store = open_store(path, format, looking)
    if not isinstance(store, FlinkStore):
        raise OtherFormat(f"--uids is about Flink's state; this store is of format {store.format}", path=path)
    data = read_user_file(file, MAX_BYTES)
    wanted = owners.of_plan(read_plan(data, file)) if is_plan(data) else owners.of_uids(owners.read_uids(data))
    epoch = resolve_epoch(store, only_epoch(store) if named is None else named)
    metadata = store.metadata(epoch)
    found = owners.owners(metadata, wanted, store.names(metadata))
    if output is Output.TABLE:
        emit_text(render.text(found, store=path, epoch=epoch, uids=file, width=width()))
    else:
        result = render.to_json(found, store=path, job=store.job, epoch=epoch, uids=file)
        emit_json(result) if output is Output.JSON else emit_ndjson(result)
    if exit_code and not found.fits:
        raise typer.Exit(exits.FINDING)


def _digests(sides: tuple[Side, Side]) -> tuple[dict[str, str | None], dict[str, str | None]] | None:
    """Digests of the logs by channel, where both formats have them."""
    from formats.native.store import NativeStore

    found = [
        {log.channel: log.file.sha256 for part in side.store.parts(side.epoch) for log in part.logs if log.file}
        for side in sides
        if isinstance(side.store, NativeStore)
    ]
    return (found[0], found[1]) if len(found) == 2 else None
