"""What each sink's guarantee costs: the same rows of the same job, with the guarantee and without one.

    python -m tests.bench.sinks.bench_guarantees [--sinks jsonl,csv,parquet,delta,iceberg,postgres,upsert,kafka]
        [--pairs 5] [--rows 2000000] [--interval 1]

Two tasks make rows (a number, a text, an amount) and write them, in one process, with an epoch every second. Without a
guarantee a task writes straight to the target when an epoch is cut: nothing is staged, synced, prepared, claimed or
named by a manifest, so that what a failure shows twice, or half, stays. Rows are made and encoded by the same code.
Runs with and without alternate, also within a pair; the first pair is a warm-up. CPU is that of the process and of its
server, where there is one.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from abscli.engine import build
from abscli.engine.job import JobOptions, run_job
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.part_files import PART_FILES, PartFile
from abscli.engine.sinks.postgres.epochs import columns_of, copy_rows, target
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.native.facts import SinkFile
from formats.storage.pieces import WHOLE
from tests.bench.engine.bench_local_cost import cpu_seconds
from tests.bench.engine.bench_tls import ratio
from tests.support.kafka import Broker
from tests.support.kafka import running as broker_in
from tests.support.postgres import Postgres, execute, postgres

TASKS = 2
PROMISES = {
    "jsonl": "two-phase", "csv": "two-phase", "parquet": "two-phase", "postgres": "two-phase", "upsert": "idempotent",
    "delta": "idempotent", "iceberg": "idempotent", "kafka": "idempotent",
}  # fmt: skip
ENCODED_AS = {"postgres": "csv", "upsert": "csv", "delta": "parquet", "iceberg": "parquet", "kafka": "jsonl"}
SERVED = ("postgres", "upsert")
TABLE = "shown"


class Cost(NamedTuple):
    """Of one run: seconds by the clock, and of CPU."""

    seconds: float
    cpu: float


class StraightSink:
    """As of `Sink`, without any promise: rows are encoded as they come, and written when an epoch is cut."""

    parts: tuple[SinkFile, ...] = ()

    def __init__(self, operator: Operator, index: int, type: str, show: Callable[[IO[bytes], str], None]) -> None:
        self._operator = operator
        self._index = index
        self._type = type
        self._show = show
        self._open: PartFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """As of `Sink`."""
        if self._open is None:
            file = tempfile.SpooledTemporaryFile(WHOLE)  # noqa: SIM115 — it is closed where it is let go of
            self._open = PART_FILES[self._type](file, "rows", self._operator.id)
        if batch.num_rows:
            self._open.write(batch)

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """As of `Sink`: shows what has come, whatever becomes of the epoch."""
        file, self._open = self._open, None

        def show() -> tuple[SinkFile, ...]:
            if file is not None and file.rows:
                file.finish()
                file.file.seek(0)
                self._show(file.file, f"part-{self._index}-{epoch}.{self._type}")
            return ()

        return show

    def commit(self, epoch: int) -> None:
        """As of `Sink`."""

    def close(self) -> None:
        """As of `Sink`."""


def straight(sink: str, folder: Path) -> Callable[..., StraightSink]:
    """What makes such sinks, in place of `make_sink`."""

    def to_file(file: IO[bytes], name: str) -> None:
        with (folder / "out" / name).open("wb") as out:
            shutil.copyfileobj(file, out, 1 << 20)

    def to_delta(file: IO[bytes], name: str) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(folder / "out"), pq.read_table(pa.PythonFile(file, "r")), mode="append")

    def to_iceberg(file: IO[bytes], name: str) -> None:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

        lake, rows = folder / "lake", pq.read_table(pa.PythonFile(file, "r"))
        with one_at_a_time:  # a catalog that is made by two at once is half there for one of them
            lake.mkdir(exist_ok=True)
            catalog = SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake))
            with suppress(NamespaceAlreadyExistsError, TableAlreadyExistsError):
                catalog.create_namespace("shop")
                catalog.create_table("shop.out", rows.schema)
        catalog.load_table("shop.out").append(rows)
        catalog.close()

    def to_table(file: IO[bytes], name: str) -> None:
        table = Table.of(operator_of(sink))
        table.ask(lambda connection: copy_rows(connection, target(table), columns_of(file), file))

    def to_topic(file: IO[bytes], name: str) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": os.environ["BENCH_BROKER"], "linger.ms": 20, "log_level": 0})
        for line in file:
            while True:
                try:
                    producer.produce(os.environ["BENCH_TOPIC"], line.rstrip(b"\n"))
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    one_at_a_time = threading.Lock()
    own = {"postgres": to_table, "upsert": to_table, "delta": to_delta, "iceberg": to_iceberg, "kafka": to_topic}
    show = own.get(sink, to_file)

    def make(operator: Operator, index: int, *more: Any, **named: Any) -> StraightSink:
        if sink not in own:
            (folder / "out").mkdir(exist_ok=True)
        return StraightSink(operator, index, ENCODED_AS.get(sink, sink), show)

    return make


def operator_of(sink: str) -> Operator:
    """The sink of a job."""
    options: dict[str, Any] = {"type": sink, "path": "out"}
    if sink in SERVED:
        options = {"type": "postgres", "table": TABLE, "url_env": "BENCH_DATABASE"}
        options |= {"mode": "upsert", "key": ["number"]} if sink == "upsert" else {}
    if sink == "iceberg":
        options = {"type": "iceberg", "table": "shop.out", "warehouse": "lake"}
    if sink == "kafka":
        options = {"type": "kafka", "brokers": os.environ["BENCH_BROKER"], "topic": os.environ["BENCH_TOPIC"]}
    return Operator("out", Kind.SINK, TASKS, 8, connector=options)


def topology(sink: str, rows: int) -> Topology:
    """The job."""
    columns = {"number": "row", "text": "'user of no name'", "amount": "row * 37 % 1000"}
    source = {"type": "generate", "rows": rows, "columns": columns}
    return Topology(
        "bench",
        (Operator("rows", Kind.SOURCE, TASKS, 8, connector=source), operator_of(sink)),
        (Edge("rows", "out", Partition.FORWARD),),
    )


def one_run(sink: str, rows: int, interval: float, server: Postgres | Broker | None, *, guarded: bool) -> Cost:
    """The job from its beginning to its end."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root, ExitStack() as patches:
        folder = Path(root)
        if isinstance(server, Broker):
            os.environ["BENCH_TOPIC"] = f"{TABLE}-{secrets.token_hex(4)}"
            server.make(os.environ["BENCH_TOPIC"])
        elif server is not None:
            key = " primary key" if sink == "upsert" else ""
            execute(
                server.url, f"drop table if exists {TABLE}, abs_epochs, abs_writers", "checkpoint",
                f"create table {TABLE} (number bigint{key}, text text, amount bigint)",
            )  # fmt: skip
        if not guarded:
            patches.enter_context(patch.object(build, "make_sink", straight(sink, folder)))
        options = JobOptions(str(folder), "job.yaml", engine="inline", workers=TASKS, interval=interval)
        begun, before = time.monotonic(), cpu_seconds()
        outcome = run_job(topology(sink, rows), str(folder / "store"), options)
        assert outcome.finished
        return Cost(time.monotonic() - begun, cpu_seconds() - before)


def compare(sink: str, pairs: int, rows: int, interval: float, server: Postgres | Broker | None) -> str:
    """One line about so many pairs of runs."""
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for turn in range(pairs + 1):
        for guarded in (True, False) if turn % 2 else (False, True):
            cost = one_run(sink, rows, interval, server, guarded=guarded)
            if turn:
                costs[guarded].append(cost)
    rates = {kind: [rows / cost.seconds / 1e3 for cost in costs[kind]] for kind in costs}
    cpu = {kind: [cost.cpu for cost in costs[kind]] for kind in costs}
    return (
        f"{sink}, {PROMISES[sink]}: {statistics.median(rates[False]):,.0f} thousand rows/s without, "
        f"{statistics.median(rates[True]):,.0f} with ({ratio(rates[True], rates[False])}); CPU "
        f"{statistics.median(cpu[False]):.2f} s without, {statistics.median(cpu[True]):.2f} s with "
        f"({ratio(cpu[True], cpu[False])})"
    )


def main() -> None:
    """Print a line for each sink."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sinks", default=",".join(PROMISES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--interval", type=float, default=1.0)
    given = parser.parse_args()
    for sink in given.sinks.split(","):
        with ExitStack() as running:
            server: Postgres | Broker | None = None
            if sink in SERVED:
                server = running.enter_context(postgres(fsync=True))
                os.environ["BENCH_DATABASE"] = server.url
            if sink == "kafka":
                home = running.enter_context(tempfile.TemporaryDirectory(prefix="abs-bench-"))
                server = running.enter_context(broker_in(Path(home)))
                os.environ["BENCH_BROKER"] = server.address
            print(compare(sink, given.pairs, given.rows, given.interval, server), flush=True)


if __name__ == "__main__":
    main()
