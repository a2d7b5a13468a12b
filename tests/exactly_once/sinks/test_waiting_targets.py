"""Targets that stall, reset, answer with errors or lose replies: how long a sink waits, what it reports, and that each
row is there once. PostgreSQL and buckets have tests of their own."""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine import brokers, patience
from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.iceberg import table as iceberg_table
from abscli.engine.sinks.iceberg.table import IcebergTable
from abscli.engine.sinks.kafka import transactions
from abscli.engine.sinks.kafka.transactions import Transactions
from abscli.engine.sinks.staged.delta import DeltaSink, is_of_storage, shown
from abscli.engine.telemetry import wait_reports
from abscli.engine.telemetry.news import News, OperatorContinues, OperatorWaits
from formats.job.model import Kind, Operator
from formats.storage import MemoryStorage
from tests.commands.test_jobs import ABS
from tests.exactly_once.sinks.test_kafka import delivered as lines_delivered
from tests.exactly_once.sinks.test_kafka import numbers, target
from tests.exactly_once.sinks.test_kafka import topic as topic  # a fixture
from tests.support.faulty_proxy import Fate, FaultyProxy, Rule, faulty_proxy
from tests.support.iceberg_rest import RestCatalog, rest_catalog
from tests.support.jobs.deliveries import ATTEMPT, delivered
from tests.support.jobs.lines import Gate, Lines, write_lines
from tests.support.kafka import Broker
from tests.support.objects.proxy import Fault, Proxy, proxy_to
from tests.support.objects.servers import ObjectServer
from tests.support.postgres import Postgres

pytestmark = pytest.mark.integration

WAITS = 2.0
"""Seconds that a target is waited for in these tests, in place of sixty."""
SLACK = 20.0
"""Seconds that a busy machine may take longer."""


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make sinks wait for two seconds in place of sixty, and for a second or less for one answer.

    To be called just before the fault: the first steps of a fresh server may take longer.
    """

    def patch() -> None:
        for module, name, seconds in (
            (patience, "SECONDS", WAITS), (transactions, "SECONDS", WAITS), (transactions, "CALL_SECONDS", 0.5),
            (brokers, "ONCE", 0.5), (iceberg_table, "ANSWER_SECONDS", 1.0),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, seconds)

    return patch


def stops(call: Any, match: str) -> None:
    """A call ends with an error that can be resumed from, after the time for which it waits."""
    began = time.monotonic()
    with pytest.raises(EngineStopped, match=match):
        call()
    assert WAITS <= time.monotonic() - began < WAITS + SLACK


# -- Kafka -----------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(broker: Broker) -> Iterator[FaultyProxy]:
    yield broker.proxy
    broker.proxy.resume()
    broker.proxy.reset()


def at_commit(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Have a fault when the next transaction is about to be committed."""
    commit = Transactions._commit

    def faulty(one: Transactions) -> None:
        monkeypatch.setattr(Transactions, "_commit", commit)
        assert one._producer.flush(SLACK) == 0
        fault()
        commit(one)

    monkeypatch.setattr(Transactions, "_commit", faulty)


def test_brokers_that_do_not_answer_in_a_commit_are_waited_for_once(
    broker: Broker, topic: str, proxy: FaultyProxy, hurry: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, sink = MemoryStorage(), target(broker, topic, brokers=proxy.address)
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        at_commit(monkeypatch, proxy.stall)
        hurry()
        stops(
            lambda: sink.publish(lines_delivered(storage, 1, [{"n": 1}])),
            rf"sink out: {proxy.address} does not answer: no message to topic '{topic}' was accepted for 2 s",
        )
    proxy.resume()
    monkeypatch.setattr(patience, "SECONDS", 60.0)
    again = target(broker, topic, brokers=proxy.address)
    with again.hold():
        again.take(ATTEMPT, [], 0)
        again.publish(lines_delivered(MemoryStorage(), 1, [{"n": 1}]))
    assert numbers(broker, topic) == [1]


def test_brokers_that_stop_answering_while_rows_are_sent_are_waited_for_once(
    broker: Broker, topic: str, proxy: FaultyProxy, hurry: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's queue is full then."""
    sink, messages = target(broker, topic, brokers=proxy.address), 0
    produce = Transactions._produce

    def counted(*arguments: Any) -> None:
        nonlocal messages
        messages += 1
        if messages == 100:
            proxy.stall()
        produce(*arguments)

    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        monkeypatch.setattr(Transactions, "_produce", counted)
        rows = lines_delivered(MemoryStorage(), 1, [{"n": n} for n in range(150_000)])
        hurry()
        stops(lambda: sink.publish(rows), "does not answer: no message to topic")
    assert messages < 150_000


@pytest.mark.parametrize("fate", [Fate.RESET, Fate.REFUSE, Fate.LATE])
def test_a_commit_whose_reply_is_lost_or_late_is_in_the_topic_once(
    broker: Broker, topic: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, fate: Fate
) -> None:
    storage, sink = MemoryStorage(), target(broker, topic, brokers=proxy.address)
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        at_commit(monkeypatch, lambda: proxy.add(Rule(b"abs-job-out", fate, seconds=1.0)))
        for epoch in (1, 2):
            sink.publish(lines_delivered(storage, epoch, [{"n": epoch}]))
    assert proxy.struck
    assert numbers(broker, topic) == [1, 2]


def test_a_sequence_that_a_broker_does_not_know_is_reported_as_lost_records(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client numbers its records, and the broker refuses one if it has lost those before it."""
    from confluent_kafka import KafkaError, KafkaException

    lost = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order sequence number", fatal=True)

    def commit(one: Transactions) -> None:
        one._failed(lost)
        raise KafkaException(KafkaError(KafkaError._STATE))

    sink = target(broker, topic)
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        monkeypatch.setattr(Transactions, "_commit", commit)
        with pytest.raises(EngineStopped, match=f"topic '{topic}' lost records that its broker had acknowledged"):
            sink.publish(lines_delivered(MemoryStorage(), 1, [{"n": 1}]))


def test_a_job_reports_the_brokers_that_its_sink_waits_for_and_goes_on(
    tmp_path: Path, gate: Gate, broker: Broker, topic: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from abscli.engine.job import JobOptions, run_job

    monkeypatch.setattr(wait_reports, "FIRST_SECONDS", 0.7)
    monkeypatch.setenv("LINES_BROKER", proxy.address)
    write_lines(tmp_path, 5)
    lines, told = Lines(tmp_path, gate, topic, "kafka"), list[News]()

    def progress(progress: Any) -> None:
        gate.epochs = progress.epochs
        if progress.epochs == 3 and not told:
            proxy.stall()

    def news(one: News) -> None:
        if isinstance(one, OperatorWaits | OperatorContinues):
            told.append(one)
            proxy.resume()

    gate.epochs, gate.read = 0, {}
    options = JobOptions(str(tmp_path), "job.yaml", engine="inline", interval=0.005, workers=2, keep=None)
    run_job(lines.graph, str(tmp_path / "a"), options, progress, on_news=news)
    waits, over = told[0], told[-1]
    assert isinstance(waits, OperatorWaits)
    assert (waits.wait.operator, waits.wait.target) == ("out", f"kafka:{topic}")
    assert isinstance(over, OperatorContinues)
    monkeypatch.setenv("LINES_BROKER", broker.address)
    assert lines.wrong() == {}


# -- Delta -----------------------------------------------------------------------------------------------------


class Bucket:
    """A Delta table in a bucket, through a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.path = f"s3://waiting/{uuid.uuid4().hex}"

    def numbers(self) -> list[int]:
        from deltalake import DeltaTable

        return sorted(DeltaTable(self.path).to_pyarrow_table()["n"].to_pylist())

    def fail(self, methods: set[str], fault: Fault, every: int = 1) -> None:
        """Lose replies from now on; 0: no more."""
        self.proxy.loses_of, self.proxy.fault, self.proxy.lose_every = frozenset(methods), fault, every


@pytest.fixture
def bucket(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    s3.make("waiting")
    with proxy_to(s3.port) as proxy:
        for name, value in s3.through(proxy.port).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        yield Bucket(proxy)


ALL = {"GET", "PUT", "HEAD", "POST", "DELETE"}


def test_a_bucket_that_answers_with_errors_is_waited_for_and_refuses_no_rows(
    bucket: Bucket, hurry: Callable[[], None]
) -> None:
    sink = DeltaSink("out", bucket.path, "job")
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        sink.publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
        bucket.fail(ALL, Fault.ERROR)
        hurry()
        stops(
            lambda: sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]}))),
            r"sink out: .* cannot be (read|written): .*Generic S3 error.*500",
        )
        stops(lambda: sink.markers(), "cannot be read")
        bucket.fail(ALL, Fault.ERROR, 0)
        sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]})))
    assert bucket.numbers() == [1, 2]


def lose_half(proxy: Proxy, fault: Fault) -> None:
    proxy.loses_of, proxy.fault, proxy.lose_every = frozenset({"PUT"}), fault, 2


def hang(proxy: Proxy) -> None:
    proxy.hangs, proxy.hangs_at, proxy.has_done = 2, re.compile("PUT"), True


def answer_late(proxy: Proxy) -> None:
    proxy.late_share, proxy.late_seconds = 0.5, 0.5


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(lambda proxy: lose_half(proxy, Fault.ERROR), id="500"),
        pytest.param(lambda proxy: lose_half(proxy, Fault.CLOSED), id="reset", marks=pytest.mark.soak),
        pytest.param(hang, id="no reply", marks=pytest.mark.soak),
        pytest.param(answer_late, id="late", marks=pytest.mark.soak),
    ],
)
def test_replies_of_a_bucket_that_are_lost_or_late_write_no_row_twice(
    tmp_path: Path, bucket: Bucket, fail: Callable[[Proxy], None]
) -> None:
    """In a process of its own: the client holds Python's lock while it waits for some answers, also of this proxy."""
    (tmp_path / "job.yaml").write_text(
        "version: 1\njob: j\noperators:\n  rows:\n"
        "    source: {type: generate, rows: 150, rate: 100, columns: {n: row}}\n"
        f"  out:\n    from: rows\n    sink: {{type: delta, path: '{bucket.path}'}}\n"
    )
    fail(bucket.proxy)
    command = [*ABS, "run", str(tmp_path / "job.yaml"), "--store", str(tmp_path / "s"), "--engine", "inline"]
    done = subprocess.run([*command, "--interval", "200ms"], capture_output=True, text=True, timeout=120)
    bucket.fail(set(), Fault.ERROR, 0)
    assert done.returncode == 0, done.stderr
    assert bucket.proxy.requests["PUT"] > 2
    assert bucket.proxy.lost > 1 or bucket.proxy.late_share or fail is hang
    assert not bucket.proxy.hangs
    assert bucket.numbers() == [*range(150)]


def test_errors_of_the_storage_are_told_from_those_of_the_rows() -> None:
    full = Exception("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)")
    assert is_of_storage(full)
    assert is_of_storage(OSError("Kernel error"))
    assert not is_of_storage(Exception("Cast error: Cannot cast string 'x' to value of Int64 type"))
    arrows = OSError("Kernel error -> Generic S3 error\n\x1b[31m↳\x1b[0m status code 503\n <html>busy</html>")
    assert shown(arrows) == "Kernel error -> Generic S3 error status code 503"


# -- Iceberg ---------------------------------------------------------------------------------------------------


UNCLOSED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A connection that does not answer is left to its thread, and nobody closes it."""


class Catalog:
    """Iceberg tables of a catalog that is reached through a proxy. commit: bytes of a request that commits."""

    def __init__(self, proxy: FaultyProxy, folder: Path, uri: str, commit: bytes) -> None:
        self.proxy = proxy
        self.commit = commit
        self._folder = folder
        self._name = f"n{uuid.uuid4().hex}"
        self._place = {"uri": uri, "warehouse": f"file://{folder}/lake"}

    @property
    def options(self) -> dict[str, str]:
        """Return the options of a sink."""
        return {"type": "iceberg", "table": f"{self._name}.out", **self._place}

    def sink(self) -> IcebergTable:
        options = self.options
        return IcebergTable(Operator("out", Kind.SINK, 2, 8, connector=options), str(self._folder), "job")

    def numbers(self) -> list[int]:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **self._place)
        return sorted(catalog.load_table(f"{self._name}.out").scan().to_arrow()["n"].to_pylist())


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
    with rest_catalog(tmp_path / "rest") as server:
        yield server


@pytest.fixture
def rest_tables(rest: RestCatalog, tmp_path: Path) -> Iterator[Catalog]:
    """Tables of a REST catalog."""
    with faulty_proxy(("127.0.0.1", rest.port)) as proxy:
        yield Catalog(proxy, tmp_path, f"http://{proxy.address}", b"assert-ref-snapshot-id")


@pytest.fixture
def sql_tables(postgres_server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """Tables of a catalog in PostgreSQL."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
    with faulty_proxy(os.path.join(postgres_server.folder, ".s.PGSQL.5432")) as proxy:
        monkeypatch.setenv("PGUSER", "abs")
        yield Catalog(proxy, tmp_path, f"postgresql+psycopg://127.0.0.1:{proxy.port}/postgres", b"COMMIT")


@pytest.fixture(params=["sql_tables", "rest_tables"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    catalog: Catalog = request.getfixturevalue(request.param)
    return catalog


@UNCLOSED
def test_a_catalog_that_stalls_is_waited_for_and_then_ends_the_job(
    catalog: Catalog, hurry: Callable[[], None]
) -> None:
    sink = catalog.sink()
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        sink.publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
        hurry()
        catalog.proxy.stall()
        stops(
            lambda: sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]}))),
            r"cannot be (read|written|reached): its catalog has not answered for 1 s",
        )
        catalog.proxy.resume()
        sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]})))
    assert catalog.numbers() == [1, 2]


@UNCLOSED
@pytest.mark.parametrize(
    "fate", [Fate.RESET, Fate.REFUSE, Fate.SILENCE, pytest.param(Fate.LATE, marks=pytest.mark.soak)]
)
def test_a_commit_of_a_catalog_whose_reply_is_lost_or_late_writes_no_row_twice(
    catalog: Catalog, fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_table, "ANSWER_SECONDS", 2.0)
    sink = catalog.sink()
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        for epoch in range(1, 4):
            sink.publish(delivered(MemoryStorage(), epoch, pa.table({"n": [epoch]})))
            catalog.proxy.add(Rule(catalog.commit, fate, seconds=1.0))
    assert catalog.proxy.struck
    assert catalog.numbers() == [1, 2, 3]


@pytest.mark.soak
def test_a_rest_catalog_that_is_unavailable_is_waited_for_and_then_ends_the_job(
    rest_tables: Catalog, rest: RestCatalog, hurry: Callable[[], None]
) -> None:
    sink = rest_tables.sink()
    with sink.hold():
        sink.take(ATTEMPT, [], 0)
        sink.publish(delivered(MemoryStorage(), 1, pa.table({"n": [1]})))
        hurry()
        rest.status = 503
        stops(
            lambda: sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]}))),
            r"cannot be (read|written|reached): .*503",
        )
        rest.status = 0
        sink.publish(delivered(MemoryStorage(), 2, pa.table({"n": [2]})))
    assert rest_tables.numbers() == [1, 2]
