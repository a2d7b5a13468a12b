"""Where sources of Kafka go on: the partitions that their tasks read, and those that wait in an enumerator."""

from __future__ import annotations

from collections.abc import Iterator

from formats.flink.connectors.enumerators import enumerator
from formats.flink.connectors.split_kinds import Split
from formats.flink.connectors.splits import readable
from formats.flink.files.streams import Streams
from formats.flink.ids import Names
from formats.flink.metadata.handles import Metadata, OperatorState
from formats.kafka import Place


def places(metadata: Metadata, names: Names, streams: Streams) -> list[Place]:
    """By operator, topic and partition; of sources whose splits can be read."""
    return sorted(
        (
            _place(names[operator.id], split)
            for operator in metadata.operators
            for split in _splits(operator, streams)
            if split.kind == "kafka"
        ),
        key=lambda place: (place.operator, place.topic, place.partition),
    )


def _splits(operator: OperatorState, streams: Streams) -> Iterator[Split]:
    for subtask in operator.subtasks:
        yield from readable(subtask, streams) or ()
    waiting = enumerator(operator)
    yield from waiting.splits if waiting is not None else ()


def _place(operator: str, split: Split) -> Place:
    topic, _, partition = (split.id or "").rpartition("-")
    return Place(operator, topic, int(partition), _offset(split.next), _offset(split.end))


def _offset(number: int | None) -> int | None:
    """None for those that stand for others: earliest, latest, committed."""
    return number if number is not None and number >= 0 else None
