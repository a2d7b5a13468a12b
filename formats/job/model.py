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
    """One edge; `key` are the columns of a `hash` edge, empty otherwise."""

    source: str
    target: str
    partition: Partition
    key: tuple[str, ...] = ()
    replayable: bool = False

    @property
    def name(self) -> str:
        """`words->counts`."""
        return edge_name(self.source, self.target)


class Emit(StrEnum):
    """When a `reduce` emits."""

    EPOCH = "epoch"
    RECORD = "record"
    BATCH = "batch"


class Aggregation(StrEnum):
    """What a named output of a `reduce` computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Aggregate(msgspec.Struct, frozen=True):
    """One named output of a `reduce`, over `column` (`*` for count)."""

    name: str
    function: Aggregation
    column: str


class Operator(msgspec.Struct, frozen=True):
    """One operator. Exactly the fields of its kind are set.

    function: `module:name` or a built-in's name (map, filter, flat_map, process, join);
    key: columns of `reduce`, `distinct`, keyed `process` and `join`;
    aggregates: of `reduce`;
    emit: of `reduce`;
    connector: the mapping under `source` or `sink`, with its `type`.
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
