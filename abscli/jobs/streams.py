"""Streams of a job in Python. Every method gives a new stream and leaves its own as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypedDict, Unpack

from abscli.jobs.drafts import DraftOperator, Drafts, Input
from abscli.jobs.durations import positive_seconds
from abscli.jobs.lines import Line, caller, refused
from abscli.jobs.references import Function, reference_of
from formats.durations import Duration, duration_text, seconds_of
from formats.job.model import LATE, Aggregate, Aggregation, Kind, Partition
from formats.job.written import output_document

__all__ = ("Column", "Grouped", "Loop", "OnError", "Output", "Stream", "col", "count", "dead_letter")

JoinHow = Literal["inner", "left", "outer"]
LookupHow = Literal["inner", "left"]
EmitWhen = Literal["epoch", "record", "batch", "change"]
TableMode = Literal["two-phase", "upsert"]


class OnError(TypedDict, total=False):
    """Where records go on which an operator fails; made by `dead_letter`."""

    dead_letter: str


def dead_letter(path: str) -> OnError:
    """Records on which an operator fails are written there, each once: `stream.map(f, on_error=dead_letter("dead"))`.
    path: a folder, relative to the job's file, or a place in a bucket."""
    return OnError(dead_letter=path)



class Marks(TypedDict, total=False):
    """What may be said of every operator.

    id: its own, in place of that of its function or method; state goes with it from run to run.
    parallelism: how many tasks, in place of the job's number.
    max_parallelism: how many key groups.
    deterministic: False: the same input may give other output.
    ordered_output: a promise that nothing that it puts out depends on how its inputs interleave.
    on_error: what becomes of a record on which it fails: it ends the run, is left out, or goes to `dead_letter(PATH)`.
        Of map, filter, flat_map, agg, join, process, distinct with a time to live, and sources of JSON lines and CSV.
    """

    id: str
    parallelism: int
    max_parallelism: int
    deterministic: bool
    ordered_output: bool
    on_error: Literal["fail", "skip"] | OnError


@dataclass(frozen=True, slots=True)
class Output:
    """What a named output of `agg` computes; made by `count()` and the methods of `col(name)`."""

    function: Aggregation
    column: str
    by: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column to compute an output of. name: its own."""

    name: str

    def sum(self) -> Output:
        """Of its values; null where there is none. An overflow is an error."""
        return Output(Aggregation.SUM, self.name)

    def min(self) -> Output:
        """The smallest of its values."""
        return Output(Aggregation.MIN, self.name)

    def max(self) -> Output:
        """The largest of its values."""
        return Output(Aggregation.MAX, self.name)

    def mean(self) -> Output:
        """Of its values, as a float: their sum is exact for whole numbers, and an overflow of it is an error."""
        return Output(Aggregation.MEAN, self.name)

    def first(self) -> Output:
        """Its first value that is not null. Where inputs interleave, which that is may differ from run to run."""
        return Output(Aggregation.FIRST, self.name)

    def last(self) -> Output:
        """Its last value that is not null, with what is said of `first`."""
        return Output(Aggregation.LAST, self.name)

    def top_n(self, n: int, *, by: str | None = None) -> Output:
        """The list of the `n` rows whose value is largest, largest first. by: put them in order by this column: the
        list has both columns of each row."""
        return Output(Aggregation.TOP_N, self.name, by, n)

    def collect(self, limit: int) -> Output:
        """The list of its first values that are not null, `limit` of them at most, with what is said of `first`."""
        return Output(Aggregation.COLLECT, self.name, limit=limit)


OF_COLUMN = [function.value for function in Aggregation if function is not Aggregation.COUNT]
"""The methods of `Column`."""


def col(name: str) -> Column:
    """The column `name`, to compute an output of: `col("amount").sum()`."""
    return Column(name)


def count() -> Output:
    """How many rows there are."""
    return Output(Aggregation.COUNT, "*")


def add_operator(
    drafts: Drafts, kind: Kind, name: str, work: object, inputs: tuple[Input, ...], marks: Mapping[str, object],
    line: Line,
) -> str:  # fmt: skip
    """The id of a new operator of the job; BadFile. name: its id where none is said."""
    more = {key: value for key, value in marks.items() if key != "id"}
    id = marks.get("id", name)
    if not isinstance(id, str):
        raise refused(line, f"{id!r} is not an operator id", "a letter, then letters, digits, '_', '.' or '-'")
    drafts.add(DraftOperator(id, line, kind, work, inputs, more))
    return id


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """What operators of a job put out, for others to read."""

    _drafts: Drafts
    _inputs: tuple[Input, ...]

    # -- row by row ------------------------------------------------------------------------------------------

    def map(self, function: Function, **marks: Unpack[Marks]) -> Stream:
        """One row a row. function: from a RecordBatch to one with as many rows, row by row."""
        return self._by_function(Kind.MAP, function, marks)

    def filter(self, function: Function, **marks: Unpack[Marks]) -> Stream:
        """The rows that stay. function: from a RecordBatch to a BooleanArray, row by row."""
        return self._by_function(Kind.FILTER, function, marks)

    def flat_map(self, function: Function, **marks: Unpack[Marks]) -> Stream:
        """Any number of rows a row. function: from a RecordBatch to another one, row by row."""
        return self._by_function(Kind.FLAT_MAP, function, marks)

    def union(self, *others: Stream, **marks: Unpack[Marks]) -> Stream:
        """The rows of all of these, by an operator of its own; `merge` does without."""
        merged = self.merge(*others) if others else self
        return merged._then(Kind.UNION, "union", {}, marks)

    def late(self, side: Literal["left", "right"] | None = None) -> Self:
        """The rows that came too late for the windows of this stream's operator, or for this side of its join."""
        output = LATE if side is None else f"{LATE}_{side}"
        return replace(self, _inputs=tuple(replace(one, output=output) for one in self._inputs))

    def merge(self, *others: Stream) -> Stream:
        """What reads this reads the others as well: an operator with several inputs."""
        line, _ = caller()
        inputs = list(self._inputs)
        for other in others:
            if other._drafts is not self._drafts:
                names = f"{self._drafts.name!r} and {other._drafts.name!r}"
                raise refused(line, f"these streams are of two jobs, {names}", "begin both with the same Job")
            inputs += other._inputs
        return Stream(self._drafts, tuple(inputs))

    # -- by key ----------------------------------------------------------------------------------------------

    def group_by(self, *key: str) -> Grouped:
        """The rows of each key together. key: names of columns."""
        for column in key:
            if not isinstance(column, str):
                name = column.name if isinstance(column, Column) else "column"
                hint = f'give names of columns: group_by("{name}")'
                raise refused(caller()[0], f"group_by: {column!r} is not a name", hint)
        return Grouped(self, key)

    def distinct(self, *key: str, **marks: Unpack[Marks]) -> Stream:
        """The first row of each key. key: names of columns."""
        return self._then(Kind.DISTINCT, "distinct", list(key), marks)

    # -- beside each other -----------------------------------------------------------------------------------

    def join(
        self,
        right: Stream,
        *,
        on: str | Sequence[str],
        time: str | tuple[str, str],
        within: Duration | None = None,
        before: Duration | None = None,
        how: JoinHow = "inner",
        lateness: Duration | None = None,
        columns: tuple[Mapping[str, str] | None, Mapping[str, str] | None] = (None, None),
        **marks: Unpack[Marks],
    ) -> Stream:
        """Rows of both streams that have one key, and times that are near: each pair is a row.

        on: key columns of both. time: the column with each row's event time, or that of this stream and that of the
        other. within: so much later than this stream's row the other's may be; before: so much earlier.
        how: `left` puts out the rows of this stream that have no match, too, with nulls, `outer` those of both.
        lateness: for how long behind the watermark rows are taken. columns: names and types of this stream's columns
        and of the other's, where a function hides them.
        """
        line, _ = caller()
        sides = [one.source for stream in (self, right) for one in stream._inputs]
        if len(sides) != 2 or not all(isinstance(side, str) for side in sides):
            hint = "merge streams with union() before a join, and join outside of loops"
            raise refused(line, "a join is of two operators' rows", hint)
        left_id, right_id = map(str, sides)
        spans = {"before": before, "after": within}
        named = {id: dict(types) for id, types in zip((left_id, right_id), columns, strict=True) if types is not None}
        work: dict[str, Any] = {
            "key": [on] if isinstance(on, str) else list(on),
            "left": left_id,
            "time": time if isinstance(time, str) else {left_id: time[0], right_id: time[1]},
            "within": {name: _duration(span) for name, span in spans.items() if span is not None} or {"after": "0s"},
            **({} if how == "inner" else {"how": how}),
            **({} if lateness is None else {"lateness": _duration(lateness)}),
            **({"columns": named} if named else {}),
        }
        return self.merge(right)._then(Kind.JOIN, "join", work, marks)

    def lookup(
        self,
        path: str | None = None,
        *,
        on: str | Sequence[str],
        how: LookupHow = "inner",
        columns: Sequence[str] | None = None,
        table: str | None = None,
        query: str | None = None,
        url_env: str | None = None,
        service: str | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """Columns of a table beside each row of this stream.

        path: of a Parquet or CSV file, which each task reads when it starts. on: key columns of both. how: `left` keeps
        rows without a match, with nulls. columns: of the table; None: all others than the key.
        table, query: in place of a path, of PostgreSQL; url_env: the environment variable with its URL; service: of
        libpq's service file.
        """
        where = {"path": path, "table": table, "query": query, "url_env": url_env, "service": service}
        work: dict[str, Any] = {
            **{name: value for name, value in where.items() if value is not None},
            "key": [on] if isinstance(on, str) else list(on),
            **({} if how == "inner" else {"how": how}),
            **({} if columns is None else {"columns": list(columns)}),
        }
        return self._then(Kind.LOOKUP, "lookup", work, marks)

    # -- how rows go to the next operator's tasks ------------------------------------------------------------

    def forward(self) -> Self:
        """Each task to the one of the same number."""
        return self._spread(Partition.FORWARD)

    def rebalance(self) -> Self:
        """To all tasks in turn."""
        return self._spread(Partition.REBALANCE)

    def broadcast(self) -> Self:
        """Every row to every task."""
        return self._spread(Partition.BROADCAST)

    def hash(self, *key: str) -> Self:
        """Rows of one key to one task. key: names of columns."""
        return self._spread(Partition.HASH, key)

    def replayable(self) -> Self:
        """A log of what is sent since the last complete epoch is planned with. The engine keeps none yet."""
        return replace(self, _inputs=tuple(replace(one, replayable=True) for one in self._inputs))

    # -- cycles ----------------------------------------------------------------------------------------------

    def iterate(self) -> Loop:
        """These rows, and those that come back: of what is made of them `closed_by` says what does."""
        line, _ = caller()
        number = self._drafts.begin_loop(line)
        return Loop(self._drafts, (*self._inputs, Input(number)), number)

    # -- sinks -----------------------------------------------------------------------------------------------

    def to_jsonl(self, path: str, **marks: Unpack[Marks]) -> None:
        """Files of JSON lines in a folder, or in a bucket of S3. path: relative to the job's file."""
        self._then(Kind.SINK, "to_jsonl", {"type": "jsonl", "path": path}, marks)

    def to_csv(self, path: str, **marks: Unpack[Marks]) -> None:
        """Files of CSV with a line of names, of rows that have one set of columns. path: as of `to_jsonl`."""
        self._then(Kind.SINK, "to_csv", {"type": "csv", "path": path}, marks)

    def to_parquet(self, path: str, **marks: Unpack[Marks]) -> None:
        """Files of Parquet, of rows that have one set of columns. path: as of `to_jsonl`."""
        self._then(Kind.SINK, "to_parquet", {"type": "parquet", "path": path}, marks)

    def to_postgres(
        self, table: str, *, url_env: str | None = None, service: str | None = None, schema: str | None = None,
        mode: TableMode | None = None, key: Sequence[str] | None = None, **marks: Unpack[Marks],
    ) -> None:  # fmt: skip
        """Rows of a table, each committed once.

        url_env: the environment variable with the URL of its database; service: of libpq's service file; with neither,
        libpq's own variables say where it is. schema: where the table lies. mode: "two-phase" (the default) appends
        rows, in prepared transactions; "upsert" replaces those with the same `key`, columns of a primary key or a
        unique index, once their epoch is complete.
        """
        options = {"url_env": url_env, "service": service, "schema": schema, "mode": mode,
                   "key": None if key is None else list(key)}  # fmt: skip
        connector = {"type": "postgres", "table": table} | {name: v for name, v in options.items() if v is not None}
        self._then(Kind.SINK, "to_postgres", connector, marks)

    def to_delta(self, path: str, **marks: Unpack[Marks]) -> None:
        """A table of Delta Lake, made if it is not there: one commit an epoch. path: as of `to_jsonl`."""
        self._then(Kind.SINK, "to_delta", {"type": "delta", "path": path}, marks)

    def to_iceberg(
        self, table: str, *, catalog: str | None = None, uri: str | None = None, warehouse: str | None = None,
        **marks: Unpack[Marks],
    ) -> None:  # fmt: skip
        """A table of Iceberg, made if it is not there: one commit an epoch.

        table: NAMESPACE.NAME. catalog: a name in pyiceberg's settings, the environment and ~/.pyiceberg.yaml; uri,
        warehouse: of the catalog, beside those. warehouse alone: a folder with a catalog in it, made if it is not
        there; relative to the job's file.
        """
        options = {"catalog": catalog, "uri": uri, "warehouse": warehouse}
        given = {name: value for name, value in options.items() if value is not None}
        self._then(Kind.SINK, "to_iceberg", {"type": "iceberg", "table": table, **given}, marks)

    def to_kafka(
        self, brokers: str, topic: str, *, key: str | None = None, config: str | None = None, **marks: Unpack[Marks]
    ) -> None:
        """Records of a topic of Kafka, JSON objects: an epoch's in one transaction, once for readers that wait for
        transactions to be committed.

        brokers: HOST:PORT, several with commas between; topic: is there. key: the column whose text is each record's
        key. config: a file of further settings of librdkafka, `name=value` a line; relative to the job's file.
        """
        options = {"key": key, "config": config}
        given = {name: value for name, value in options.items() if value is not None}
        self._then(Kind.SINK, "to_kafka", {"type": "kafka", "brokers": brokers, "topic": topic, **given}, marks)

    def to_stdout(self, *, row_id: str | None = None, **marks: Unpack[Marks]) -> None:
        """JSON lines on the stdout of who runs the job, an epoch's once it is complete, and again after a crash where
        it is not known whether they were written.

        row_id: a column that each row gets, by which readers drop what comes again.
        """
        self._then(Kind.SINK, "to_stdout", {"type": "stdout"} | ({} if row_id is None else {"row_id": row_id}), marks)

    # -- inside ----------------------------------------------------------------------------------------------

    def _by_function(self, kind: Kind, function: Function, marks: Marks) -> Stream:
        line, _ = caller()
        reference = reference_of(function, self._drafts.directory, line)
        return self._then(kind, reference.rpartition(":")[2], reference, marks)

    def _then(self, kind: Kind, name: str, work: object, marks: Mapping[str, object]) -> Stream:
        line, _ = caller()
        return Stream(self._drafts, (Input(add_operator(self._drafts, kind, name, work, self._inputs, marks, line)),))

    def _spread(self, partition: Partition, key: tuple[str, ...] | None = None) -> Self:
        inputs = tuple(replace(one, partition=partition, key=key) for one in self._inputs)
        return replace(self, _inputs=inputs)

    def __repr__(self) -> str:
        sources = [str(one.source) if isinstance(one.source, str) else "what comes back" for one in self._inputs]
        return f"{type(self).__name__}({', '.join(sources)} of job {self._drafts.name!r})"


def _duration(span: Duration) -> str:
    """As a job file has it."""
    return span if isinstance(span, str) else duration_text(seconds_of(span)) if seconds_of(span) else "0s"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Loop(Stream):
    """A stream into which rows come back: what reads it reads those as well."""

    _number: int

    def closed_by(self, stream: Stream) -> None:
        """Its rows come back into the loop. They have to be made of it; how they are spread over the tasks of the next
        operator can be said of them: `loop.closed_by(step.rebalance())`."""
        line, _ = caller()
        if stream._drafts is not self._drafts:
            names = f"{self._drafts.name!r} and {stream._drafts.name!r}"
            raise refused(line, f"the loop and what closes it are of two jobs, {names}", "begin both with the same Job")
        self._drafts.close_loop(self._number, stream._inputs, line)


def _positive(name: str, duration: Duration) -> str:
    return duration_text(positive_seconds(name, duration))


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Rows by key, to be aggregated or processed."""

    _stream: Stream
    _key: tuple[str, ...]
    _times: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def window(
        self, time: str, *, tumbling: Duration | None = None, sliding: Duration | None = None,
        every: Duration | None = None, session: Duration | None = None, lateness: Duration | None = None,
    ) -> Grouped:  # fmt: skip
        """By window of event time, too: a row for each key and window, when that ends.

        time: the column of event time. tumbling: how long windows are that follow each other; sliding: how long those
        are of which one begins `every` so long; session: how long a key has had no row when its window ends.
        lateness: for how long behind its end a window still takes rows; it is put out again when it has.
        """
        options = {
            "tumbling": tumbling, "sliding": sliding, "every": every, "session": session, "lateness": lateness,
        }  # fmt: skip
        given = {name: _positive(name, value) for name, value in options.items() if value is not None}
        return replace(self, _times={**self._times, "window": {"time": time, **given}})

    def ttl(self, time: str, after: Duration) -> Grouped:
        """Each key is forgotten when event time is so long behind its latest row. time: the column of event time."""
        return replace(self, _times={**self._times, "ttl": {"time": time, "after": _positive("after", after)}})

    def agg(
        self,
        named: Mapping[str, Output] | None = None,
        /,
        *,
        emit: EmitWhen = "epoch",
        id: str = "agg",
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        deterministic: bool = True,
        ordered_output: bool = False,
        on_error: Literal["fail", "skip"] | OnError = "fail",
        **outputs: Output,
    ) -> Stream:
        """A row for each key: its columns, then the outputs: `agg(n=count(), most=col("amount").max())`.

        named: outputs whose names are those of options here: `agg({"id": col("id").max()})`.
        emit: `epoch`: the keys that have had rows in it, `change`: those of them whose values differ from what was put
        out for them last, `record`: at every row, `batch`: the keys of a batch of rows.
        id, parallelism, max_parallelism, deterministic, ordered_output: as of every operator.
        on_error: of rows with which a sum leaves 64 bits, or that have no time for windows or a ttl, as of `map`.
        """
        line, _ = caller()
        if named is not None and not isinstance(named, Mapping):
            raise refused(line, f"agg: {named!r} has no name", "name each output: agg(n=count())")
        work: dict[str, Any] = {"key": list(self._key)}
        for name, output in {**(named or {}), **outputs}.items():
            if name in ("key", "emit"):
                raise refused(line, f"an output cannot be called {name}: a job file means something else by that")
            if not isinstance(output, Output):
                hint = f"give count(), or what a method of col(NAME) gives: {', '.join(OF_COLUMN)}"
                raise refused(line, f"output {name} is {output!r}", hint)
            aggregate = Aggregate(name, output.function, output.column, output.by, output.limit)
            work[name] = output_document(aggregate)
        if emit != "epoch":
            work["emit"] = emit
        marks: dict[str, object] = {
            "id": id,
            **({} if parallelism is None else {"parallelism": parallelism}),
            **({} if max_parallelism is None else {"max_parallelism": max_parallelism}),
            **({} if deterministic else {"deterministic": False}),
            **({"ordered_output": True} if ordered_output else {}),
            **self._times,
            **({} if on_error == "fail" else {"on_error": on_error}),
        }
        return self._stream._then(Kind.REDUCE, "agg", work, marks)

    def distinct(self, **marks: Unpack[Marks]) -> Stream:
        """The first row of each key; behind `ttl` of each key anew that was forgotten."""
        return self._stream._then(Kind.DISTINCT, "distinct", list(self._key), {**marks, **self._times})

    def process(
        self,
        function: Function,
        *,
        state: Mapping[str, str] | None = None,
        time: str | None = None,
        **marks: Unpack[Marks],
    ) -> Stream:
        """What a function makes of the rows of each key, of the key's state and of its timers.

        function: from a `KeyedBatch` to a `KeyedResult`, or one of single rows with `per_key` above it.
        state: the columns that are kept of each key, with their types.
        time: the column with the event time of a row; keys may have timers then, and all sources have to know it.
        """
        line, _ = caller()
        reference = reference_of(function, self._stream._drafts.directory, line)
        work: dict[str, Any] = {"key": list(self._key), "function": reference}
        work |= {} if state is None else {"state": dict(state)}
        work |= {} if time is None else {"time": time}
        return self._stream._then(Kind.PROCESS, reference.rpartition(":")[2], work, {**marks, **self._times})

    def __repr__(self) -> str:
        return f"Grouped({self._stream!r} by {', '.join(self._key)})"
