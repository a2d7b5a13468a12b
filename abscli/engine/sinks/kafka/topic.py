"""A topic of Kafka: after each manifest one transaction writes the rows that it names, and a mark of the epoch in
another topic. Whoever goes on reads the marks first, and writes what has none.

All drivers of a job's sink have one producer id. Who takes the sink takes the id, and claims it by a mark: a driver
that was stopped meanwhile is shut out by the broker, and where it takes the id back it finds that the claim is not its
own, and stops. So it is enough to read the marks when the id was taken: nobody else can write any.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator
from typing import IO, Any

import msgspec
import pyarrow as pa

from abscli.engine.brokers import ONCE, brokers_of, settings_of, until_brokers_answer
from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.patience import SECONDS
from abscli.engine.sinks.kafka.markers import CONFIG, Marks, Message, SinkName, claimed, forgotten, left_behind, written
from abscli.engine.sinks.kafka.transactions import Lost, Transactions, read_to_end
from abscli.engine.sinks.staged.contract import Delivery, StagedInStore, Unmet, without_newest
from abscli.engine.sinks.staged.refusals import rows_refused, taken_over
from formats.brokers import Brokers, Seen
from formats.ids import EpochId
from formats.job.kafka import Topic
from formats.job.model import Operator

TRIES = 10
"""Times that a transaction is tried."""
CLIENT_LARGEST = 1_000_000
"""`message.max.bytes` of librdkafka where nothing else is set."""
BATCH_OVERHEAD = 100
"""Bytes that a batch of one message has besides its key and value, rounded up."""
LOOK_SECONDS = 10.0
"""For which brokers are waited for by who only looks."""


def how_changed(before: Seen, now: Seen | None) -> str | None:
    """Return how a topic lost records that were there before; None if it did not. Retention loses no end of a log."""
    if now is None or now.id != before.id:
        return "was deleted" if now is None else "was deleted and created again"
    for partition, end in sorted(before.ends.items()):
        if now.ends.get(partition, 0) < end:
            return f"lost the end of partition {partition}: it ended at {end}, and ends at {now.ends.get(partition, 0)}"
    return None


class KafkaTopic(StagedInStore):
    """A Kafka topic as a `Target`. job: the name of the job."""

    remembers = True

    def __init__(self, operator: Operator, directory: str, job: str) -> None:
        self._operator = operator
        self._directory = directory
        self._topic = Topic.of(operator).name
        self._key: str | None = (operator.connector or {}).get("key")
        self._name = SinkName(job, operator.id, self._topic)
        self._transactions = Transactions(operator, directory, f"abs-{job}-{operator.id}")
        self._marks: Marks | None = None
        self._writer = ""
        self._patience = LOOK_SECONDS
        self._largest: int | None = None
        self._brokers: Brokers | None = None
        self._seen: dict[str, Seen] = {}

    @property
    def operator(self) -> str:
        """Return the id of the sink."""
        return self._operator.id

    @property
    def title(self) -> str:
        """Return what messages call the topic."""
        return f"kafka:{self._topic}"

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock nothing: who takes the topic takes it from others, who are shut out from then on.

        Who holds the topic is about to write it, and waits longer for its brokers.
        """
        self._patience = SECONDS
        try:
            yield
        finally:
            self._transactions.close()

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List what the topics lack; see `Target.unmet`."""
        there = self._topics()
        lacking = []
        if self._topic not in there:
            lacking.append(Unmet(
                f"{Topic.of(self._operator).brokers} has no topic {self._topic!r}",
                "create the topic, with as many partitions as its consumers need",
            ))  # fmt: skip
        if self._name.marks in there and (policy := self._policy_of(self._name.marks)) not in (None, "compact"):
            lacking.append(Unmet(
                f"the topic {self._name.marks} has cleanup.policy={policy}: commit markers expire there, and rows "
                "would be written again",
                f"kafka-configs.sh --bootstrap-server {Topic.of(self._operator).brokers} --alter --topic "
                f"{self._name.marks} --add-config cleanup.policy=compact",
            ))  # fmt: skip
        return lacking

    def _policy_of(self, topic: str) -> str | None:
        brokers = brokers_of(self._operator, self._directory)
        return until_brokers_answer(
            self._operator, lambda: brokers.cleanup_policy(topic, seconds=ONCE), seconds=self._patience
        )

    def _topics(self) -> Collection[str]:
        """Which are there of those that it writes."""
        brokers = brokers_of(self._operator, self._directory)
        topics = (self._topic, self._name.marks)
        return until_brokers_answer(
            self._operator,
            lambda: [topic for topic in topics if brokers.describe(topic, seconds=ONCE) is not None],
            seconds=self._patience,
        )

    def try_rows(self, rows: IO[bytes]) -> None:
        """Check the key column, and the largest message against the limits in bytes; see `Target.try_rows`."""
        if self._largest is None:
            self._largest = self._find_largest()
        rows.seek(0)
        longest = max(rows, key=len)  # a part has at least one row
        size = len(longest.rstrip(b"\n")) + len(self._key_of(longest) or b"")
        if size > self._largest:
            raise rows_refused(
                self.operator, self.title,
                f"a message has {size} bytes, and {self._largest} are allowed (max.message.bytes of the topic, "
                "message.max.bytes of the client)",
            )  # fmt: skip

    def _find_largest(self) -> int:
        settings = settings_of(self._operator, self._directory)
        client = int(settings.get("message.max.bytes", CLIENT_LARGEST))
        if settings.keys() & {"compression.type", "compression.codec"}:
            return client  # what the topic allows is compared with the compressed size
        brokers = brokers_of(self._operator, self._directory)
        allowed = until_brokers_answer(
            self._operator, lambda: brokers.largest_message(self._topic, seconds=ONCE), seconds=self._patience
        )
        return client if allowed is None else min(client, allowed - BATCH_OVERHEAD)

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""
        if self._marks is None:
            return list(self._read(self._patience).epochs) if self._name.marks in self._topics() else []
        return list(self._marks.epochs)

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""
        marks = self._marks
        if marks is None:
            marks = self._read(self._patience) if self._name.marks in self._topics() else Marks(self._name)
        return any(
            one.attempt_id == epoch.attempt_id and one.number >= epoch.number for one in (*marks.epochs, *marks.left)
        )

    def _read(self, seconds: float | None = None) -> Marks:
        marks = Marks(self._name)
        read_to_end(self._operator, self._directory, self._name.marks, marks.take, seconds)
        return marks

    def identity(self) -> str | None:
        """Return the topic's id (KIP-516); None for brokers before 2.8."""
        seen = self._look(self._topic)
        return seen.id if seen is not None else None

    def undone(self, identity: str | None) -> str | None:
        """Return that the topic was deleted and created again; None if it was not."""
        now = self.identity() if identity is not None else None
        if identity is None or now == identity:
            return None
        return f"{self.title} was deleted and created again: its id was {identity}, and is {now} now"

    def _look(self, topic: str) -> Seen | None:
        self._brokers = self._brokers or brokers_of(self._operator, self._directory)
        brokers = self._brokers
        return until_brokers_answer(self._operator, lambda: brokers.look(topic, seconds=ONCE), seconds=self._patience)

    def _check_topics(self) -> None:
        """Raise EngineStopped if the topic, or that of the markers, lost records since the last delivery."""
        for topic, before in self._seen.items():
            if (problem := how_changed(before, self._look(topic))) is not None:
                raise EngineStopped(
                    f"sink {self.operator}: topic {topic} {problem}, while the job ran: committed records are "
                    "lost",
                    hint="if a broker was replaced by an older copy, restore the newer copy; `abs run --resume` then "
                    "compares the commit markers of the topic with the store",
                )

    def _note_topics(self) -> None:
        seen = {topic: self._look(topic) for topic in (self._topic, self._name.marks)}
        self._seen = {topic: one for topic, one in seen.items() if one is not None}

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the topic this attempt's; see `Target.take`."""
        if self._name.marks not in self._topics():
            self._make_marks()
        writer = f"{attempt_id} {secrets.token_hex(8)}"
        for _ in range(TRIES):
            marks = self._begin()
            gone = without_newest([epoch for epoch in (*marks.epochs, *marks.left) if epoch.number < oldest])
            behind = [epoch for epoch in marks.epochs if epoch in left and epoch not in gone]
            marked = [*forgotten(self._name, gone), *left_behind(self._name, behind)]
            messages = [claimed(self._name, writer), *marked]
            try:
                self._transactions.write((self._name.marks, message) for message in messages)
            except Lost:
                continue
            for key, value in marked:
                marks.take(key, value)
            self._marks, self._writer = marks, writer
            return
        raise self._crowded()

    def _begin(self) -> Marks:
        """Take the producer's id, and read what was committed under it."""
        self._transactions.begin()
        return self._read()

    def _make_marks(self) -> None:
        brokers = brokers_of(self._operator, self._directory)

        def make() -> None:
            brokers.make(self._name.marks, 1, CONFIG)

        until_brokers_answer(self._operator, make)

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery; see `Target.publish`."""
        for _ in range(TRIES):
            if self._marks is None:
                marks = self._begin()
                if marks.writer != self._writer:
                    raise taken_over(self.operator, self.title)
                self._marks = marks
            if delivery.epoch in self._marks.epochs or delivery.epoch in self._marks.left:
                return
            self._check_topics()
            try:
                self._transactions.write(self._messages(delivery))
            except Lost:
                self._marks = None  # it was committed, or not; and somebody else may be the writer now
                continue
            self._marks.epochs[delivery.epoch] = None
            self._note_topics()
            return
        raise self._crowded()

    def _messages(self, delivery: Delivery) -> Iterator[tuple[str, Message]]:
        rows = 0
        for part in delivery.parts:
            with delivery.open(part) as file:
                for line in file:
                    yield self._topic, (self._key_of(line), line.rstrip(b"\n"))
            rows += part.file.rows
        yield self._name.marks, written(self._name, delivery.epoch, {"rows": rows})

    def _key_of(self, line: bytes) -> bytes | None:
        if self._key is None:
            return None
        row: dict[str, Any] = msgspec.json.decode(line)
        if self._key not in row:
            raise JobFailed(
                f"sink {self.operator}: its rows have no key column {self._key!r}; they have the columns "
                f"{', '.join(row)}",
                hint="set `key` of the sink to one of these columns",
            )
        value = row[self._key]
        if value is None:
            return None
        return value.encode() if isinstance(value, str) else msgspec.json.encode(value)

    def _crowded(self) -> EngineStopped:
        return EngineStopped(
            f"sink {self.operator}: no transaction could be committed to {self.title} in {TRIES} tries",
            hint="check whether another job with the same name writes to the topic; staged rows are kept; "
            "`abs run --resume` delivers them",
        )
