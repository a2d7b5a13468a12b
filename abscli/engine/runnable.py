"""Whether a job can be run: all that `run` refuses, found from the topology before anything is started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from abscli.engine.columns import column_faults, columns_declared, join_faults, sink_columns
from abscli.engine.errors import EngineStopped, JobFailed, ServerUnavailable, UsageError
from abscli.engine.functions import is_beside, load
from abscli.engine.operators.table_lookup import read_table
from abscli.engine.process_faults import process_faults
from abscli.engine.sinks.delivered.targets import target_of
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.staged.extras import require_package
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.sources.files.finding import find_splits
from abscli.engine.sources.files.input_files import is_uri, path_of
from abscli.engine.sources.kafka.records import VALUE
from abscli.engine.sources.making import FILE_TYPES, SOURCE_TYPES, columns_of, declared_schema
from abscli.engine.sources.numeric_times import emitted, is_number
from abscli.engine.sources.postgres.table import KeyedTable, look_at, schema_in
from abscli.graph.backedges import back_edges
from abscli.graph.restless import restless_loops
from abscli.graph.timed import untimed
from formats.job.event_time import event_time_of
from formats.job.expand import size_of
from formats.job.following import follows
from formats.job.kafka import Start
from formats.job.model import MAX_CHANNELS, MAX_TASKS, Kind, Operator, Topology, as_sink
from formats.job.promises import is_delivered
from formats.job.rules import OperatorFault
from formats.native.sink import ENDINGS
from formats.native.sink_bucket import place_fault
from formats.native.transactions import MOST_OPERATOR
from formats.storage import is_served

RUNNABLE = frozenset({Kind.SOURCE, Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.REDUCE, Kind.DISTINCT, Kind.JOIN,
                      Kind.LOOKUP, Kind.PROCESS, Kind.UNION, Kind.SINK})  # fmt: skip
SINK_TYPES = (*ENDINGS, "postgres", "stdout", "delta", "iceberg", "kafka")


def check_runnable(topology: Topology) -> None:
    """UsageError for the first thing that the job graph alone shows to be in the way of a run."""
    for size, most, word in zip(size_of(topology), (MAX_TASKS, MAX_CHANNELS), ("tasks", "channels"), strict=True):
        if size > most:
            message = f"the job has {size:,} {word}, a store holds at most {most:,}"
            raise UsageError(message, hint="lower its parallelism")
    for fault in graph_faults(topology):
        raise UsageError(fault.message, hint=fault.hint)


def graph_faults(topology: Topology) -> Iterator[OperatorFault]:
    """What the job graph alone shows; nothing is imported, and no input is looked for."""
    for op in topology.operators:
        if _is_foreign(op):
            message = f"operator {op.id} is of kind {op.kind}, which `abs run` does not support"
            yield OperatorFault(op.id, (str(op.kind),), message, f"run knows {', '.join(sorted(RUNNABLE))}")
    for edge in topology.edges:
        if edge.replayable:
            message = f"edge {edge.name} is marked replayable, and the engine keeps no such log"
            yield OperatorFault(edge.target, ("from", edge.source), message, "remove the mark to run the job")
    yield from _connector_faults(topology)
    yield from join_faults(topology)
    yield from _time_faults(topology)
    yield from process_faults(topology)
    back = back_edges(topology)
    for loop in restless_loops(topology):
        around = set(loop)
        source, target = next(ends for ends in sorted(back) if around.issuperset(ends))
        yield OperatorFault(
            target, ("from", source),
            f"the loop {', '.join(loop)} never comes to rest: each of its operators passes on whatever it gets",
            "put a distinct, a filter, a flat_map or a reduce with emit: change into it that lets records end",
        )  # fmt: skip


def _time_faults(topology: Topology) -> Iterator[OperatorFault]:
    for op, option, source, loop in untimed(topology):
        if loop:
            message = (
                f"operator {op.id} waits for event time ({option}), and rows of the loop {', '.join(loop)} stay in "
                "flight after event time has ended"
            )
            yield OperatorFault(op.id, (option,), message, "take its input from in front of the loop")
        else:
            message = f"operator {op.id} waits for event time ({option}), and source {source} has no event time"
            hint = f"name the column in {source}'s entry: source: {{..., event_time: {{column: NAME, delay: 10s}}}}"
            yield OperatorFault(op.id, (option,), message, hint)


def _connector_faults(topology: Topology) -> Iterator[OperatorFault]:
    writers: dict[str, str] = {}
    yield from _path_faults(topology)
    for op in topology.operators:
        if op.connector is None or not isinstance(type := op.connector.get("type"), str):
            continue
        types = SOURCE_TYPES if op.kind is Kind.SOURCE else SINK_TYPES
        if type not in types:
            message = f"operator {op.id}: unknown {op.kind} type {type!r}"
            yield OperatorFault(op.id, (str(op.kind), "type"), message, " or ".join(types))
        elif op.kind is Kind.SOURCE:
            try:
                declared_schema(op)
            except UsageError as error:
                key = "columns" if type == "generate" else "schema"
                yield OperatorFault(op.id, (str(op.kind), key), error.message, error.hint)
            yield from _following_faults(op)
            path = op.connector.get("path")
            if isinstance(path, str) and is_uri(path) and not is_served(path):
                message = f"source {op.id} would read {path!r}, which is not a known kind of location"
                hint = "a path of files, or a URI of s3://, gs://, abfs://, hdfs:// or webhdfs://"
                yield OperatorFault(op.id, (str(op.kind), "path"), message, hint)
        elif type == "postgres":
            yield from _table_faults(op, writers)
        if type == "kafka":
            yield from _topic_faults(op)
        if type == "iceberg":
            yield from _catalog_faults(op, writers)


def _path_faults(topology: Topology) -> Iterator[OperatorFault]:
    """Of folders and buckets that are written to, by sinks or with dead letters."""
    writers: dict[str, str] = {}
    for op in topology.operators:
        sink = as_sink(op)
        written = (sink.connector or {}).get("path") if sink is not None else None
        if sink is None or not isinstance(written, str) or (sink.connector or {}).get("type") not in ENDINGS:
            continue
        keys = (str(op.kind), "path") if op.kind is Kind.SINK else ("on_error", "dead_letter")
        noun, verb = ("sink", "would write") if op.kind is Kind.SINK else ("operator", "would write dead letters")
        path = place_of("", written)
        if fault := place_fault(written):
            message = f"{noun} {op.id} {verb} to {written!r}: {fault}"
            hint = "give it a directory that all workers reach, or a place in a bucket of S3 or Azure (s3://, abfs://)"
            yield OperatorFault(op.id, keys, message, hint)
        elif path in writers:
            kinds = {op.kind, topology.operator(writers[path]).kind}
            both = "sinks" if kinds == {Kind.SINK} else "operators"
            message = f"{both} {writers[path]} and {op.id} both write to {path!r}"
            yield OperatorFault(op.id, keys, message, "give each its own path")
        writers.setdefault(path, op.id)


def _following_faults(op: Operator) -> Iterator[OperatorFault]:
    options = op.connector or {}
    if "every" in options and not follows(op):
        rows = "rows" if options["type"] == "postgres" else "files"
        message = f"source {op.id} sets how often to look for {rows}, but not follow"
        yield OperatorFault(op.id, (str(op.kind), "every"), message, "add follow: true, or remove every")
    if follows(op) and options["type"] in ("jsonl", "csv") and "schema" not in options:
        message = f"source {op.id} follows files of {options['type']}, and needs a schema with their columns"
        hint = "add schema: {column: type, ...}: which file is the first depends on when a task looks"
        yield OperatorFault(op.id, (str(op.kind), "follow"), message, hint)


def _topic_faults(op: Operator) -> Iterator[OperatorFault]:
    options = op.connector or {}
    if op.kind is not Kind.SOURCE:
        return
    names = [options[name] for name in ("key", "timestamp") if name in options]
    values = [*(options.get("schema") or {VALUE: "string"}), *names]
    for option in ("key", "timestamp"):
        if values.count(options.get(option)) > 1:
            message = f"source {op.id}: two columns are called {options[option]!r}"
            yield OperatorFault(op.id, (str(op.kind), option), message, "give this one another name")
    if options.get("start") == Start.LATEST and not follows(op):
        message = f"source {op.id} begins at the end of the topic, and ends there"
        yield OperatorFault(op.id, (str(op.kind), "start"), message, "add follow: true, or begin at start: earliest")


def _catalog_faults(op: Operator, writers: dict[str, str]) -> Iterator[OperatorFault]:
    """writers: as of `_table_faults`."""
    options = op.connector or {}
    catalog, uri, warehouse = (str(options.get(name, "")) for name in ("catalog", "uri", "warehouse"))
    if not catalog and not uri and (not warehouse or "://" in warehouse):
        what = f"warehouse {warehouse} alone, which is not a folder" if warehouse else "no catalog"
        message = f"sink {op.id} has {what}: nothing says where its table is"
        hint = "add catalog: NAME, of pyiceberg's settings; or uri: URI; or warehouse: FOLDER, for a catalog in it"
        yield OperatorFault(op.id, (str(op.kind), "warehouse" if warehouse else "table"), message, hint)
    if uri.startswith("sqlite:") and not uri.startswith("sqlite:////"):
        message = f"sink {op.id}: {uri!r} would be another file for each folder that the job is started from"
        hint = "write an absolute path, sqlite:////PATH; or only warehouse: FOLDER, which is beside the job's file"
        yield OperatorFault(op.id, (str(op.kind), "uri"), message, hint)
    place = ":".join(["iceberg", catalog, uri, warehouse, str(options.get("table"))])
    if place in writers:
        message = f"sinks {writers[place]} and {op.id} both write to table {options.get('table')}"
        yield OperatorFault(op.id, (str(op.kind), "table"), message, "merge the streams in front of one sink")
    writers.setdefault(place, op.id)


def _table_faults(op: Operator, writers: dict[str, str]) -> Iterator[OperatorFault]:
    """writers: the sinks before it, by where they write."""
    options = op.connector or {}
    place = ":".join(["table", *(str(options.get(name, "")) for name in ("url_env", "service", "schema", "table"))])
    if place in writers:
        message = f"sinks {writers[place]} and {op.id} both write to table {options.get('table')}"
        yield OperatorFault(op.id, (str(op.kind), "table"), message, "merge the streams in front of one sink")
    writers.setdefault(place, op.id)
    by_key = options.get("mode") == "upsert"
    if by_key != ("key" in options):
        message = f"sink {op.id}: mode upsert replaces rows by the columns of `key`, and no other mode does"
        yield OperatorFault(op.id, (str(op.kind), "mode"), message, "write both, or neither: mode: upsert, key: [id]")
    if len(op.id) > MOST_OPERATOR:
        message = f"sink {op.id[:40]}… has an id of {len(op.id)} characters, which a transaction's name cannot have"
        yield OperatorFault(op.id, (), message, f"give it one of at most {MOST_OPERATOR}")


def faults_without_input(topology: Topology, directory: str) -> Iterator[OperatorFault]:
    """Yield what stands against a run whatever its input is: no file is read but modules, and no server is asked.

    directory: of the job file. A module that is not in it is not looked for elsewhere, and its functions are unchecked.
    A graph that only another system can run has no faults, and neither has a source or sink of another system.
    """
    if any(_is_foreign(op) for op in topology.operators) or any(edge.replayable for edge in topology.edges):
        return
    yield from (fault for fault in graph_faults(topology) if not _is_elsewhere(topology.operator(fault.operator)))
    for op in topology.operators:
        if op.function is not None and op.kind in RUNNABLE and is_beside(op.function, directory):
            yield from _function_faults(op, op.function, directory)
        elif op.kind is Kind.SOURCE and (op.connector or {}).get("type") in SOURCE_TYPES:
            with contextlib.suppress(UsageError):  # reported with its connector
                yield from _event_time_faults(op, declared_schema(op))
    yield from column_faults(topology, columns_declared(topology))


def _is_elsewhere(op: Operator) -> bool:
    """Tell whether a source or sink is of a type that `abs run` does not know."""
    if op.connector is None:
        return False
    return op.connector.get("type") not in (SOURCE_TYPES if op.kind is Kind.SOURCE else SINK_TYPES)


def _is_foreign(op: Operator) -> bool:
    """Tell whether an operator can be planned for, but not run."""
    return op.kind not in RUNNABLE or (op.kind is Kind.JOIN and not op.join)


def _function_faults(op: Operator, function: str, directory: str) -> Iterator[OperatorFault]:
    try:
        load(function, directory)
    except UsageError as error:
        yield OperatorFault(op.id, (str(op.kind),), f"operator {op.id}: {error.message}", error.hint)


def all_faults(topology: Topology, directory: str, *, from_start: bool) -> Iterator[OperatorFault]:
    """Everything that a run would be refused for, or would fail of at its first records.

    directory: of the job file: its modules are imported, its input is looked for. from_start: whether sources begin
    there; a job that goes on from an epoch knows its files and columns from that.
    Raises ServerUnavailable if a server cannot be asked now, which is no fault of the job.
    """
    yield from graph_faults(topology)
    columns: dict[str, pa.Schema] = {}
    for op in topology.operators:
        if op.kind is Kind.SOURCE:
            try:
                schema = _source_columns(op, directory, from_start=from_start)
            except ServerUnavailable:
                raise
            except (UsageError, EngineStopped) as error:
                where = "table" if (op.connector or {}).get("type") == "postgres" else "path"
                yield OperatorFault(op.id, ("source", where), error.message, error.hint)
            else:
                columns |= {op.id: emitted(op, schema)} if schema is not None else {}
                yield from _event_time_faults(op, schema)
        elif op.kind in RUNNABLE and op.function is not None:
            yield from _function_faults(op, op.function, directory)
        elif op.lookup:
            try:
                read_table(op, directory, seconds=10)
            except ServerUnavailable:
                raise
            except (JobFailed, UsageError, EngineStopped) as error:
                where = next(name for name in ("path", "table", "query") if getattr(op.lookup, name))
                yield OperatorFault(op.id, (str(op.kind), where), error.message, error.hint)
        elif op.kind is Kind.SINK:
            try:
                require_package(op)
            except UsageError as error:
                yield OperatorFault(op.id, (str(op.kind), "type"), error.message, error.hint)
    yield from column_faults(topology, columns)
    yield from _unmet_preconditions(topology, directory, columns)


def _unmet_preconditions(
    topology: Topology, directory: str, columns: dict[str, pa.Schema]
) -> Iterator[OperatorFault]:
    """Yield a fault for everything that a target lacks. columns: of the sources that are known."""
    rows_of = {op.id: rows for op, rows in sink_columns(topology, columns)}
    for op in topology.operators:
        if op.kind is not Kind.SINK or not is_delivered(op) or not _has_catalog(op):
            continue
        try:
            lacking = target_of(op, topology.job, directory).unmet(rows_of.get(op.id))
        except (UsageError, EngineStopped):  # reported with the package, or when the sinks are examined
            continue
        for one in lacking:
            yield OperatorFault(op.id, (str(op.kind), "type"), f"sink {op.id}: {one.message}", one.hint)


def _has_catalog(op: Operator) -> bool:
    """Tell whether it is known where the table of a sink is."""
    return (op.connector or {}).get("type") != "iceberg" or not any(_catalog_faults(op, {}))


def _event_time_faults(op: Operator, schema: pa.Schema | None) -> Iterator[OperatorFault]:
    """schema: of the source's rows; None where that is not known yet."""
    event_time, keys = event_time_of(op), ("source", "event_time", "column")
    if event_time is None or schema is None:
        return
    name = event_time.column
    if name not in schema.names:
        message = f"operator {op.id}: no column {name!r} for event time in what it reads"
        yield OperatorFault(op.id, keys, message, f"it has {', '.join(schema.names)}")
        return
    kind = schema.field(name).type
    if event_time.unit is not None:
        if not is_number(kind):
            message = f"operator {op.id}: column {name!r} is of type {kind}, but event_time has unit: {event_time.unit}"
            yield OperatorFault(op.id, keys, message, "remove `unit`, which is for columns of numbers")
        return
    try:
        as_event_times(pa.array([], kind))
    except TypeError as error:
        hint = f"declare its type in the source's schema, such as {{{name}: timestamp}}"
        if is_number(kind):
            hint = f"give the unit of its numbers, such as event_time: {{column: {name}, unit: ms}} (s, ms, us, ns)"
        yield OperatorFault(op.id, keys, f"operator {op.id}: column {name!r} cannot be event time: {error}", hint)


def _source_columns(op: Operator, directory: str, *, from_start: bool) -> pa.Schema | None:
    """None where they are not known; UsageError where its input is not there, or has none."""
    options = op.connector or {}
    if options.get("type") not in SOURCE_TYPES:
        return None
    try:
        schema = declared_schema(op)
    except UsageError:  # told with the graph
        return None
    if options["type"] == "postgres" and schema is None and from_start:
        return schema_in(look_at(KeyedTable.of(op), seconds=10), op)
    if options["type"] not in FILE_TYPES:
        return schema
    if not isinstance(options.get("path"), str):
        return None
    if from_start and not (follows(op) and schema is not None):
        splits = find_splits(op, directory)
        schema = columns_of(op, path_of(directory, splits[0]))
    return schema
