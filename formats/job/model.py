"""The job graph as the user wrote it: a checked, frozen model (reading it from YAML is `formats.job.file`).

Words: an *operator* has `parallelism` *tasks* (`counts/1`); an *edge* is expanded into *channels* by its partitioning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

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
    UNION = "union"
    SINK = "sink"
    OPAQUE = "opaque"


ROW_WISE = frozenset({Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.UNION})
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


class Operator(msgspec.Struct, frozen=True):
    """One operator. Exactly the fields of its kind are set.

    function: `module:name` or a built-in's name (map, filter, flat_map, process, join);
    key: columns of `reduce`, `distinct`, keyed `process` and `join`;
    aggregates: of `reduce`;
    emit: of `reduce`;
    connector: the mapping under `source` or `sink`, with its `type`;
    window: of `reduce`;
    ttl: of `reduce`, `distinct` and keyed `process`;
    keeping: of keyed `process`.
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
