"""A cluster of three Kafka nodes under a job: nodes are killed, frozen or away for a while, and each row arrives once.

Each test prints the messages of the job with their seconds since the fault: `pytest -rP` shows them.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from abscli.stores.kafka import ask
from tests.engine.recovering.test_following import newest_epoch, read_rows
from tests.support.jobs.small import output_rows
from tests.support.kafka import Cluster, consumed, running_cluster
from tests.support.starters import starts
from tests.support.timed_runs import Run, run, validate

pytestmark = [pytest.mark.soak, pytest.mark.minutes]

PARTITIONS = 3
RATE = 40
"""Rows per second."""
PATIENCE, REPORTED, SLACK = 60.0, 5.0, 30.0
"""Seconds for which a cluster is waited for; after which the job says so; and that a busy machine may take longer."""
AWAY = 20.0
"""Seconds for which nodes are away or frozen: more than twice `broker.session.timeout.ms`, after which the controller
moves the partitions of a node to others."""


@pytest.fixture(scope="module")
@starts("Kafka")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a cluster for the tests of this file."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Have all nodes run before a test and after it."""
    running.start()
    yield running
    running.start()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Make a topic with a copy of each partition on each node."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.make(name, PARTITIONS)
    return name


@dataclass
class SinkJob:
    """A job that writes numbered rows to a topic. seconds: for which it generates them."""

    folder: Path
    cluster: Cluster
    topic: str
    seconds: int

    def __post_init__(self) -> None:
        (self.folder / "job.yaml").write_text(f"""
version: 1
job: {self.topic}
parallelism: 2
operators:
  rows:
    source: {{type: generate, rows: {self.rows}, rate: {RATE}, columns: {{n: row}}}}
  out:
    from: rows
    sink: {{type: kafka, brokers: "{self.cluster.addresses}", topic: {self.topic}, key: n}}
""")

    @property
    def rows(self) -> int:
        """Return how many rows it writes."""
        return RATE * self.seconds

    @contextlib.contextmanager
    def run(self) -> Iterator[Run]:
        """Run it, and enter the block when a part of its rows is in the topic: then the fault comes."""
        before = self._written()
        with run(self.folder) as started:
            started.until(lambda: self._written() > before + RATE)
            started.fault = time.monotonic()
            yield started

    def _written(self) -> int:
        return sum(one.end for one in ask(self.cluster.addresses, [self.topic], {})[self.topic].values())

    def check(self) -> None:
        """Check that a reader of committed records gets each row once, and that the store is intact."""
        numbers = [json.loads(value or "")["n"] for _, _, value in consumed(self.cluster.addresses, self.topic)]
        assert sorted(numbers) == [*range(self.rows)]
        sys.stdout.write(f"{len(numbers)} rows of {self.rows}, each once\n")
        validate(self.folder)


def leader(cluster: Cluster, topic: str) -> list[int]:
    """Return a node that leads a partition of the topic, and if possible does not coordinate transactions."""
    leaders = {cluster.leader(topic, partition) for partition in range(PARTITIONS)}
    return sorted(leaders, key=lambda node: node == cluster.coordinator)[:1]


def coordinator(cluster: Cluster, topic: str) -> list[int]:
    """Return the node that coordinates transactions."""
    return [cluster.coordinator]


def controller(cluster: Cluster, topic: str) -> list[int]:
    """Return the node that leads the controllers."""
    return [cluster.controller]


def two(cluster: Cluster, topic: str) -> list[int]:
    """Return two nodes: the third cannot write without a second copy, and the controllers have no majority."""
    return [1, 2]


def kill(cluster: Cluster, nodes: list[int]) -> None:
    """Kill nodes by SIGKILL."""
    for node in nodes:
        cluster.nodes[node].kill()


ONE_NODE = pytest.mark.parametrize("nodes", [leader, coordinator, controller])
Nodes = Callable[[Cluster, str], list[int]]


# -- sink ------------------------------------------------------------------------------------------------------


@ONE_NODE
def test_a_sink_continues_without_a_killed_node(tmp_path: Path, cluster: Cluster, topic: str, nodes: Nodes) -> None:
    job = SinkJob(tmp_path, cluster, topic, 20)
    with job.run() as started:
        kill(cluster, nodes(cluster, topic))
        assert started.end() == 0
    job.check()


@ONE_NODE
def test_a_node_that_was_frozen_and_has_an_older_view_loses_no_row_of_a_sink(
    tmp_path: Path, cluster: Cluster, topic: str, nodes: Nodes
) -> None:
    job = SinkJob(tmp_path, cluster, topic, 40)
    with job.run() as started:
        (node,) = nodes(cluster, topic)
        with cluster.nodes[node].stopped():
            time.sleep(AWAY)
        assert started.end() == 0
    job.check()


def test_a_sink_waits_for_two_nodes_that_come_back(tmp_path: Path, cluster: Cluster, topic: str) -> None:
    job = SinkJob(tmp_path, cluster, topic, 20)
    with job.run() as started:
        kill(cluster, two(cluster, topic))
        assert started.until_said("sink out has waited .* 127.0.0.1:") < REPORTED + SLACK
        time.sleep(max(0.0, started.fault + AWAY - time.monotonic()))
        cluster.start()
        assert started.end() == 0
        assert started.seconds_of("sink out continues") is not None
    job.check()


def test_a_sink_ends_the_job_without_two_nodes_and_resumes(tmp_path: Path, cluster: Cluster, topic: str) -> None:
    job = SinkJob(tmp_path, cluster, topic, 20)
    with job.run() as started:
        kill(cluster, two(cluster, topic))
        assert started.end() == 6
        assert 0 < (started.seconds_of("sink out has waited .* 127.0.0.1:") or 0) < REPORTED + SLACK
        assert PATIENCE <= (started.seconds_of("does not answer") or 0) < PATIENCE + SLACK
    cluster.start()
    with run(tmp_path, "--resume") as resumed:
        assert resumed.end() == 0
    job.check()


# -- source ----------------------------------------------------------------------------------------------------


@dataclass
class SourceJob:
    """A job that follows a topic and writes its rows to files."""

    folder: Path
    cluster: Cluster
    topic: str
    sent: int = 0

    def __post_init__(self) -> None:
        (self.folder / "job.yaml").write_text(f"""
version: 1
job: {self.topic}
operators:
  rows:
    source:
      type: kafka
      brokers: "{self.cluster.addresses}"
      topic: {self.topic}
      schema: {{id: int}}
      follow: true
  out:
    from: rows
    sink: {{type: jsonl, path: out}}
""")

    def send(self) -> None:
        """Send some rows to each partition."""
        numbers = range(self.sent, self.sent + 60)
        self.cluster.any.produce(self.topic, [(n % PARTITIONS, None, json.dumps({"id": n})) for n in numbers])
        self.sent += len(numbers)

    def has_read(self) -> bool:
        """Tell whether the newest epoch has all rows that were sent."""
        return read_rows(self.folder) == self.sent

    @contextlib.contextmanager
    def run(self) -> Iterator[Run]:
        """Run it, and enter the block when it has read the first rows: then the fault comes."""
        self.send()
        with run(self.folder) as started:
            started.until(self.has_read)
            started.fault = time.monotonic()
            yield started

    def finish(self, started: Run) -> None:
        """Send more rows, stop the job when it has read them, and check that each row was written once."""
        self.send()
        started.until(self.has_read)
        started.process.send_signal(signal.SIGTERM)
        assert started.end() == 128 + signal.SIGTERM
        assert sorted(int(str(row["id"])) for row in output_rows(self.folder)) == [*range(self.sent)]
        sys.stdout.write(f"{self.sent} rows, each once\n")
        validate(self.folder)


@ONE_NODE
def test_a_source_continues_without_a_killed_node(tmp_path: Path, cluster: Cluster, topic: str, nodes: Nodes) -> None:
    job = SourceJob(tmp_path, cluster, topic)
    with job.run() as started:
        kill(cluster, nodes(cluster, topic))
        job.send()
        started.until(job.has_read)
        sys.stdout.write(f"{time.monotonic() - started.fault:6.1f} s  its rows are in an epoch\n")
        cluster.start()
        job.finish(started)


def test_a_source_waits_for_two_nodes_that_come_back(tmp_path: Path, cluster: Cluster, topic: str) -> None:
    job = SourceJob(tmp_path, cluster, topic)
    with job.run() as started:
        kill(cluster, two(cluster, topic))
        assert started.until_said("source rows has waited .* 127.0.0.1:") < REPORTED + SLACK
        time.sleep(max(0.0, started.fault + AWAY - time.monotonic()))
        cluster.start()
        started.until_said("source rows continues")
        job.finish(started)


def test_a_job_that_starts_without_two_nodes_of_its_source_ends_and_resumes_later(
    tmp_path: Path, cluster: Cluster, topic: str
) -> None:
    job = SourceJob(tmp_path, cluster, topic)
    with job.run() as started:
        kill(cluster, two(cluster, topic))
        started.until_said("source rows has waited .* 127.0.0.1:")
        epochs = newest_epoch(tmp_path)
        started.until(lambda: newest_epoch(tmp_path) > epochs + 1)
        started.process.send_signal(signal.SIGTERM)
        assert started.end() == 128 + signal.SIGTERM
    with run(tmp_path, "--resume") as refused:
        refused.fault = time.monotonic()
        assert refused.end() == 6
        assert PATIENCE <= (refused.seconds_of("does not answer") or 0) < PATIENCE + SLACK
    cluster.start()
    with run(tmp_path, "--resume") as resumed:
        job.finish(resumed)
