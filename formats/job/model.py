"""The job graph as the user wrote it: a checked, frozen model (reading it from YAML is `formats.job.file`).

Words: an *operator* has `parallelism` *tasks* (`counts/1`); an *edge* is expanded into *channels* by its partitioning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from formats.ids import edge_name


class Partition(StrEnum):
    """How an edge spreads rows over the receiver's tasks."""

    FORWARD = "forward"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    HASH = "hash"


class Kind(StrEnum):
    """What an operator does; `opaque` can be inspected and planned for, not run."""

    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    REDUCE = "reduce"
    DISTINCT = "distinct"
    PROCESS = "process"
    JOIN = "join"
    LOOKUP = "lookup"
    UNION = "union"
    SINK = "sink"
    OPAQUE = "opaque"


ROW_WISE = frozenset({Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.LOOKUP, Kind.UNION})
KEYED = frozenset({Kind.REDUCE, Kind.DISTINCT, Kind.PROCESS, Kind.JOIN})


class Edge(msgspec.Struct, frozen=True):
    """One edge; `key` are the columns of a `hash` edge, empty otherwise. output: of the sender, where that is not the
    one it mainly has."""

    source: str
    target: str
    partition: Partition
    key: tuple[str, ...] = ()
    replayable: bool = False
    output: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def name(self) -> str:
        """`words->counts`."""
        return edge_name(self.source, self.target)


class Emit(StrEnum):
    """When a `reduce` emits."""

    EPOCH = "epoch"
    RECORD = "record"
    BATCH = "batch"
    CHANGE = "change"


class Aggregation(StrEnum):
    """What a named output of a `reduce` computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    TOP_N = "top_n"
    COLLECT = "collect"


IN_ORDER = frozenset({Aggregation.FIRST, Aggregation.LAST, Aggregation.COLLECT})
"""Whose value depends on the order in which rows come."""

LISTED = 10_000
"""Values that an aggregate lists at most."""


class Aggregate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named output of a `reduce`, over `column` (`*` for count).

    by: the column by which `top_n` puts others in order, where that is another one;
    limit: so many values `top_n` and `collect` have at most.
    """

    name: str
    function: Aggregation
    column: str
    by: str | None = None
    limit: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the input that it is made of."""
        return tuple(name for name in (self.column, self.by) if name is not None and name != "*")

    @property
    def state(self) -> tuple[str, ...]:
        """The columns of the state that it is kept in."""
        return (f"{self.name}.sum", f"{self.name}.count") if self.function is Aggregation.MEAN else (self.name,)

    def __str__(self) -> str:
        more = [f"{word} {value}" for word, value in (("by", self.by), ("limit", self.limit)) if value is not None]
        return f"{self.name}: {self.function}({', '.join([self.column, *more])})"


class WindowKind(StrEnum):
    """How event time is cut into windows."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """The windows of a `reduce`. Durations in microseconds.

    time: the column with the event time of a row;
    size: of a window; of a session the gap that ends it;
    every: after which the next sliding window begins;
    lateness: for which rows are still taken into a window that has been put out.
    """

    time: str
    kind: WindowKind
    size: int
    every: int | None = None
    lateness: int = 0


class Ttl(msgspec.Struct, frozen=True):
    """How long a key is kept after its last row, by event time: `after` in microseconds; `time` is the column."""

    time: str
    after: int


class Keeping(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a keyed `process` keeps of each key.

    columns: of its state, each with its type in the words of a source's `schema`;
    time: the column with the event time of a row: a key may have a timer then.
    """

    columns: tuple[tuple[str, str], ...] = ()
    time: str | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name}: {kind}" for name, kind in self.columns) or "none"


WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns that say which window a row is of, behind those of the key. The end is not part of it."""

LATE = "late"
"""The output of an operator with windows that has the rows which came too late."""


class How(StrEnum):
    """Which rows a join puts out though none matches them: none, those of the left side, those of both."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


class LookupHow(StrEnum):
    """What becomes of a row that no row of the table matches: it is left out, or goes on."""

    INNER = "inner"
    LEFT = "left"


class Side(StrEnum):
    """Of a join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> Side:
        """The one that it is joined with."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT

    @property
    def late(self) -> str:
        """The output with its rows that came too late."""
        return f"{LATE}_{self}"


LATE_OUTPUTS = (LATE, *(side.late for side in Side))
"""Outputs that an input can name."""

JOIN_SIDE, JOIN_NUMBER = "join_side", "join_number"
"""The columns of a join's state behind those of the key: where a waiting row came from, and its number in its task."""


class Join(msgspec.Struct, frozen=True, omit_defaults=True):
    """A join of two inputs by key and event time. Durations in microseconds.

    left: the input whose rows a row of the other matches from `before` their time to `after` it, both included;
    time: the columns with the event times, of the left side and of the right;
    lateness: so far behind the watermark rows are still taken;
    columns: of an input, name to type, where its operator does not say them.
    """

    left: str
    time: tuple[str, str]
    before: int
    after: int
    how: How = How.INNER
    lateness: int = 0
    columns: dict[str, dict[str, str]] = {}


class Lookup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table beside the stream, read from a file or a database when a task starts.

    path: of a Parquet or CSV file, by its ending; empty where a database has it;
    key: columns of the table, and of the stream, that have to be equal;
    how: whether a row without a match goes on, with nulls;
    columns: that come to a row; all others than the key where it says none;
    table, query: of PostgreSQL, one of them; url_env, service: where that is, as of a sink. Empty where not said.
    """

    path: str
    key: tuple[str, ...]
    how: LookupHow = LookupHow.INNER
    columns: tuple[str, ...] = ()
    table: str = ""
    query: str = ""
    url_env: str = ""
    service: str = ""


class DeadLetter(msgspec.Struct, frozen=True):
    """Records on which an operator fails are written where this path leads, as by a sink."""

    dead_letter: str


OnError = Literal["skip"] | DeadLetter
"""What becomes of a record on which an operator fails, where that does not end the run."""


class Operator(msgspec.Struct, frozen=True):
    """One operator. Exactly the fields of its kind are set.

    function: `module:name` or a built-in's name (map, filter, flat_map, process, join);
    key: columns of `reduce`, `distinct`, keyed `process` and `join`;
    aggregates: of `reduce`;
    emit: of `reduce`;
    connector: the mapping under `source` or `sink`, with its `type`;
    window: of `reduce`;
    ttl: of `reduce`, `distinct` and keyed `process`;
    join, lookup: of these kinds. A `join` with a function has none, and cannot be run;
    keeping: of keyed `process`;
    on_error: of those on whose records it may fail; unset: that ends the run.
    """

    id: str
    kind: Kind
    parallelism: int
    max_parallelism: int
    function: str | None = None
    key: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    emit: Emit | None = None
    connector: dict[str, Any] | None = None
    deterministic: bool = True
    ordered_output: bool = False
    name: str | None = None  # a display name, where a foreign format has one
    # Unset, not null: a job without them has the bytes, and so the digest, that it always had.
    window: Window | msgspec.UnsetType = msgspec.UNSET
    ttl: Ttl | msgspec.UnsetType = msgspec.UNSET
    join: Join | msgspec.UnsetType = msgspec.UNSET
    lookup: Lookup | msgspec.UnsetType = msgspec.UNSET
    on_error: OnError | msgspec.UnsetType = msgspec.UNSET
    keeping: Keeping | msgspec.UnsetType = msgspec.UNSET

    @property
    def kept(self) -> Keeping:
        """What a keyed `process` keeps; nothing where the file says nothing."""
        return self.keeping or Keeping()

    @property
    def stateful(self) -> bool | None:
        """Whether it keeps keyed state; None (unknown) for opaque operators."""
        if self.kind is Kind.OPAQUE:
            return None
        if self.kind is Kind.PROCESS:
            return True
        return self.kind in KEYED


def forgets(operator: Operator) -> bool:
    """Whether a row may find its key forgotten: not where all rows of a key have one time."""
    return operator.ttl is not msgspec.UNSET and operator.ttl.time not in operator.key


def as_sink(operator: Operator) -> Operator | None:
    """What an operator writes to, as a sink of its id: itself, or where its dead letters go; None where it does not."""
    if operator.kind is Kind.SINK:
        return operator if operator.connector is not None else None
    if not isinstance(operator.on_error, DeadLetter):
        return None
    connector = {"type": "jsonl", "path": operator.on_error.dead_letter}
    return msgspec.structs.replace(operator, kind=Kind.SINK, connector=connector)


def with_sink_at(operator: Operator, path: str) -> Operator:
    """An operator that writes somewhere else; as it is where it does not write."""
    if isinstance(operator.on_error, DeadLetter):
        return msgspec.structs.replace(operator, on_error=DeadLetter(path))
    if operator.kind is Kind.SINK:
        return msgspec.structs.replace(operator, connector={**(operator.connector or {}), "path": path})
    return operator


class Topology(msgspec.Struct, frozen=True):
    """A job graph that holds: ids are unique, edges name known operators, every operator is reached.

    operators: in declared order; edges: by target in declared order, then in the order of its `from`.
    """

    job: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    version: int = 1

    def operator(self, id: str) -> Operator:
        """The operator called `id`; KeyError if there is none (linear; build a dict for hot paths)."""
        for op in self.operators:
            if op.id == id:
                return op
        raise KeyError(id)


MAX_TASKS, MAX_CHANNELS = 200_000, 2_000_000
"""Of a job whose snapshots are kept in a store: every one of them stands in the facts of every epoch, and has to fit
into memory when these are read. (Planning from a graph alone has no such bound.)"""


def canonical(topology: Topology) -> bytes:
    """The bytes that stand for a topology wherever it is stored or digested: JSON, keys sorted, no spaces."""
    return msgspec.json.encode(topology, order="sorted")


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that subtask `index` owns: as even as can be, in one piece, in the subtasks' order."""
    return range(-(-index * max_parallelism // parallelism), -(-(index + 1) * max_parallelism // parallelism))
