"""A topic of Kafka, read by offsets that epochs keep; nothing is committed to the broker.

Records of transactions that were not committed are never read. A batch is of one partition, which the task's steps
name: in which order records of several partitions come depends on the network. Offsets that have no record for a reader
(marks of transactions, what was given up or compacted) are gone over when the next record, or the end, is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from abscli.engine.brokers import brokers_of, settings_of
from abscli.engine.errors import JobFailed
from abscli.engine.sources.contract import NOT_YET, NotYet
from abscli.engine.sources.kafka.lookout import Lookout, Seen
from abscli.engine.sources.kafka.partitions import Partition, Partitions
from abscli.engine.sources.kafka.records import Record, Rows
from abscli.engine.sources.kafka.topics import beginning, check_bounds, check_topic
from formats.errors import Unreachable
from formats.ids import TaskId
from formats.job.following import follows
from formats.job.kafka import Topic, split_name
from formats.job.model import Operator
from formats.view import Position
from formats.watermark import IDLE

WAIT_SECONDS = 0.002
"""For which a source that has nothing to read waits for a record."""
ROWS = 1 << 13
"""Of a batch, at most; and records that are fetched at once."""
MANY = 4 * ROWS
"""Records of a partition that wait for others, beyond which no more of it are fetched."""
FETCHED_KB = 32 << 10
"""Kilobytes that the client fetches ahead."""


class KafkaSource:
    """positions: restored ones, or where each of the task's partitions begins; None: it asks for that itself.

    others: splits of all tasks of the source.
    """

    def __init__(
        self,
        operator: Operator,
        directory: str,
        task: TaskId,
        positions: Iterable[Position] | None,
        others: Collection[str],
        rows: Rows,
    ) -> None:
        self._operator = operator
        self._directory = directory
        self._topic = Topic.of(operator)
        self._follows = follows(operator)
        self._task = task
        self._others = frozenset(others)
        self._rows = rows
        self._is_begun = positions is not None
        # Who follows a topic that was read to an end before goes on behind that.
        until = {"until": None} if self._follows else {}
        self._partitions = Partitions(msgspec.structs.replace(at, **until) for at in positions or ())
        self._nothing = pa.RecordBatch.from_pylist([], rows.schema)
        self._consumer: Any = None
        self._lookout: Lookout | None = None
        self._paused: set[int] = set()
        self._again: list[pa.RecordBatch] = []
        self.split = 0

    # -- as of `Source` ---------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """See `Source`."""
        return self._is_begun and not self._follows and all(one.is_over for one in self._partitions)

    @property
    def positions(self) -> tuple[Position, ...]:
        """See `Source`."""
        return tuple(sorted((one.position for one in self._partitions), key=lambda at: at.split))

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self.positions

    @property
    def unread(self) -> Collection[str]:
        """See `Source`."""
        return [one.split for one in self._partitions if not one.is_over]

    @property
    def waiting(self) -> Collection[str]:
        """See `Source`. While no broker answers it is not known whether there are rows."""
        if self.held_up is not None:
            return ()
        return [one.split for one in self._partitions if one.is_waiting]

    @property
    def held_up(self) -> tuple[float, str] | None:
        """See `Source`."""
        return self._lookout.silence if self._lookout is not None else None

    @property
    def connector(self) -> dict[str, str] | None:
        """See `Source`."""
        return self._rows.connector

    @property
    def watermark(self) -> int | None:
        """A task that has no partition keeps nobody waiting."""
        return IDLE if self._is_begun and not any(True for _ in self._partitions) else None

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self._partitions.ends, self._partitions.rows = offsets, lines

    def read(self) -> pa.RecordBatch | None:
        """See `Source`; no rows where none have come."""
        self._open()
        if self._lookout is not None and (seen := self._lookout.take()) is not None:
            self._hear(seen)
        partition = self._partitions.next()
        if partition is None and self.finished:
            return None
        if partition is None and self._partitions.rows != 0:
            self._fetch()
            partition = self._partitions.next()
        if partition is None:
            return self._nothing
        self.split = partition.number
        return self._put_out(partition, ROWS if self._partitions.rows is None else min(ROWS, self._partitions.rows))

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | NotYet | None:
        """See `Source`."""
        self.split = split
        if not rows:
            return self._nothing
        self._open()
        partition = self._partitions.get(split) or self._find(split)
        if partition is None:
            return NOT_YET
        lacking = rows - sum(batch.num_rows for batch in self._again)
        if not partition.ready:
            self._fetch(partition)
        while lacking and (taken := partition.take(min(lacking, ROWS))):
            batch = self._make(partition, taken)
            self._again.append(batch)
            lacking -= batch.num_rows
        if lacking and not partition.is_over:
            return NOT_YET
        batches, self._again = self._again, []
        return pa.Table.from_batches(batches, self._rows.schema).combine_chunks().to_batches()[0]

    def close(self) -> None:
        """See `Source`."""
        if self._lookout is not None:
            self._lookout.close()
        if self._consumer is not None:
            self._consumer.close()
        self._lookout = self._consumer = None

    # -- rows -------------------------------------------------------------------------------------------------

    def _put_out(self, partition: Partition, most: int) -> pa.RecordBatch:
        taken = partition.take(most, self._partitions.limit(partition))
        if self._partitions.rows is not None:
            self._partitions.rows -= len(taken)
        if partition.is_over:
            self._pause([partition])
        return self._make(partition, taken)

    def _make(self, partition: Partition, taken: list[Record]) -> pa.RecordBatch:
        rows = self._rows.of(partition.split, taken)
        partition.records += rows.num_rows
        if not partition.ready and partition.number in self._paused and not partition.is_over:
            self._consumer.resume([self._place(partition)])
            self._paused.discard(partition.number)
        return rows

    # -- the broker -------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._consumer is not None:
            return
        if not self._is_begun:
            tasks, index = self._operator.parallelism, self._task.subtask
            for number, position in enumerate(beginning(self._operator, self._directory)):
                if number % tasks == index:
                    self._partitions.add(position)
            self._is_begun = True
        if not self._follows:
            self._end()
        from confluent_kafka import Consumer

        brokers = brokers_of(self._operator, self._directory)
        self._consumer = Consumer({
            "group.id": f"abs-{self._operator.id}",
            "queued.max.messages.kbytes": FETCHED_KB,
            **settings_of(self._operator, self._directory),
            "bootstrap.servers": self._topic.brokers,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # never skip what is gone
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "log_level": 0,
        })  # fmt: skip
        self._paused = {one.number for one in self._partitions if one.is_over}
        self._consumer.assign([self._place(one) for one in self._partitions if not one.is_over])
        self._lookout = Lookout(
            brokers, self._topic.name, lambda: [one.number for one in self._partitions if not one.is_over]
        )

    def _end(self) -> None:
        """Partitions that were followed before end where they end now."""
        endless = [one for one in self._partitions if one.until is None]
        if endless:
            ends = {at.split: at.until for at in beginning(self._operator, self._directory)}
            for one in endless:
                one.until = max(one.offset, ends.get(one.split) or 0)

    def _place(self, partition: Partition) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic.name, partition.number, partition.fetched)

    def _fetch(self, wanted: Partition | None = None) -> None:
        """Take what has come. wanted: nothing but records of this one is needed, and of others there may be many."""
        if wanted is not None or self._partitions.ends is not None:
            self._pause([one for one in self._partitions if one is not wanted and len(one.ready) > MANY])
        first = self._consumer.poll(WAIT_SECONDS)
        if first is None:
            return
        for message in (first, *self._consumer.consume(ROWS, 0)):
            partition = self._partitions.get(message.partition())
            if (error := message.error()) is not None:
                self._failed(partition, error, message.offset())
            elif partition is not None and not partition.is_over:
                kind, time = message.timestamp()
                partition.add(Record(message.offset(), message.key(), message.value(), time if kind else None))
        for partition in self._partitions:
            partition.settle(self._partitions.limit(partition))
            if partition.is_over:
                self._pause([partition])

    def _pause(self, partitions: Iterable[Partition]) -> None:
        fresh = [one for one in partitions if one.number not in self._paused]
        if fresh:
            self._consumer.pause([self._place(one) for one in fresh])
            self._paused.update(one.number for one in fresh)

    def _failed(self, partition: Partition | None, error: Any, offset: int | None) -> None:
        """What the client says instead of a record. A broker that is away is none of it: the client goes on."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            if partition is not None and offset is not None and offset >= partition.fetched:
                partition.end = offset
                partition.fetched = offset
            return
        gone = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID)  # fmt: skip
        refused = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION)
        if error.code() in gone and self._lookout is not None:
            try:
                seen = self._lookout.look()
            except Unreachable:  # it is not known whether something is gone
                return
            self._hear(seen)
            if partition is not None:
                at = Position(partition.split, partition.fetched, 0, until=partition.until)
                check_bounds(f"task {self._task}", self._topic.name, at, seen.bounds)
        elif error.code() in refused:
            raise JobFailed(
                f"task {self._task}: topic {self._topic.name!r} cannot be read: {error.str()}",
                hint="grant the job's user read access, and set that user in `config`",
            )

    # -- partitions that come ---------------------------------------------------------------------------------

    def _hear(self, seen: Seen) -> None:
        """What was seen of the topic: JobFailed where it is another one; partitions that are new are read."""
        check_topic(f"task {self._task}", self._topic.name, self.positions, seen.topic)
        if self._follows and self._partitions.ends is None:
            for number in sorted(seen.bounds):
                self._add(number, seen)

    def _add(self, number: int, seen: Seen) -> None:
        split = split_name(self._topic.name, number)
        is_mine = split not in self._others and number % self._operator.parallelism == self._task.subtask
        if number not in self._partitions and is_mine:
            id = seen.topic.id if seen.topic is not None else None
            position = Position(split, seen.bounds[number].earliest, 0, fingerprint=id)
            self._consumer.incremental_assign([self._place(self._partitions.add(position))])

    def _find(self, number: int) -> Partition | None:
        """A partition that had come when the steps were taken that are taken again."""
        assert self._lookout is not None
        try:
            seen = self._lookout.look()
        except Unreachable:
            return None
        if number in seen.bounds:
            self._add(number, seen)
        return self._partitions.get(number)


