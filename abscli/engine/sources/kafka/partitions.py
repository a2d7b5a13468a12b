"""How far a task has read each of its partitions, and what has come of them that it has not put out yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from abscli.engine.sources.kafka.records import Record
from formats.job.kafka import partition_of
from formats.view import Position


@dataclass(slots=True)
class Partition:
    """One of them.

    offset: of the record that comes next; records: rows so far.
    until: where it ends; None: it does not.
    topic_id: of the topic that it is of, None where brokers give none.
    ready: what has come, and was not put out. fetched: behind the last of that.
    end: where the broker had no more; None where more has come since, or it has not said so yet.
    """

    split: str
    offset: int
    records: int = 0
    until: int | None = None
    topic_id: str | None = None
    ready: deque[Record] = field(default_factory=deque)
    fetched: int = 0
    end: int | None = None

    @classmethod
    def at(cls, position: Position) -> Partition:
        """From where it stood."""
        offset = position.offset or 0
        return cls(
            position.split, offset, position.records or 0, position.until, position.fingerprint, fetched=offset
        )

    @property
    def number(self) -> int:
        """Within the topic."""
        return partition_of(self.split)

    @property
    def position(self) -> Position:
        """How far it has been read."""
        return Position(self.split, self.offset, self.records, fingerprint=self.topic_id, until=self.until)

    @property
    def is_over(self) -> bool:
        """Whether it was read to where it ends."""
        return self.until is not None and self.offset >= self.until

    @property
    def is_waiting(self) -> bool:
        """Whether the broker has no more of it now."""
        return not self.is_over and not self.ready and self.end is not None

    def add(self, record: Record) -> None:
        """The next one has come; one that had come before is dropped."""
        if record.offset >= self.fetched:
            self.ready.append(record)
            self.fetched, self.end = record.offset + 1, None

    def take(self, most: int, limit: int | None = None) -> list[Record]:
        """The next records, which are put out now. limit: where to stop, before its own end."""
        stop = self._stop(limit)
        taken: list[Record] = []
        while self.ready and len(taken) < most and (stop is None or self.ready[0].offset < stop):
            taken.append(self.ready.popleft())
        if taken:
            self.offset = taken[-1].offset + 1
        self.settle(limit)
        return taken

    def settle(self, limit: int | None = None) -> None:
        """Go over offsets that have no record for a reader: marks of transactions, what was given up or compacted."""
        stop = self._stop(limit)
        reach = self.ready[0].offset if self.ready else self.end
        if reach is not None and (not self.ready or (stop is not None and reach >= stop)):
            self.offset = max(self.offset, reach if stop is None else min(reach, stop))
        if self.is_over:
            self.ready.clear()

    def _stop(self, limit: int | None) -> int | None:
        stops = [stop for stop in (limit, self.until) if stop is not None]
        return min(stops) if stops else None


class Partitions:
    """Of one task; they take turns. ends, rows: as of `Source.stop_at`."""

    def __init__(self, positions: Iterable[Position]) -> None:
        self._by_number: dict[int, Partition] = {}
        self.ends: Mapping[str, int] | None = None
        self.rows: int | None = None
        for position in positions:
            self.add(position)

    def __iter__(self) -> Iterator[Partition]:
        return iter([*self._by_number.values()])

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def get(self, number: int) -> Partition | None:
        """By its number."""
        return self._by_number.get(number)

    def add(self, position: Position) -> Partition:
        """One more."""
        partition = Partition.at(position)
        self._by_number[partition.number] = partition
        return partition

    def limit(self, partition: Partition) -> int | None:
        """Where to stop in it, besides its own end."""
        return None if self.ends is None else self.ends.get(partition.split, 0)

    def next(self) -> Partition | None:
        """One that has records which may be put out; it is the last to be asked next time."""
        if self.rows == 0:
            return None
        for partition in [*self._by_number.values()]:
            limit = self.limit(partition)
            partition.settle(limit)
            if partition.ready and (limit is None or partition.ready[0].offset < limit):
                del self._by_number[partition.number]
                self._by_number[partition.number] = partition
                return partition
        return None
