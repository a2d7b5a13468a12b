"""A real broker of Kafka, of one node, on loopback; and what tests do to its topics."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.java import QUICK
from tests.support.maven import jars

VERSION = "3.9.2"
"""Also the version of Kafka's client in Spark's connector."""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.retention.check.interval.ms=200
log.initial.task.delay.ms=100
"""
SECONDS = 120
"""How long a busy machine may take until the broker does what was asked of it."""


class Broker:
    """A broker that runs. address: HOST:PORT."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def make(self, topic: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import NewTopic

        self._done(self.admin.create_topics([NewTopic(topic, partitions, 1)]))

    def remove(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))
        _until(lambda: topic not in self.admin.list_topics(timeout=SECONDS).topics)

    def widen(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._done(self.admin.create_partitions([NewPartitions(topic, partitions)]))

    def send(self, topic: str, values: Mapping[int, range]) -> None:
        """Numbers as text, by partition."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for partition, numbers in values.items():
            for number in numbers:
                producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(SECONDS) == 0

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

        _until(lambda: all(one.earliest == one.end for one in ask(self.address, [topic], {})[topic].values()))

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=SECONDS)


def _until(holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "the broker did not do it in time"
        time.sleep(0.1)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker whose files lie in a folder, until the block ends; skips the test where it cannot be had."""
    pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not there (abscli[kafka])")
    if shutil.which("java") is None:
        pytest.skip("Java is not there")
    classpath = ":".join(map(str, jars(f"org.apache.kafka:kafka_2.13:{VERSION}")))
    port, controller = _free(), _free()
    config = folder / "server.properties"
    config.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder))
    java = ["java", *QUICK, "-Xmx256m", "-cp", classpath]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    done = subprocess.run(storage, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=out, stderr=out, cwd=folder)
    try:
        broker = Broker(f"127.0.0.1:{port}")
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(Exception):
                broker.admin.list_topics(timeout=1)
                break
            assert process.poll() is None, (folder / "out").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "out").read_text()[-2000:]
        yield broker
    finally:
        process.kill()
        process.wait()


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
