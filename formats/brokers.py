"""Brokers of Kafka, asked for what they have of topics. No record is ever read here, and nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from formats.errors import Damaged, NotFound, Unreachable
from formats.kafka import Bounds, Topics
from formats.packages import missing_package

SECONDS: Final = 15.0
"""How long a broker may take to answer."""


_ALLOWED: Final = frozenset({
    "broker.address.family", "broker.address.ttl", "check.crcs", "client.dns.lookup", "client.id", "client.rack",
    "compression.codec", "compression.level", "compression.type", "connections.max.idle.ms",
    "enable.ssl.certificate.verification", "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.message.max.bytes",
    "fetch.min.bytes", "fetch.wait.max.ms", "group.id", "heartbeat.interval.ms", "https.ca.location", "linger.ms",
    "max.partition.fetch.bytes", "message.max.bytes", "metadata.max.age.ms", "partitioner", "receive.message.max.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.max.ms",
    "retry.backoff.ms", "security.protocol", "session.timeout.ms", "transaction.timeout.ms",
})  # fmt: skip
_ALLOWED_GROUPS: Final = ("batch.", "queued.", "queue.", "sasl.", "socket.", "ssl.", "topic.metadata.")
"""What names of further allowed settings begin with."""
_REFUSED: Final = frozenset({"sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.engine.callback.data",
                             "ssl.providers"})  # fmt: skip
"""Settings of an allowed group that name a command to run or a library to load."""


class BadSetting(Exception):
    """A setting of the client does not hold, or a line of their file is none."""


class Described(NamedTuple):
    """A topic. id: by which it is told from another one that is made under its name later; None of brokers that give
    none."""

    id: str | None
    partitions: frozenset[int]


class Seen(NamedTuple):
    """A topic at some moment. id: see `Described`. ends: by partition, the offset after its newest record."""

    id: str | None
    ends: Mapping[int, int]


def _into(refused: list[str]) -> Callable[[Any], None]:
    """Return a callback that appends errors to a list, except that all brokers are down: that comes after the reason.

    It must not refer to the `Brokers` that own the client: the threads and sockets of the client would stay until the
    next run of the garbage collector.
    """
    from confluent_kafka import KafkaError

    def append(error: Any) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not refused:
            refused.append(error.str())

    return append


class Brokers:
    """Those that are named, HOST:PORT with commas between. config: further settings of librdkafka, such as
    `sasl.username`. Raises MissingPackage, BadSetting."""

    def __init__(self, brokers: str, config: Mapping[str, str]) -> None:
        try:
            from confluent_kafka import KafkaException
        except ImportError:
            raise missing_package("confluent_kafka") from None
        self._brokers = brokers
        self._refused: list[str] = []
        check_settings(config)
        self._settings: dict[str, Any] = {
            **config, "bootstrap.servers": brokers, "error_cb": _into(self._refused), "log_level": 0,
        }  # fmt: skip
        try:
            self._admin = self._client()
        except KafkaException as error:
            raise BadSetting(error.args[0].str()) from None

    def _client(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._settings)

    def topics(self, names: Collection[str], *, committed: bool = False, seconds: float | None = None) -> Topics:
        """The oldest record and the end of every partition of these topics; a topic that is not there has none.

        committed: the end of what a reader gets that waits for transactions to be committed. Unreachable if there is no
        answer in time.
        """
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        seconds = SECONDS if seconds is None else seconds
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._refused.clear()
        try:
            # The list of all: to ask for one topic by name can make it, where brokers are set so.
            there = self._admin.list_topics(timeout=seconds).topics
            splits = [
                TopicPartition(name, number) for name in names if name in there for number in there[name].partitions
            ]
            ends = [
                {split: self._offset(split, future.result()) for split, future in asked.items()}
                for asked in (
                    self._admin.list_offsets(
                        dict.fromkeys(splits, spec), isolation_level=level, request_timeout=seconds
                    )
                    if splits else {}
                    for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
                )
            ]  # fmt: skip
        except KafkaException as error:
            raise self._unreachable(error) from None
        bounds: dict[str, dict[int, Bounds]] = {}
        for split, earliest in ends[0].items():
            bounds.setdefault(split.topic, {})[split.partition] = Bounds(earliest, ends[1][split])
        return bounds

    def describe(self, topic: str, *, seconds: float | None = None) -> Described | None:
        """A topic, by its name, which does not make it; None where it is not there. Unreachable as `topics`."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        seconds = SECONDS if seconds is None else seconds
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=seconds)
        self._refused.clear()
        try:
            there = asked[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._unreachable(error) from None
        words = there.topic_id.get_most_significant_bits(), there.topic_id.get_least_significant_bits()
        id = "".join(f"{word % 2**64:016x}" for word in words) if any(words) else None
        return Described(id, frozenset(partition.id for partition in there.partitions))

    def look(self, topic: str, *, seconds: float | None = None) -> Seen | None:
        """Return the id and the ends of a topic, open transactions included; None if it is missing.

        Raises Unreachable, as `topics`.
        """
        described = self.describe(topic, seconds=seconds)
        if described is None:
            return None
        return Seen(described.id, self.ends(topic, described.partitions, seconds=seconds))

    def ends(self, topic: str, partitions: Collection[int], *, seconds: float | None = None) -> dict[int, int]:
        """Return the offset after the newest record of partitions, open transactions included.

        Raises Unreachable, as `topics`, also if one of the partitions has no leader that answers.
        """
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not partitions:
            return {}
        asked = self._admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},
            request_timeout=SECONDS if seconds is None else seconds,
        )
        try:
            return {split.partition: self._offset(split, future.result()) for split, future in asked.items()}
        except KafkaException as error:
            raise self._unreachable(error) from None

    def largest_message(self, topic: str, *, seconds: float | None = None) -> int | None:
        """Return `max.message.bytes` of a topic, in bytes; None if the client may not ask. Unreachable as `topics`."""
        value = self._setting(topic, "max.message.bytes", seconds)
        return int(value) if value is not None else None

    def cleanup_policy(self, topic: str, *, seconds: float | None = None) -> str | None:
        """Return `cleanup.policy` of a topic; None if the client may not ask. Unreachable as `topics`."""
        return self._setting(topic, "cleanup.policy", seconds)

    def _setting(self, topic: str, name: str, seconds: float | None) -> str | None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=SECONDS if seconds is None else seconds)
        self._refused.clear()
        try:
            entry = asked[resource].result().get(name)
        except KafkaException as error:
            refusals = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)
            if error.args[0].code() in refusals:
                return None
            raise self._unreachable(error) from None
        return entry.value if entry is not None else None

    def make(
        self, topic: str, partitions: int, config: Mapping[str, str], *, seconds: float | None = None
    ) -> None:
        """A topic, replicated as the brokers do where nothing else is said; it may be there by now. Unreachable where
        they do not answer, or refuse."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        seconds = SECONDS if seconds is None else seconds
        self._refused.clear()
        asked = self._admin.create_topics(
            [NewTopic(topic, partitions, config=dict(config))], request_timeout=seconds, operation_timeout=seconds
        )
        try:
            asked[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._unreachable(error) from None

    def _offset(self, split: Any, found: Any) -> int:
        """Return an offset that was asked for. Raises Unreachable if the partition has no leader.

        While a new leader is elected, the client returns a negative offset and no error (librdkafka: OFFSET_INVALID).
        """
        if found.offset < 0:
            raise Unreachable(
                f"partition {split.partition} of topic {split.topic} has no leader", path=self._brokers,
                hint="start the brokers that have its replicas",
            )  # fmt: skip
        return int(found.offset)

    @property
    def newest_error(self) -> str | None:
        """Return what the client reported last of its connections since the newest question; None for nothing."""
        self._admin.poll(0)
        return self._refused[-1] if self._refused else None

    def _unreachable(self, error: Any) -> Unreachable:
        why = self.newest_error or error.args[0].str()
        # The client keeps the broker that it knows as the controller, and waits for it also after that broker was lost.
        self._admin = self._client()
        hint = "check that it is the HOST:PORT of a running broker, and that the settings contain its security settings"
        return Unreachable(f"no answer from the broker: {why}", path=self._brokers, hint=hint)


def settings(config: str | os.PathLike[str]) -> dict[str, str]:
    """Settings from a file, `name=value` a line, `#` before a remark; NotFound, Damaged, BadSetting."""
    path = os.fspath(config)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NotFound(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise Damaged("is not UTF-8 text", path=path) from None
    read = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadSetting(f"line {number} of {path} is not name=value")
        read[name.strip()] = value.strip()
    check_settings(read)
    return read


def check_settings(names: Collection[str]) -> None:
    """Check that settings of the client are about how brokers are reached, and about sizes and times.

    librdkafka has others that load a library into the process (`plugin.library.paths`), run a command, or name other
    brokers than the user did. Raises BadSetting for the first of them.
    """
    for name in names:
        is_allowed = name in _ALLOWED or name.startswith(_ALLOWED_GROUPS)
        if name in _REFUSED or not is_allowed:
            raise BadSetting(f"{name!r} is not a setting that abs passes on: it passes on TLS, SASL, sizes and times")
