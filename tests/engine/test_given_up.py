"""Epochs that are given up while a job runs: tasks hear of it at once, and what follows names the right parent."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from abscli.engine.channels import peers
from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from abscli.engine.journal import Journal
from abscli.engine.sources.files import line_files
from abscli.engine.telemetry.news import EpochGivenUp, News
from formats.job.expand import task_ids
from formats.job.model import Edge, Kind, Partition, Topology
from formats.native.facts import AttemptFacts, PartFacts, header
from formats.native.store import NativeStore
from formats.native.writer import create, put_attempt, put_part, put_topology
from formats.storage import LocalStorage, MemoryStorage, Storage
from formats.timestamps import now
from tests.support.jobs.small import inline, operator, output_rows, word_count, write_words

GATED = """
import os, time
import pyarrow as pa
from pathlib import Path

FOLDER = Path({folder!r})

def slow(batch):
    if not batch["line"][0].as_py().startswith("held"):
        time.sleep(0.05)
        return batch
    deadline = time.monotonic() + 300
    while not (FOLDER / "gate").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return batch

def seen(batch):
    with open(FOLDER / "seen", "a") as file:
        file.write(str(batch.num_rows) + "\\n")
    return batch
"""


def two_inputs() -> Topology:
    """A quick and a slow input of one task, in workers of their own."""
    return Topology(
        "two",
        (
            operator("lines", Kind.SOURCE, 2, connector={"type": "text", "path": "in/*.txt"}),
            operator("slow", Kind.MAP, 2, function="gated:slow"),
            operator("both", Kind.MAP, 1, function="gated:seen"),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("lines", "slow", Partition.FORWARD),
            Edge("slow", "both", Partition.REBALANCE),
            Edge("both", "out", Partition.FORWARD),
        ),
    )


def test_what_an_abort_unblocks_goes_on_while_another_input_has_no_barrier(tmp_path: Path) -> None:
    """`slow/1` is held by a gate, so that its barrier of epoch 1 never comes; `both/0` has that of `slow/0` and blocks
    it. The abort alone lets the rest of `slow/0` through: the next epoch is held up before the gate as well."""
    (tmp_path / "in").mkdir()
    (tmp_path / "gated.py").write_text(GATED.format(folder=str(tmp_path)))
    for i in range(40):
        (tmp_path / "in" / f"{2 * i:03d}.txt").write_text(("quick " + "x" * 20_000 + "\n") * 50)  # a batch a file
        (tmp_path / "in" / f"{2 * i + 1:03d}.txt").write_text(("held " + "x" * 20_000 + "\n") * 50)
    seen = tmp_path / "seen"
    given_up: list[int] = []
    rows_then: list[int] = []

    def rows() -> int:
        return sum(map(int, seen.read_text().split())) if seen.exists() else 0

    def told(news: News) -> None:
        if isinstance(news, EpochGivenUp):
            given_up.append(news.epoch)
            rows_then.append(rows())

    def watch(progress: object) -> None:
        if rows_then and (rows() > rows_then[0] + 100 or time.monotonic() > limit):
            (tmp_path / "gate").touch()

    limit = time.monotonic() + 180
    options = inline(tmp_path, interval=0.05, epoch_timeout=1.0)
    outcome = run_job(two_inputs(), str(tmp_path / "store"), options, watch, on_news=told)
    assert outcome.finished
    assert given_up
    assert time.monotonic() < limit, "nothing came through after the abort"
    assert len(output_rows(tmp_path)) == 40 * 2 * 50


# -- what the journal writes of it --------------------------------------------------------------------------------


ATTEMPT = "a" * 32


@pytest.fixture
def journal() -> tuple[Storage, Topology, Journal]:
    storage, topology = MemoryStorage(), word_count()
    create(storage, topology.job)
    attempt = AttemptFacts(
        attempt=1, kind="run", generation=1, parent=0, first_epoch=1, policy="aligned",
        topology_sha256=put_topology(storage, topology), directory="/", started=now(), id=ATTEMPT,
        **header(AttemptFacts),
    )  # fmt: skip
    put_attempt(storage, attempt)
    return storage, topology, Journal(storage, topology, attempt, keep=None, directory_hint="job.yaml")


def ack_all(storage: Storage, topology: Topology, epoch: int) -> None:
    for task in task_ids(topology):
        part = PartFacts(
            epoch=epoch, attempt=1, task_name=str(task), state=(), rows=0, logs=(), sent={}, received={},
            positions=None, round_robin={}, connector=None, sink=(), finished=False, alignment=0.0, sync=0.0,
            async_=0.0, attempt_id=ATTEMPT, **header(PartFacts),
        )  # fmt: skip
        put_part(storage, part)


def test_the_parent_of_an_epoch_is_the_one_completed_before_it_not_before_its_trigger(
    journal: tuple[Storage, Topology, Journal]
) -> None:
    """With two in flight the second is triggered before the first is complete, and its files build on that one."""
    storage, topology, written = journal
    for epoch in (1, 2, 3):
        written.begin(epoch)
        ack_all(storage, topology, epoch)
    written.complete(1, idle=False)
    written.abort(2, "timed out")
    written.complete(3, idle=False)
    store = NativeStore(storage)
    assert [store.manifest(epoch).parent for epoch in (1, 3)] == [0, 1]


def test_parents_of_a_job_with_two_epochs_in_flight_form_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 2048)
    write_words(tmp_path, lines=10_000)
    options = inline(tmp_path, interval=0.005, max_concurrent=2, keep=None)
    outcome = run_job(word_count(), str(tmp_path / "store"), options)
    store = NativeStore(LocalStorage(tmp_path / "store"))
    complete = [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)]
    assert complete[-1] == outcome.epoch
    assert [store.manifest(epoch).parent for epoch in complete] == [0, *complete[:-1]]


# -- records of a split, over attempts ----------------------------------------------------------------------------


SLOWLY = """
import os, time
from abscli.engine.functions import words as split

def words(batch):
    if not os.path.exists({gate!r}):
        time.sleep(0.1)
    return split(batch)
"""


def test_records_of_a_split_are_counted_on_where_a_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 2048)
    monkeypatch.setattr(peers, "CHANNEL_BYTES", 4096)  # so that sources wait for the slow function
    write_words(tmp_path, lines=5_000)
    (tmp_path / "slowly.py").write_text(SLOWLY.format(gate=str(tmp_path / "gate")))
    plain = word_count()
    slow = msgspec.structs.replace(plain.operators[1], function="slowly:words")
    topology = msgspec.structs.replace(plain, operators=(plain.operators[0], slow, *plain.operators[2:]))
    services: list[Service] = []

    def stop(progress: Progress) -> None:
        if progress.epochs and services:
            services.pop().request_stop()

    options = inline(tmp_path, interval=0.01)
    stopped = run_job(topology, str(tmp_path / "store"), options, stop, services.append)
    (tmp_path / "gate").touch()
    assert not stopped.finished
    store = NativeStore(LocalStorage(tmp_path / "store"))

    def records(epoch: int) -> dict[str, int | None]:
        return {p.split: p.records for part in store.parts(epoch) for p in part.positions or ()}

    middle = records(stopped.epoch)
    assert any(0 < (count or 0) < 5_000 for count in middle.values())
    ended = run_job(topology, str(tmp_path / "store"), inline(tmp_path, from_epoch=stopped.epoch))
    assert records(ended.epoch) == dict.fromkeys(middle, 5_000)
