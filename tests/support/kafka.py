"""A real broker of Kafka, of one node, on loopback; and what tests do to its topics."""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.java import QUICK
from tests.support.maven import jars
from tests.support.objects.servers import free_port
from tests.support.waiting import wait_for

VERSION = "3.9.2"
"""Also the version of Kafka's client in Spark's connector."""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{proxy}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.check.interval.ms=200
log.initial.task.delay.ms=100
"""
SECONDS = 120
"""How long a busy machine may take until the broker does what was asked of it."""


class Broker:
    """A broker that runs.

    address: HOST:PORT.
    proxy: in front of another address of the broker. A client that begins there gets no address but the proxy's.
    """

    def __init__(
        self, address: str, proxy: FaultyProxy, begin: Callable[[], subprocess.Popen[bytes]], output: Path
    ) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.proxy = proxy
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._begin = begin
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        self._process = self._begin()
        wait_for(self._answers, self._process, lambda: self._output.read_text()[-2000:], seconds=SECONDS)

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            self.admin.list_topics(timeout=1)
            return True
        return False

    def kill(self) -> None:
        """By SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It hangs in the block, as a machine does that is cut off."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def make(self, topic: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import NewTopic

        self._done(self.admin.create_topics([NewTopic(topic, partitions, 1)]))
        wait_for(lambda: topic in self.admin.list_topics(timeout=SECONDS).topics)

    def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        set_ = AlterConfigOpType.SET
        entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._done(self.admin.incremental_alter_configs([resource]))

    def remove(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))
        wait_for(lambda: topic not in self.admin.list_topics(timeout=SECONDS).topics)

    def widen(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._done(self.admin.create_partitions([NewPartitions(topic, partitions)]))
        # Until a producer sees it, too: what it sends to a partition that it does not know is lost.
        wait_for(lambda: len(self.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == partitions)

    def send(self, topic: str, values: Mapping[int, range]) -> None:
        """Numbers as text, by partition."""
        from confluent_kafka import Producer

        producer, errors = Producer({"bootstrap.servers": self.address, "log_level": 0}), []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for partition, numbers in values.items():
            for number in numbers:
                producer.produce(topic, str(number).encode(), partition=partition, on_delivery=delivered)
        assert producer.flush(SECONDS) == 0
        assert not errors, errors[0]

    def drop(self, topic: str, before: Mapping[int, int]) -> None:
        """What retention does, exactly there: the oldest records go, by partition those before an offset."""
        from confluent_kafka import TopicPartition

        self._done(self.admin.delete_records([TopicPartition(topic, p, offset) for p, offset in before.items()]))

    def expire(self, topic: str) -> None:
        """Retention itself takes all that there is."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        short = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[short])
        self._done(self.admin.incremental_alter_configs([resource]))
        from abscli.stores.kafka import ask

        wait_for(lambda: all(one.earliest == one.end for one in ask(self.address, [topic], {})[topic].values()))

    def produce(
        self, topic: str, records: Iterable[tuple[int, str | None, str | None]], *, commit: bool | None = None
    ) -> None:
        """Partition, key and value of each. commit: in one transaction, which is committed, or given up."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.address, "log_level": 0, "enable.idempotence": True}
        if commit is not None:
            settings["transactional.id"] = "tests"
        producer = Producer(settings)
        if commit is not None:
            producer.init_transactions()
            producer.begin_transaction()
        errors: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for partition, key, value in records:
            producer.produce(topic, value, key=key, partition=partition, on_delivery=delivered)
        assert producer.flush(SECONDS) == 0
        assert not errors, errors[0]
        if commit is True:
            producer.commit_transaction()
        elif commit is False:
            producer.abort_transaction()

    def consumed(self, topic: str) -> list[Consumed]:
        """All records that a reader of committed transactions gets."""
        return consumed(self.address, topic)

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=SECONDS)


Consumed = tuple[int, str | None, str | None]
"""Partition, key and value."""


def consumed(address: str, topic: str) -> list[Consumed]:
    """Partition, key and value of all records that a reader of committed transactions gets, by partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    left = set(admin.list_topics(timeout=SECONDS).topics[topic].partitions)
    consumer = Consumer({  # one that has waited for its partitions may wait for another second, for a connection
        "bootstrap.servers": address, "group.id": "tests", "enable.partition.eof": True, "log_level": 0,
        "isolation.level": "read_committed", "fetch.wait.max.ms": 10, "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in left])
    records, deadline = [], time.monotonic() + SECONDS
    while left:
        assert time.monotonic() < deadline, f"partitions {left} have not been read to their end"
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            key, value = (None if data is None else data.decode() for data in (message.key(), message.value()))
            records.append((message.partition(), key, value))
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
    consumer.close()
    return sorted(records, key=lambda record: record[0])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker whose files lie in a folder, until the block ends; skips the test where it cannot be had."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if shutil.which("java") is None:
        pytest.skip("Java is not there")
    classpath = ":".join(map(str, jars(f"org.apache.kafka:kafka_2.13:{VERSION}")))
    with faulty_proxy(("127.0.0.1", free_port())) as proxy:
        yield from _running(folder, proxy, classpath)


def _running(folder: Path, proxy: FaultyProxy, classpath: str) -> Iterator[Broker]:
    port, controller = free_port(), free_port()
    config = folder / "server.properties"
    ports = {"port": port, "controller": controller, "proxy": proxy.port, "behind": proxy.server[1]}
    config.write_text(PROPERTIES.format(folder=folder, **ports))
    java = ["java", *QUICK, "-Xmx256m", "-cp", classpath]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    storage = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(config)]
    done = subprocess.run(storage, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    output = folder / "out"

    def begin() -> subprocess.Popen[bytes]:
        with output.open("ab") as out:
            return subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=out, stderr=out, cwd=folder)

    broker = Broker(f"127.0.0.1:{port}", proxy, begin, output)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
