"""Hundreds of healthy epochs of random jobs: `abs validate` finds nothing in any of them, and no row is lost.

A seed draws the job (how records that fail are handled, policy, sink, number of tasks) and what happens to it: stops,
lost workers with each kind of recovery, and other numbers of tasks. HEALTHY_SEED moves on to other jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine.coordinator import Progress, Service
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import Outcome, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.sources.files.jsonl import JsonLinesSource
from abscli.engine.sources.kafka import source as kafka_source
from abscli.engine.sources.kafka.source import KafkaSource
from abscli.engine.sources.postgres import source as postgres_source
from abscli.engine.sources.postgres.source import PostgresSource
from abscli.planner.rescale import with_parallelism
from abscli.stores.native.check import check
from abscli.stores.recovery import JobFile
from formats.errors import NoRecovery
from formats.job.changes import NO_CHANGES
from formats.job.file import parse_topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.small import inline
from tests.support.kafka import Broker, consumed
from tests.support.postgres import Postgres, execute, rows

pytestmark = pytest.mark.soak

SEED = int(os.environ.get("HEALTHY_SEED", "0"))
EPOCHS = 170
"""Least number of epochs that are checked per kind of source: 510 in total."""
ROWS, A_FILE = 2400, 20
UNREADABLE, REFUSED = 31, 50
"""One row in so many is not what the source expects; the function raises for one in so many."""
FUNCTION = """
def refuse(batch):
    if any(id % 50 == 7 for id in batch.column("id").to_pylist()):
        raise ValueError("refused")
    return batch
"""
SKIP, LETTER = "skip", "{{dead_letter: {}}}"


@dataclass
class Healthy:
    """One job in a folder. source, sink: their kinds; dice: decide all that is random; name: of its topics and tables.
    """

    folder: Path
    source: str
    dice: random.Random
    servers: Servers
    name: str = field(default_factory=lambda: f"healthy_{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.sink = self.dice.choice(["jsonl", "kafka", "postgres", "upsert"])
        self.policy = self.dice.choice(["aligned", "unaligned", "at-least-once"])
        self.recovery = self.dice.choice([Scope.LOCAL, Scope.LOCAL, Scope.SUBGRAPH, Scope.FULL])
        self.begun = False
        self.folder.mkdir()
        (self.folder / "slow.py").write_text(FUNCTION)
        self._write_input()
        self._make_target()
        (self.folder / "job.yaml").write_text(self._text())
        self.topology = parse_topology(self.folder / "job.yaml")

    def __str__(self) -> str:
        return f"{self.source} -> {self.sink}, {self.policy}, {self.recovery.value}"

    @property
    def _is_table(self) -> bool:
        return self.source == "table"

    def _values(self) -> list[str]:
        """The rows as JSON; a table has no unreadable ones."""
        return [json.dumps({"key": [] if not id % UNREADABLE else f"k{id % 17}", "id": id}) for id in range(ROWS)]

    def _write_input(self) -> None:
        if self.source == "files":
            (self.folder / "in").mkdir()
            values = self._values()
            for first in range(0, ROWS, A_FILE):
                lines = "".join(f"{value}\n" for value in values[first : first + A_FILE])
                (self.folder / "in" / f"{first:05}.jsonl").write_text(lines)
        elif self.source == "kafka":
            broker = self.servers.broker
            broker.make(f"{self.name}_in", 3)
            broker.produce(f"{self.name}_in", ((id % 3, None, value) for id, value in enumerate(self._values())))
        else:
            execute(
                self.servers.postgres.url, f"create table {self.name}_in (id bigint primary key, key text)",
                f"insert into {self.name}_in select id, 'k' || id % 17 from generate_series(0, {ROWS - 1}) id",
            )  # fmt: skip

    def _make_target(self) -> None:
        if self.sink == "kafka":
            self.servers.broker.make(self.name, 2)
        elif self.sink in ("postgres", "upsert"):
            key = "primary key" if self.sink == "upsert" else ""
            execute(self.servers.postgres.url, f"create table {self.name} (id bigint {key}, key text)")

    def _text(self) -> str:
        sources = {
            "files": "{type: jsonl, path: in/*.jsonl, schema: {key: string, id: int64}}",
            "kafka": f"{{type: kafka, brokers: '{self.servers.broker.address}', topic: {self.name}_in, "
            "schema: {key: string, id: int}}",
            "table": f"{{type: postgres, table: {self.name}_in, key: [id], url_env: HEALTHY_DATABASE}}",
        }
        sinks = {
            "jsonl": "{type: jsonl, path: out}",
            "kafka": f"{{type: kafka, brokers: '{self.servers.broker.address}', topic: {self.name}}}",
            "postgres": f"{{type: postgres, table: {self.name}, url_env: HEALTHY_DATABASE}}",
            "upsert": f"{{type: postgres, table: {self.name}, url_env: HEALTHY_DATABASE, mode: upsert, key: [id]}}",
        }
        unread = self.dice.choice([SKIP, LETTER.format("unread")])
        refused = self.dice.choice([SKIP, LETTER.format("refused")])
        return "\n".join([
            "version: 1", "job: healthy", f"parallelism: {self.dice.choice([1, 2, 3])}", "operators:",
            f"  rows: {{source: {sources[self.source]}{'' if self._is_table else f', on_error: {unread}'}}}",
            f"  same: {{from: rows, map: 'slow:refuse', on_error: {refused}}}",
            "  counts: {from: same, reduce: {key: [key], n: {count: '*'}, emit: record}}",
            f"  out: {{from: same, sink: {sinks[self.sink]}}}",
            "  counted: {from: counts, sink: {type: jsonl, path: counted}}",
        ])  # fmt: skip

    # -- what happens to it -----------------------------------------------------------------------------------

    def live(self) -> int:
        """Run it to its end, in several runs; return the number of its complete epochs, all of which were healthy."""
        while not self._run().finished:
            self.check()
            if self.dice.random() < 0.5:
                self._rescale()
                self.check()
        self._check_rows()
        return self.check()

    def _run(self) -> Outcome:
        """From the newest epoch, until some are complete or the input ends; workers may be lost meanwhile."""
        stop = self.dice.randrange(4, 14)
        losses = {self.dice.randrange(1, stop): self.dice.randrange(2) for _ in range(self.dice.randrange(3))}
        services: list[Service] = []

        def progress(now: Progress) -> None:
            if not services:
                return  # it has been told to stop
            service = services[0]
            for epochs in [epochs for epochs in losses if epochs <= now.epochs]:
                worker = losses.pop(epochs)
                if service.crew.is_there(worker):
                    service.crew.kill(worker)
            if now.epochs >= stop:
                services.pop().request_stop()

        options = inline(
            self.folder, interval=0.03, keep=None, policy=self.policy, recovery=self.recovery,
            max_concurrent=self.dice.choice([1, 2]), from_epoch=self.store.latest() if self.begun else None,
        )  # fmt: skip
        self.begun = True
        return run_job(self.topology, str(self.folder / "store"), options, progress, services.append)

    def _rescale(self) -> None:
        newest = self.store.latest()
        assert newest is not None
        tasks = self.dice.choice([1, 2, 3, 5])
        wanted = with_parallelism(self.topology, {operator.id: tasks for operator in self.topology.operators})
        # Records that an unaligned epoch has logged on a channel without a key can belong to any task.
        with contextlib.suppress(NoRecovery):
            publish(self.store.storage, Rescale(newest, wanted, str(self.folder)))
            self.topology = wanted

    # -- what is promised -------------------------------------------------------------------------------------

    @property
    def store(self) -> NativeStore:
        return NativeStore(LocalStorage(self.folder / "store"))

    def check(self) -> int:
        """Validate all kept epochs and the targets; return how many epochs are complete."""
        job = JobFile(str(self.folder / "job.yaml"), str(self.folder), self.topology, NO_CHANGES)
        report = check(self.store.storage, None, quick=False, progress=lambda read, total: None, job=job).report
        complete = [epoch for epoch in report.epochs if epoch.verdict in (Status.COMPLETE, Status.DAMAGED)]
        found = [*report.findings, *(finding for epoch in complete for finding in epoch.findings)]
        assert found == [], f"{self}: {found}"
        return len(complete)

    def _check_rows(self) -> None:
        """Each row that can be read and is not refused is in the target once; under at-least-once, once or more."""
        due = {id for id in range(ROWS) if id % REFUSED != 7 and (self._is_table or id % UNREADABLE)}
        shown = self._shown()
        assert shown.keys() == due, f"{self}: {sorted(shown.keys() ^ due)}"
        if self.policy != "at-least-once":
            assert max(shown.values()) == 1, str(self)

    def _shown(self) -> Counter[int]:
        if self.sink == "jsonl":
            parts = [*(self.folder / "out").glob("part-*.jsonl")]
            return Counter(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())
        if self.sink == "kafka":
            return Counter(json.loads(value or "")["id"] for _, _, value in consumed(*self.servers.topic(self.name)))
        return Counter(id for (id,) in rows(self.servers.postgres.url, f"select id from {self.name}"))


@dataclass(frozen=True)
class Servers:
    """The servers that the jobs of this file read from and write to."""

    broker: Broker
    postgres: Postgres

    def topic(self, name: str) -> tuple[str, str]:
        """Return the address of the broker, and the topic."""
        return self.broker.address, name


def slowly(read: Callable[[Any], pa.RecordBatch | None]) -> Callable[[Any], pa.RecordBatch | None]:
    """Return a function that takes some time for a batch with rows, so that a job has many epochs."""

    def slow(source: object) -> pa.RecordBatch | None:
        batch = read(source)
        time.sleep(0.008 if batch is not None and batch.num_rows else 0.001)
        return batch

    return slow


@pytest.mark.parametrize("source", ["files", "kafka", "table"])
def test_nothing_is_found_in_healthy_epochs(
    tmp_path: Path, broker: Broker, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, source: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("HEALTHY_DATABASE", postgres_server.url)
    for module in (kafka_source, postgres_source):
        monkeypatch.setattr(module, "ROWS", A_FILE)
    for kind in (JsonLinesSource, KafkaSource, PostgresSource):
        monkeypatch.setattr(kind, "read", slowly(kind.read))
    epochs = jobs = 0
    while epochs < EPOCHS:
        seed = f"{source} {SEED + jobs}"
        epochs += Healthy(tmp_path / str(jobs), source, random.Random(seed), Servers(broker, postgres_server)).live()
        jobs += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{source}: {epochs} healthy epochs of {jobs} jobs from seed {SEED} on, 0 findings\n")
