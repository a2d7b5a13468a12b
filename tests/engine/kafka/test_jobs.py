"""Jobs that read a topic while records come, and their workers, themselves and the broker get SIGKILL: every record
counts once, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.errors import JobFailed
from abscli.engine.job import JobOptions, Outcome, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import News, OperatorContinues, OperatorWaits, Recovered
from abscli.report.findings import Code
from abscli.stores.native.check import check_all
from formats.job.model import Topology
from formats.native.probe import Prober
from tests.engine.recovering.test_following import Followed, newest_epoch, read_rows
from tests.engine.recovering.test_live import on_spark, store
from tests.support.commands import result_of, run_command
from tests.support.jobs.kills import SLOW, after, check_counted, check_rows, pipelines, spread
from tests.support.jobs.small import inline
from tests.support.kafka import Broker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.minutes

ROUNDS, ROWS = 60, 8


def reading(topology: Topology, broker: Broker, topic: str, **options: object) -> Topology:
    """A job whose source reads the topic."""
    rows, *others = topology.operators
    connector = {
        "type": "kafka", "brokers": broker.address, "topic": topic, "schema": {"key": "string", "id": "int"},
        "follow": True, **options,
    }  # fmt: skip
    return msgspec.structs.replace(topology, operators=(msgspec.structs.replace(rows, connector=connector), *others))


class Writer(threading.Thread):
    """Produces records, some in transactions and among others that are given up; more partitions come meanwhile.

    transactions: whether there are any: one in which a broker is killed would have to be made again.
    """

    def __init__(self, broker: Broker, topic: str, seed: int, pause: float = 0.03, *, transactions: bool) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._broker, self._topic = broker, topic
        self._dice = random.Random(seed)
        self._pause = pause
        self._transactions = transactions

    def run(self) -> None:
        dice, number, partitions = self._dice, 0, 2
        for turn in range(ROUNDS):
            if turn == ROUNDS // 2:
                partitions = 5
                self._broker.widen(self._topic, partitions)
            records = []
            for _ in range(ROWS):
                key = f"k{dice.randrange(23)}"
                records.append((dice.randrange(partitions), key, json.dumps({"key": key, "id": number})))
                number += 1
            if self._transactions and turn % 7 == 3:
                self._broker.produce(self._topic, [(0, "x", json.dumps({"key": "x", "id": -1}))] * 3, commit=False)
            self._broker.produce(self._topic, records, commit=(self._transactions and turn % 5 == 1) or None)
            self.counts.update(key or "" for _, key, _ in records)
            time.sleep(self._pause)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


@contextmanager
def written(
    folder: Path, broker: Broker, topic: str, seed: int = 1, *, transactions: bool = True
) -> Iterator[Writer]:
    (folder / "slow.py").write_text(SLOW.format(folder=str(folder), pause=0.002))
    writer = Writer(broker, topic, seed, transactions=transactions)
    writer.start()
    yield writer
    writer.join()


def check_sound(folder: Path, left: Collection[Code] = ()) -> None:
    """left: what may be found."""
    report = check_all(store(folder), (), Prober(store(folder).storage))
    findings = [*report.findings, *(finding for epoch in report.epochs for finding in epoch.findings)]
    assert [finding for finding in findings if finding.code not in left] == []


def check(folder: Path, topology: Topology, writer: Writer) -> None:
    check_sound(folder)
    if topology.job == "pipelines":
        check_rows(folder, writer.counts)
    else:
        check_counted(folder, writer.counts)


def survive(
    topology: Topology, folder: Path, broker: Broker, topic: str, options: JobOptions, kills: Followed
) -> None:
    """Run while records come, and workers are killed; it is stopped when every one is in an epoch."""
    with written(folder, broker, topic) as writer:

        def progress(now: Progress) -> None:
            kills.progress(now)
            over = not writer.is_alive() and len(kills.recoveries) == kills.due
            if over and read_rows(folder) == writer.rows:
                assert kills.service is not None
                kills.service.request_stop()

        outcome = run_job(topology, str(folder / "store"), options, progress, kills.meet, on_news=kills.news)
    assert not outcome.finished
    assert len(kills.pids) == kills.due
    check(folder, topology, writer)


@pytest.mark.soak
@pytest.mark.parametrize("recovery", list(Scope))
@pytest.mark.parametrize("name", ["pipelines", "spread"])
def test_every_record_counts_once_while_workers_are_lost(
    tmp_path: Path, broker: Broker, topic: str, recovery: Scope, name: str
) -> None:
    topology = reading(pipelines() if name == "pipelines" else spread("spread", 2, 2), broker, topic)
    kills = Followed([(after(2), [0]), (after(5), [1]), (after(9), [0])], tmp_path)
    survive(topology, tmp_path, broker, topic, inline(tmp_path, interval=0.05, recovery=recovery), kills)
    if recovery is Scope.LOCAL:
        assert [one.again is not None for one in kills.recoveries] == [True] * 3, [r.cause for r in kills.recoveries]


@pytest.mark.sample(1)
@pytest.mark.parametrize("recovery", [Scope.SUBGRAPH, Scope.LOCAL])
def test_every_record_counts_once_while_processes_of_workers_get_sigkill(
    tmp_path: Path, spark: Any, broker: Broker, topic: str, recovery: Scope
) -> None:
    kills = Followed([(after(2), [0]), (after(5), [1])], tmp_path)
    topology = reading(spread("spread", 2, 2), broker, topic)
    survive(topology, tmp_path, broker, topic, on_spark(tmp_path, spark, recovery=recovery), kills)
    assert os.getpid() not in kills.pids


def write_job(folder: Path, broker: Broker, topic: str) -> None:
    (folder / "job.yaml").write_text(f"""
version: 1
job: spread
parallelism: 2
operators:
  rows:
    source: {{type: kafka, brokers: "{broker.address}", topic: {topic}, schema: {{key: string, id: int}}, follow: true}}
  same:
    from: rows
    map: slow:pass_on
  counts:
    from: {{same: {{partition: hash, key: [key]}}}}
    reduce: {{key: [key], n: {{count: "*"}}, emit: record}}
  out:
    from: counts
    sink: {{type: jsonl, path: out}}
""")


@pytest.mark.soak
@pytest.mark.parametrize("also_broker", [False, True])
def test_every_record_counts_once_while_the_whole_job_gets_sigkill_and_is_rescaled(
    tmp_path: Path, broker: Broker, topic: str, also_broker: bool
) -> None:
    """Its tasks are two or three, and partitions come meanwhile; also_broker: which is
    killed and started again, too."""
    dice, kills = random.Random(5), 0
    write_job(tmp_path, broker, topic)
    command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline",
               "--interval", "50ms"]  # fmt: skip

    def begin() -> subprocess.Popen[bytes]:
        tasks = dice.choice([2, 3])
        widths = [word for id in ("rows", "same") for word in ("--parallelism", f"{id}={tasks}")]
        again = ["--resume", *widths] if newest_epoch(tmp_path) else []
        return subprocess.Popen([*command, *again], cwd=tmp_path, stderr=subprocess.PIPE)

    with written(tmp_path, broker, topic, transactions=not also_broker) as writer:
        while writer.is_alive() or read_rows(tmp_path) < writer.rows:
            rows, job = read_rows(tmp_path), begin()
            # A rescale alone is an epoch in which nothing was read.
            wait_for(lambda job=job, rows=rows: job.poll() is not None or read_rows(tmp_path) > rows)  # type: ignore[misc]
            if also_broker and kills < 2:
                broker.kill()
                broker.start()
            time.sleep(dice.random() * 0.3)
            job.kill()
            _, text = job.communicate()
            assert job.returncode == -signal.SIGKILL, text.decode()
            kills += 1
    epoch, job = newest_epoch(tmp_path), begin()
    wait_for(lambda: job.poll() is not None or (newest_epoch(tmp_path) > epoch and read_rows(tmp_path) == writer.rows))
    job.send_signal(signal.SIGTERM)
    _, text = job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM, text.decode()
    assert kills >= 1
    check_sound(tmp_path, left={Code.UNREFERENCED_FILE})  # of epochs that a kill has cut off
    check_counted(tmp_path, writer.counts)


def run_to(folder: Path, topology: Topology, rows: int, **options: object) -> Outcome:
    """Until so many rows are in an epoch."""
    services: list[Any] = []

    def progress(now: Progress) -> None:
        if read_rows(folder) == rows:
            services[0].request_stop()

    return run_job(topology, str(folder / "store"), inline(folder, interval=0.05, **options), progress, services.append)  # type: ignore[arg-type]


def numbered(broker: Broker, topic: str, numbers: range) -> None:
    broker.produce(topic, [(n % 2, None, json.dumps({"key": f"k{n}", "id": n})) for n in numbers])


def test_a_job_reads_what_is_there_and_ends(
    tmp_path: Path, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    numbered(broker, topic, range(40))
    topology = reading(pipelines(3), broker, topic, follow=False)
    outcome = run_job(topology, str(tmp_path / "store"), inline(tmp_path))
    assert outcome.finished
    check_rows(tmp_path, Counter(rows=40))
    # What came later is not read, also when the job is started once more.
    numbered(broker, topic, range(40, 50))
    run_job(topology, str(tmp_path / "store"), inline(tmp_path, from_epoch=outcome.epoch))
    check_rows(tmp_path, Counter(rows=40))
    page = result_of("inspect", capsys, tmp_path / "store", "--broker", broker.address)
    assert [(split["operator"], split["offset"], split["lag"]) for split in page["splits"]] == [("rows", 20, 0)] * 2


def test_an_epoch_whose_records_are_gone_is_named_before_anything_is_started(
    tmp_path: Path, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    topology = reading(pipelines(), broker, topic)
    numbered(broker, topic, range(10))
    first = run_to(tmp_path, topology, 10).epoch
    numbered(broker, topic, range(10, 20))
    last = run_to(tmp_path, topology, 20, from_epoch=first).epoch
    broker.drop(topic, {0: 7, 1: 9})
    attempts = len(store(tmp_path).attempts())
    with pytest.raises(JobFailed, match=rf"{topic}-0 resumes at 5, but the oldest offset is 7: 2 records removed"):
        run_to(tmp_path, topology, 30, from_epoch=first)
    assert len(store(tmp_path).attempts()) == attempts
    _, printed, _ = run_command("validate", capsys, tmp_path / "store", "--broker", broker.address, "-o", "json")
    restorable = json.loads(printed)["restorable"]
    assert last in restorable
    assert first not in restorable
    numbered(broker, topic, range(20, 30))
    run_to(tmp_path, topology, 30, from_epoch=last)
    check_rows(tmp_path, Counter(rows=30))


def test_who_goes_back_to_an_older_epoch_reads_the_same_again(tmp_path: Path, broker: Broker, topic: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    topology = reading(pipelines(), broker, topic)
    numbered(broker, topic, range(10))
    first = run_to(tmp_path, topology, 10).epoch
    numbered(broker, topic, range(10, 20))
    run_to(tmp_path, topology, 20, from_epoch=first)
    numbered(broker, topic, range(20, 25))
    run_to(tmp_path, topology, 25, from_epoch=first)
    check_rows(tmp_path, Counter(rows=25))
    check_sound(tmp_path)


def test_latest_is_where_the_topic_ended_at_the_start_also_for_who_begins_again(
    tmp_path: Path, broker: Broker, topic: str
) -> None:
    """A worker that is lost before the first epoch begins where it had begun, whatever has come since."""
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    numbered(broker, topic, range(100, 110))
    topology = reading(pipelines(), broker, topic, start="latest")
    services: list[Any] = []
    recoveries: list[News] = []
    sent: list[bool] = []

    def progress(now: Progress) -> None:
        service = services[0]
        if not sent and service.losses.running:
            numbered(broker, topic, range(20))
            sent.append(True)
        elif len(sent) == 1 and now.records == 20:
            service.crew.kill(0)
            sent.append(True)
        elif recoveries and now.records == 20:
            service.request_stop()

    def news(one: News) -> None:
        recoveries.extend([one] if isinstance(one, Recovered) else [])

    options = inline(tmp_path, interval=None, recovery=Scope.FULL)
    run_job(topology, str(tmp_path / "store"), options, progress, services.append, on_news=news)
    assert len(sent) == 2
    check_rows(tmp_path, Counter(rows=20))


def test_a_broker_that_is_away_is_named_and_the_job_goes_on(tmp_path: Path, broker: Broker, topic: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    topology = reading(pipelines(), broker, topic)
    numbered(broker, topic, range(10))
    services: list[Any] = []
    told: list[News] = []
    state = {"at": "running", "epochs": 0}

    def progress(now: Progress) -> None:
        if state["at"] == "running" and read_rows(tmp_path) == 10:
            broker.kill()
            state.update(at="away")
        elif state["at"] == "away" and any(isinstance(news, OperatorWaits) for news in told):
            state.update(at="silent", epochs=now.epochs)
        elif state["at"] == "silent" and now.epochs > int(str(state["epochs"])) + 2:  # epochs go on meanwhile
            broker.start()
            numbered(broker, topic, range(10, 20))
            state.update(at="back")
        elif state["at"] == "back" and read_rows(tmp_path) == 20 and isinstance(told[-1], OperatorContinues):
            services[0].request_stop()

    def news(one: News) -> None:
        if isinstance(one, OperatorWaits | OperatorContinues):
            told.append(one)

    options = inline(tmp_path, interval=0.05)
    run_job(topology, str(tmp_path / "store"), options, progress, services.append, on_news=news)
    check_rows(tmp_path, Counter(rows=20))
    silent, *_, back = told  # a long wait is reported again
    assert isinstance(silent, OperatorWaits)
    assert silent.wait.operator == "rows"
    assert silent.wait.reason
    assert isinstance(back, OperatorContinues)
    assert back.wait.seconds > silent.wait.seconds


def test_a_sample_shows_what_is_in_the_topic(
    tmp_path: Path, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path, broker, topic)
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(tmp_path), pause=0))
    numbered(broker, topic, range(4))
    dry = "--store", tmp_path / "s", "--dry-run", "--sample", 5, "-o", "json"
    code, out, err = run_command("run", capsys, tmp_path / "job.yaml", *dry)
    assert code == 0, err
    rows = {op["id"]: op["rows"] for op in json.loads(out)["sample"]["operators"]}
    assert sorted(row["id"] for row in rows["rows"]) == [*range(4)]
