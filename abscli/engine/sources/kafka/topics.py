"""The topic of a source, asked of its brokers: where to begin in it, and whether it still has what an epoch goes on
with."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from abscli.engine.brokers import ONCE, brokers_of, until_brokers_answer
from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.waits import Doing, StepTimer, Wait
from formats.brokers import Described
from formats.job.following import follows
from formats.job.kafka import Start, Topic, is_kafka, partition_of, split_name, start_of
from formats.job.model import Kind, Operator, Topology
from formats.kafka import Bounds, Place, lags, told
from formats.native.facts import PartFacts
from formats.view import Position

ANEW = "read the topic from its beginning with --from-epoch 0, or with a new store"


def beginning(operator: Operator, directory: str) -> tuple[Position, ...]:
    """Where a source begins in each partition that its topic has. A source that does not follow the topic ends where
    that ends now. UsageError where there is no such topic; EngineStopped."""
    topic, brokers = Topic.of(operator).name, brokers_of(operator, directory)
    bounds, there = until_brokers_answer(
        operator,
        lambda: (brokers.topics([topic], committed=True, seconds=ONCE), brokers.describe(topic, seconds=ONCE)),
    )
    if topic not in bounds or there is None:
        raise UsageError(
            f"operator {operator.id}: {Topic.of(operator).brokers} has no topic {topic!r}",
            hint="create the topic, or set the topic of the source to an existing topic",
        )
    return tuple(_begins(operator, number, bounds[topic][number], there.id) for number in sorted(bounds[topic]))


def _begins(operator: Operator, partition: int, bounds: Bounds, topic_id: str | None) -> Position:
    first = bounds.earliest if start_of(operator) is Start.EARLIEST else bounds.end
    until = None if follows(operator) else max(bounds.earliest, bounds.end)
    return Position(split_name(Topic.of(operator).name, partition), first, 0, fingerprint=topic_id, until=until)


def check_positions(operator: Operator, directory: str, positions: Iterable[Position]) -> None:
    """JobFailed where the topic has no more what comes next, or is another one; UsageError where a position is of
    another topic than the job's; EngineStopped."""
    positions = [*positions]
    refuse_others(operator, positions)
    topic, brokers = Topic.of(operator).name, brokers_of(operator, directory)
    bounds, there = until_brokers_answer(
        operator, lambda: (brokers.topics([topic], seconds=ONCE), brokers.describe(topic, seconds=ONCE))
    )
    check_topic(f"source {operator.id}", topic, positions, there)
    for position in positions:
        check_bounds(f"source {operator.id}", topic, position, bounds.get(topic, {}))


def dealt(operator: Operator, task: int, positions: Iterable[Position]) -> tuple[Position, ...]:
    """Those that a task begins with: it has every n-th partition."""
    return tuple(at for at in positions if partition_of(at.split) % operator.parallelism == task)


def beginnings(
    topology: Topology,
    parts: Iterable[PartFacts],
    directory: str,
    steps: StepTimer,
) -> dict[str, tuple[Position, ...]]:
    """Find where sources begin of which the parts of an epoch have no position, and check the positions of the others.

    steps: the source is in one while its brokers are asked.
    Raises UsageError, JobFailed, EngineStopped.
    """
    begin, parts = {}, [*parts]
    for op in topology.operators:
        if op.kind is Kind.SOURCE and is_kafka(op):
            read = [part.positions for part in parts if part.operator == op.id and part.positions is not None]
            with steps.run(Wait(op.id, Doing.FIND, Topic.of(op).brokers)):
                if read:
                    check_positions(op, directory, itertools.chain(*read))
                else:
                    begin[op.id] = beginning(op, directory)
    return begin


def refuse_others(operator: Operator, positions: Iterable[Position]) -> None:
    """UsageError for a position that is not of the source's topic."""
    topic = Topic.of(operator).name
    for position in positions:
        number = position.split.rpartition("-")[2]
        if not number.isdecimal() or split_name(topic, int(number[:9])) != position.split:
            raise UsageError(
                f"source {operator.id} reads topic {topic!r}, but the epoch has a position in {position.split!r}",
                hint="set the topic of the source to its previous name; to read another topic, add a source with "
                "another id",
            )


def check_topic(who: str, topic: str, positions: Iterable[Position], there: Described | None) -> None:
    """JobFailed for a topic that is gone, or another one of the same name."""
    for position in positions:
        if there is None:
            raise JobFailed(
                f"{who}: topic {topic!r} is missing, but {position.split} has to resume at offset {position.offset}",
                hint=f"create the topic, and {ANEW}",
            )
        if None not in (there.id, position.fingerprint) and there.id != position.fingerprint:
            raise JobFailed(
                f"{who}: topic {topic!r} was recreated: its id is {there.id}, but the epoch has a position in "
                f"{position.split}, offset {position.offset}, of the topic with the id {position.fingerprint}",
                hint=ANEW,
            )


def check_bounds(who: str, topic: str, position: Position, bounds: Mapping[int, Bounds]) -> None:
    """JobFailed for a position from which a source cannot go on."""
    place = Place("", topic, partition_of(position.split), position.offset, position.until)
    lag = lags([place], {topic: bounds})[0]
    if lag.gap is not None:
        raise JobFailed(
            f"{who}: {position.split} {told(lag)}",
            hint="increase the retention of the topic beyond the downtime of the job; to process the "
            f"remaining records, {ANEW}",
        )
