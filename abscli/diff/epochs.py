"""What changed between two epochs, of one store or of two: positions, logs and job graphs from facts alone.

The state itself is compared by `abscli.diff.state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from formats.ids import AnyChannelId, TaskId
from formats.job.model import Edge, Operator, Topology
from formats.redaction import redact
from formats.view import EpochDetail, OperatorFacts, Position


class StateDiff(msgspec.Struct, frozen=True):
    """Keys of one named state, counted by what became of them; None where they were not compared.

    note: why they were not, or which were not.
    """

    state: str | None
    kind: str
    key: tuple[str, ...]
    added: int | None = None
    removed: int | None = None
    changed: int | None = None
    unchanged: int | None = None
    note: str | None = None

    @property
    def differs(self) -> bool | None:
        """Whether a key came, went or changed; None if that is not known."""
        if self.added is None or self.removed is None or self.changed is None:
            return None
        return bool(self.added or self.removed or self.changed)


class OperatorDiff(msgspec.Struct, frozen=True):
    """One operator.

    change: `added`, `removed`, `changed` (its state), `unchanged`, or `unknown`.
    """

    id: str
    change: str
    added: int | None
    removed: int | None
    changed: int | None
    unchanged: int | None
    states: tuple[StateDiff, ...]


class Mark(msgspec.Struct, frozen=True):
    """Where a source stood.

    offset: in the connector's unit.
    text: in the source's own words, where it is no number.
    """

    offset: int | None
    records: int | None
    text: str | None = None


class PositionDiff(msgspec.Struct, frozen=True):
    """One split. from, to: None where it was not there; moved: as far as both are known, backwards is negative."""

    task: TaskId
    split: str
    before: Mark | None = msgspec.field(name="from")
    after: Mark | None = msgspec.field(name="to")
    moved: Mark


class LogDiff(msgspec.Struct, frozen=True):
    """Records logged on one channel.

    same: whether they are the same records, by digest; None if that is not known.
    """

    channel: AnyChannelId
    before: int | None = msgspec.field(name="from")
    after: int | None = msgspec.field(name="to")
    same: bool | None


class TopologyDiff(msgspec.Struct, frozen=True):
    """One difference of the job graphs, and what it means for taking the first epoch's state into the second's job."""

    change: str
    subject: str
    before: str | None = msgspec.field(name="from")
    after: str | None = msgspec.field(name="to")
    impact: str


class Count(msgspec.Struct, frozen=True):
    """Files, and their bytes."""

    files: int
    bytes: int


class Change(msgspec.Struct, frozen=True):
    """A number before and after."""

    before: int = msgspec.field(name="from")
    after: int = msgspec.field(name="to")


class FilesDiff(msgspec.Struct, frozen=True):
    """Files of two epochs by whether both refer to them; bytes that each refers to, and that each itself wrote."""

    shared: Count
    new: Count
    removed: Count
    state_size: Change
    checkpointed_size: Change


class Besides(NamedTuple):
    """What a system alone knows to differ between two of its epochs."""

    changes: Sequence[TopologyDiff] = ()
    files: FilesDiff | None = None


# -- positions and logs ---------------------------------------------------------------------------------------


def diff_positions(left: EpochDetail, right: EpochDetail) -> Iterator[PositionDiff]:
    """Every split of either side, by operator and name; a split keeps its name when another task reads it."""
    before, after = _splits(left), _splits(right)
    for key in dict.fromkeys([*before, *after]):
        a, b = before.get(key), after.get(key)
        task, split = (after.get(key) or before[key])[0], key[1]
        was, now = (Mark(x[1].offset, x[1].records, x[1].text) if x else None for x in (a, b))
        offset, records = (_less(p, q) for p, q in zip(_pair(now), _pair(was), strict=True))
        yield PositionDiff(task, split, was, now, Mark(offset, records))


def _splits(detail: EpochDetail) -> dict[tuple[str, str], tuple[TaskId, Position]]:
    return {
        (operator.id, at.split): (task.task, at)
        for operator in detail.operators
        for task in operator.tasks
        for at in task.position or ()
    }


def _pair(mark: Mark | None) -> tuple[int | None, int | None]:
    return (mark.offset, mark.records) if mark else (None, None)


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def diff_logs(
    left: EpochDetail, right: EpochDetail, digests: Sequence[Mapping[AnyChannelId, str | None] | None] = (None, None)
) -> Iterator[LogDiff]:
    """Channels that have a log on either side. digests: of the logs of either by channel, where its format has any."""
    logged = {channel.channel for side in (left, right) for channel in side.channels.logged()}
    if not logged:  # of a million channels none is looked at
        return
    before, after = ({c.channel: c.logged for c in side.channels if c.channel in logged} for side in (left, right))
    was, now = digests
    for channel in dict.fromkeys([*before, *after]):
        a, b = before.get(channel), after.get(channel)
        same: bool | None = None
        if a is not None and b is not None and a != b:
            same = False
        elif was and now and (one := was.get(channel)) and (other := now.get(channel)):
            same = True if one == other else None  # other bytes may hold the same records
        yield LogDiff(channel, a, b, same)


# -- job graphs -----------------------------------------------------------------------------------------------


def diff_topology(
    left: Topology | None, right: Topology | None, details: tuple[EpochDetail, EpochDetail]
) -> list[TopologyDiff]:
    """What differs; from the operators that the epochs name where a format has no graph."""
    facts = {op.id: op for op in details[0].operators}
    if left is None or right is None:
        return [*_known_operators(facts, {op.id: op for op in details[1].operators})]
    before, after = ({op.id: op for op in graph.operators} for graph in (left, right))
    differences = [*_comings(before, after, facts)]
    for id, old in before.items():
        if id in after:
            differences += _operator(old, after[id], facts.get(id))
    differences += _edges(left, right)
    if details[0].policy != details[1].policy and None not in (details[0].policy, details[1].policy):
        differences.append(TopologyDiff("policy", "", details[0].policy, details[1].policy, "none for the state"))
    return differences


def _holds(facts: OperatorFacts | None) -> bool | None:
    """Whether the operator has state; None if that is not known."""
    if facts is None:
        return False
    return None if facts.rows is None and facts.bytes is None else bool(facts.rows or facts.bytes)


def _comings(
    before: Mapping[str, Operator], after: Mapping[str, Operator], facts: Mapping[str, OperatorFacts]
) -> Iterator[TopologyDiff]:
    for id, operator in before.items():
        if id not in after:
            yield _gone(id, str(operator.kind), facts.get(id))
    for id, operator in after.items():
        if id not in before:
            yield TopologyDiff("operator-added", id, None, str(operator.kind), "it would start without state")


def _gone(id: str, kind: str | None, facts: OperatorFacts | None) -> TopologyDiff:
    stateful = _holds(facts)
    effect = "it has no state: nothing is lost"
    if stateful:
        rows = f"{facts.rows:,} rows" if facts and facts.rows is not None else "bytes"
        effect = f"its state ({rows}) would have no owner: a restore has to give it up or is refused"
    elif stateful is None:
        effect = "its state, if it has any, would have no owner"
    return TopologyDiff("operator-removed", id, kind, None, effect)


def _operator(old: Operator, new: Operator, facts: OperatorFacts | None) -> Iterator[TopologyDiff]:
    stateful = _holds(facts)

    def of(change: str, before: object, after: object, with_state: str, without: str = "none") -> TopologyDiff:
        return TopologyDiff(change, old.id, str(before), str(after), without if stateful is False else with_state)

    if old.kind != new.kind:
        yield of("kind", old.kind, new.kind, "its state was made by another kind of operator and cannot be used")
    if old.max_parallelism != new.max_parallelism:
        effect = "keys lie in other key groups: the state must be rewritten key by key"
        yield of("max-parallelism", old.max_parallelism, new.max_parallelism, effect)
    if old.parallelism != new.parallelism:
        effect = "key groups move between tasks: a restore has to rescale, and starts a new generation"
        rest = "a restore has to rescale: channels and counters begin anew"
        yield of("parallelism", old.parallelism, new.parallelism, effect, rest)
    if old.key != new.key:
        effect = "its state is kept by other keys and cannot be used"
        yield of("key", ", ".join(old.key) or "none", ", ".join(new.key) or "none", effect)
    if old.aggregates != new.aggregates:
        was, now = (", ".join(map(str, op.aggregates)) for op in (old, new))
        yield of("aggregates", was, now, "what the state lacks would have to start anew")
    if old.kept.columns != new.kept.columns:
        yield of("state", str(old.kept), str(new.kept), "its state has other columns and cannot be used")
    if old.function != new.function:
        yield of("function", old.function, new.function, "its state was made by other code",
                 "records in logs were made by other code")  # fmt: skip
    if old.connector != new.connector:
        effect = "positions, and what sinks have shown, may be of other data"
        yield of("connector", _settings(old), _settings(new), effect, effect)


def _settings(operator: Operator) -> str:
    return redact(", ".join(f"{name}={value}" for name, value in sorted((operator.connector or {}).items()))) or "none"


def _edges(left: Topology, right: Topology) -> Iterator[TopologyDiff]:
    before, after = ({(e.source, e.target): e for e in graph.edges} for graph in (left, right))
    for ends, edge in before.items():
        name = edge.name
        if ends not in after:
            yield TopologyDiff("edge-removed", name, _how(edge), None, "a log on it would have no receiver")
        elif _how(edge) != _how(after[ends]):
            effect = "a log on it has to be routed anew"
            yield TopologyDiff("edge", name, _how(edge), _how(after[ends]), effect)
    for ends, edge in after.items():
        if ends not in before:
            yield TopologyDiff("edge-added", edge.name, None, _how(edge), "none")


def _how(edge: Edge) -> str:
    return f"{edge.partition}({', '.join(edge.key)})" if edge.key else str(edge.partition)


def _known_operators(
    before: Mapping[str, OperatorFacts], after: Mapping[str, OperatorFacts]
) -> Iterator[TopologyDiff]:
    for id, old in before.items():
        if id not in after:
            yield _gone(id, old.name, old)
        elif old.parallelism != after[id].parallelism:
            effect = "its state is spread over another number of tasks"
            yield TopologyDiff("parallelism", id, str(old.parallelism), str(after[id].parallelism), effect)
    for id, new in after.items():
        if id not in before:
            yield TopologyDiff("operator-added", id, None, new.name, "it would start without state")
