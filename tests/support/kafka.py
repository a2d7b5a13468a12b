"""Real Kafka brokers on loopback, one or a cluster of three, and operations of tests on their topics."""

from __future__ import annotations

import base64
import contextlib
import json
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
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{proxy}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT
log.dirs={folder}/logs
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=1
controller.quorum.election.timeout.ms=4000
controller.quorum.fetch.timeout.ms=8000
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
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it, and do not wait."""
        self._process = self._begin()

    def metadata_leader(self) -> tuple[int, int]:
        """Return the epoch and the node of the newest leader of the metadata that its controller has voted for."""
        state = json.loads((self._output.parent / "logs" / "__cluster_metadata-0" / "quorum-state").read_text())
        return state["leaderEpoch"], state["leaderId"]

    def wait(self, fact: Callable[[], object] | None = None) -> None:
        """Wait until it answers, or for another fact, while its process runs."""
        assert self._process is not None
        wait_for(fact or self._answers, self._process, lambda: self._output.read_text()[-2000:], seconds=SECONDS)

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            self.admin.list_topics(timeout=1)
            return True
        return False

    @property
    def is_running(self) -> bool:
        """Tell whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """By SIGKILL, if it was started."""
        if self._process is None:
            return
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

        self._done(self.admin.create_topics([NewTopic(topic, partitions)]))
        wait_for(lambda: topic in self.admin.list_topics(timeout=SECONDS).topics)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, as this one knows it."""
        leader: int = self.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[partition].leader
        return leader

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


class Cluster:
    """Three brokers; each of them is also a controller. Topics have a copy on each, and two copies must be in sync.

    All transactional ids have one coordinator, the leader of the only partition of `__transaction_state`.
    """

    def __init__(self, nodes: Mapping[int, Broker]) -> None:
        self.nodes = nodes
        self.addresses = ",".join(node.address for node in nodes.values())

    def start(self) -> None:
        """Start all nodes that do not run, and wait until each has caught up with the others."""
        for node in self.nodes.values():
            if not node.is_running:
                node.launch()
        for node in self.nodes.values():
            node.wait(lambda node=node: self._is_in_sync(node))

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic that each node knows. A client may ask any node about a topic that another one has made."""
        wait_for(lambda: self._has_made(topic, partitions))
        # A record is acknowledged when all copies have it. Nobody reads one of an aborted transaction.
        self.any.produce(topic, [(partition, None, "") for partition in range(partitions)], commit=False)

    def _has_made(self, topic: str, partitions: int) -> bool:
        """Make a topic, unless it exists; False if the client has to try again, as it has just met further nodes."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            if topic not in self.any.admin.list_topics(timeout=SECONDS).topics:
                self.any.make(topic, partitions)
            return True
        return False

    @property
    def any(self) -> Broker:
        """Return a node that is running."""
        return next(node for node in self.nodes.values() if node.is_running)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition, as a node that is running knows it."""
        return self.any.leader(topic, partition)

    @property
    def coordinator(self) -> int:
        """Return the node that coordinates transactions."""
        return self.leader("__transaction_state")

    @property
    def controller(self) -> int:
        """Return the node that leads the controllers. Clients are not told: a broker names any broker."""
        _, node = max(node.metadata_leader() for node in self.nodes.values())
        return node

    def _is_in_sync(self, node: Broker) -> bool:
        """Tell whether a node knows all others, and that all copies of all topics are in sync.

        A new client asks the node itself. Nodes that ran while the controllers had no majority do not know yet which
        copies are in sync; a node that has started since does.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            found = AdminClient({"bootstrap.servers": node.address, "log_level": 0}).list_topics(timeout=1)
        except KafkaException:
            return False
        partitions = [one for topic in found.topics.values() for one in topic.partitions.values()]
        return len(found.brokers) == len(self.nodes) and all(len(one.isrs) == len(self.nodes) for one in partitions)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """Run a broker with its files in a folder until the block ends; skip the test if it is not available."""
    with _configured(folder, 1) as nodes:
        broker = nodes[1]
        broker.start()
        yield broker


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster as `running` does a broker."""
    with _configured(folder, 3) as nodes:
        cluster = Cluster(nodes)
        cluster.start()
        cluster.make("first", 1)  # by a transaction, so that there is a coordinator
        yield cluster


@contextlib.contextmanager
def _configured(folder: Path, number: int) -> Iterator[dict[int, Broker]]:
    """Make the configuration of so many nodes, by number from 1; kill those that run when the block ends."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if shutil.which("java") is None:
        pytest.skip("Java is not there")
    java = ["java", *QUICK, "-Xmx256m", "-cp", ":".join(map(str, jars(f"org.apache.kafka:kafka_2.13:{VERSION}")))]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    controllers = {node: free_port() for node in range(1, number + 1)}
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
    values = {"voters": voters, "copies": number, "in_sync": min(number, 2)}
    with contextlib.ExitStack() as stack:
        nodes: dict[int, Broker] = {}
        for node, controller in controllers.items():
            own = folder / str(node) if number > 1 else folder
            own.mkdir(exist_ok=True)
            proxy = stack.enter_context(faulty_proxy(("127.0.0.1", free_port())))
            broker = _formatted(own, java, cluster, proxy, {**values, "node": node, "controller": controller})
            nodes[node] = broker
            stack.callback(broker.kill)
        yield nodes


def _formatted(
    folder: Path, java: list[str], cluster: str, proxy: FaultyProxy, values: Mapping[str, object]
) -> Broker:
    """Return a broker with a formatted folder that does not run yet. cluster: its id; values: of its PROPERTIES."""
    port, config, output = free_port(), folder / "server.properties", folder / "out"
    ports = {"port": port, "proxy": proxy.port, "behind": proxy.server[1]}
    config.write_text(PROPERTIES.format(folder=folder, **ports, **values))
    storage = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(config)]
    done = subprocess.run(storage, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr

    def begin() -> subprocess.Popen[bytes]:
        with output.open("ab") as out:
            return subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=out, stderr=out, cwd=folder)

    return Broker(f"127.0.0.1:{port}", proxy, begin, output)
