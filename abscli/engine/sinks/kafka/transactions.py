"""Transactions of one producer id, of which the newest holder alone can commit, and what was committed in them before.

A client cannot finish what another has begun: `init_transactions` aborts what is open, waits until what was committed
is to be seen, and shuts out whoever had the id before. So what is read behind it is all that there is, and stays so
until another one takes the id.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from abscli.engine.brokers import ONCE, brokers_of, settings_of, until_brokers_answer
from abscli.engine.errors import EngineStopped, JobFailed
from abscli.engine.patience import SECONDS, Deadline
from abscli.engine.sinks.kafka.markers import Message
from abscli.engine.waits import note_reason
from formats.errors import Unreachable
from formats.job.kafka import Topic
from formats.job.model import Operator

TRANSACTION_MS = 300_000
"""After which the broker gives up what its writer has left open."""


POLLED = 1000
"""Messages after which it is asked whether one was refused."""
CALL_SECONDS = 1.0
"""Seconds of one call that waits for brokers. The client reports connections that fail between two calls."""


class Lost(Exception):
    """The transaction has failed; whether it was committed is not known, or another one has the id."""


_silent = logging.getLogger("abs.kafka")
"""Takes what the client would print: the errors that this module raises say it."""
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Transactions:
    """Transactions of one producer. id: of the producer.

    Brokers that give no sign of life are waited for during `patience.SECONDS`, over all tries of a transaction.
    """

    def __init__(self, operator: Operator, directory: str, id: str) -> None:
        self._operator = operator
        self._directory = directory
        self._id = id
        self._producer: Any = None
        self._refused: Any = None
        self._reason = ""
        self._lost_sequence: Any = None
        self._deadline = Deadline()

    def begin(self) -> None:
        """Take the id from whoever has it. Raises EngineStopped if no broker answers."""
        from confluent_kafka import KafkaException, Producer

        self._producer = None
        producer = Producer({
            "partitioner": "murmur2_random",  # as Java's producers
            "transaction.timeout.ms": TRANSACTION_MS,
            "linger.ms": 20,
            "delivery.report.only.error": True,
            **settings_of(self._operator, self._directory),
            "bootstrap.servers": Topic.of(self._operator).brokers,
            "transactional.id": self._id,
            "log_level": 0,
            "logger": _silent,
            "error_cb": self._failed,
        })  # fmt: skip
        self._reason, self._lost_sequence = "", None
        self._deadline.begin()
        while True:
            try:
                producer.init_transactions(CALL_SECONDS)
            except KafkaException as error:
                producer.poll(0)
                if not error.args[0].retriable():
                    raise self._away(error.args[0].str()) from None
                if self._deadline.is_over(self._reason or error.args[0].str()):
                    raise self._unanswered() from None
            else:
                self._producer = producer
                self._deadline.end()
                return

    def write(self, messages: Iterable[tuple[str, Message]]) -> None:
        """All of them, with their topics, or none; Lost, JobFailed for one that the broker does not take."""
        from confluent_kafka import KafkaException

        if self._producer is None:
            raise Lost
        self._refused = None
        self._deadline.begin()
        try:
            self._producer.begin_transaction()
            for number, (topic, (key, value)) in enumerate(messages):
                self._produce(topic, key, value)
                if not number % POLLED:
                    self._producer.poll(0)
            self._commit()
            self._deadline.end()
        except KafkaException as error:
            self._note_lost_sequence(error.args[0])
            self._give_up()
            if self._lost_sequence is not None:
                raise self._lost_records(self._lost_sequence) from None
            if self._refused is not None:
                raise self._not_taken(self._refused) from None
            raise Lost(error.args[0].str()) from None
        except BaseException:
            self._give_up()
            raise

    def _produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        from confluent_kafka import KafkaError, KafkaException

        while True:
            try:
                self._producer.produce(topic, value, key=key, on_delivery=self._delivered)
            except BufferError:
                queued = len(self._producer)
                self._producer.poll(0.1)
                self._look_for_progress(queued)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    self._refused = error.args[0]
                raise
            else:
                return

    def _delivered(self, error: Any, message: object) -> None:
        from confluent_kafka import KafkaError

        refused = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD,
                   KafkaError.TOPIC_AUTHORIZATION_FAILED)  # fmt: skip
        if error is not None and error.code() in refused:
            self._refused = error
        if error is not None:
            self._note_lost_sequence(error)

    def _failed(self, error: Any) -> None:
        """Take an error that the client reports besides, such as a connection that is refused."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._reason:  # which comes after the reason
            self._reason = error.str()
        self._note_lost_sequence(error)

    def _note_lost_sequence(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._lost_sequence = error

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        while True:
            queued = len(self._producer)
            try:
                self._producer.commit_transaction(CALL_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self._producer.poll(0)
                self._look_for_progress(queued, error.args[0].str())
            else:
                return

    def _look_for_progress(self, queued: int, reason: str = "its queue of messages is full") -> None:
        """Raise EngineStopped if brokers have taken no message for too long. queued: messages and requests before."""
        if len(self._producer) < queued:
            self._deadline.renew()
            note_reason("")
        elif self._deadline.is_over(self._reason or reason):
            raise self._unanswered()

    def close(self) -> None:
        """Let go of the id; nothing is open."""
        if self._producer is not None:
            self._give_up()

    def _give_up(self) -> None:
        """The producer is done with: what it has left open is aborted by whoever takes the id next."""
        from confluent_kafka import KafkaException

        producer, self._producer = self._producer, None
        with contextlib.suppress(KafkaException):
            producer.abort_transaction(ONCE)
        producer.purge()

    def _away(self, reason: str) -> EngineStopped:
        return EngineStopped(
            f"sink {self._operator.id}: {Topic.of(self._operator).brokers} cannot start a transaction: {reason}",
            hint="start the broker again, or allow the job's user to write transactions; staged rows are kept",
        )

    def _unanswered(self) -> EngineStopped:
        topic = Topic.of(self._operator)
        return EngineStopped(
            f"sink {self._operator.id}: {topic.brokers} does not answer: no message to topic {topic.name!r} was "
            f"accepted for {SECONDS:.0f} s{f': {self._reason}' if self._reason else ''}",
            hint="start the broker again; staged rows are kept, and `abs run --resume` delivers them",
        )

    def _lost_records(self, error: Any) -> EngineStopped:
        return EngineStopped(
            f"sink {self._operator.id}: topic {Topic.of(self._operator).name!r} lost records that its broker had "
            f"acknowledged: {error.str()}",
            hint="if a broker was replaced by an older copy, restore the newer copy; `abs run --resume` then "
            "compares the commit markers of the topic with the store",
        )

    def _not_taken(self, error: Any) -> JobFailed:
        return JobFailed(
            f"sink {self._operator.id}: topic {Topic.of(self._operator).name!r} rejected the rows: {error.str()}",
            hint="change the settings of the topic or of the client (`config`); staged rows are written when the job "
            "resumes",
        )


def read_to_end(
    operator: Operator, directory: str, topic: str, take: Callable[[bytes | None, bytes | None], None],
    seconds: float | None = None,
) -> None:  # fmt: skip
    """Take every committed message of a topic of one partition. Raises EngineStopped if no broker answers.

    seconds: for which brokers are waited for, if not `patience.SECONDS`.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    end = _committed_end(operator, directory, topic, seconds)
    consumer = Consumer({
        "group.id": f"abs-{operator.id}",
        **settings_of(operator, directory),
        "bootstrap.servers": Topic.of(operator).brokers,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # by which its end is known later
        "auto.offset.reset": "earliest",  # where the topic no longer begins at 0
        "log_level": 0,
    })  # fmt: skip
    try:
        # Not OFFSET_BEGINNING: librdkafka asks for its number before it knows the leader, and again after 500 ms.
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(0.2)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                take(message.key(), message.value())
                continue
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if is_end and message.offset() >= end:
                note_reason("")
                return
            reason = "no answer" if error is None else "the end of its records is not known" if is_end else error.str()
            note_reason(reason)
            if time.monotonic() > deadline:
                raise EngineStopped(
                    f"sink {operator.id}: {Topic.of(operator).brokers} does not return records of topic {topic!r}: "
                    f"{reason}",
                    hint="start the broker again, or allow the job's user to read the topic; staged rows are kept",
                )
    finally:
        consumer.close()


def _committed_end(operator: Operator, directory: str, topic: str, seconds: float | None) -> int:
    """Return the offset after the newest committed message of a topic of one partition.

    A consumer does not know it. A new leader learns only from its followers up to where its records are committed:
    until then it shows readers fewer records, and a consumer reports its end too early. Offsets that are asked for are
    not answered until then (KIP-207).
    """
    brokers = brokers_of(operator, directory)

    def ask() -> int:
        found = brokers.topics([topic], committed=True, seconds=ONCE).get(topic)
        if not found:
            raise Unreachable(f"the brokers do not know topic {topic}", path=Topic.of(operator).brokers)
        return found[0].end

    return until_brokers_answer(operator, ask, seconds=seconds)
