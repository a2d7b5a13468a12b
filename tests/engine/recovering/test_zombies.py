"""A worker that stands still between its last look at its clock and the step that others see, is replaced within the
same attempt, and takes that step when others have gone on: nothing that counts is changed by it."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.channels.lease import Lease
from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import News, Recovered
from abscli.engine.worker import Worker
from abscli.report.findings import Code
from formats.native.store import NativeStore, files_of
from formats.storage import open_writable
from formats.storage.ranges import whole_file
from tests.support.jobs.kills import check_counted, fan, write_rows
from tests.support.jobs.small import inline, open_gate
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer
from tests.support.stores.checked import job_file, validated

pytestmark = pytest.mark.integration

STEPS_AN_EPOCH = 6
"""Of a worker: acks of four tasks, a file of state, a part of the sink."""

STEPS_IN_A_BUCKET = 2
"""Of a worker there: a pack, a part of the sink."""

PATIENCE = 120.0


class Zombie:
    """The first launch of worker 1. Its `step`-th step that others see, from its second epoch on, is held between the
    check and the step itself; then the worker is lost. `wake` lets it go on."""

    def __init__(self, step: int, monkeypatch: pytest.MonkeyPatch, *, an_epoch: int = STEPS_AN_EPOCH) -> None:
        self.stands = threading.Event()
        self.went_on = threading.Event()
        self._left = an_epoch + step
        self._awake = threading.Event()
        self._lease: Lease | None = None
        self._lock = threading.Lock()
        made, check = Worker.__init__, Lease.check

        def noted(worker: Worker, *arguments: Any) -> None:
            made(worker, *arguments)
            if worker.number == 1 and worker.launch == 0:
                self._lease = worker._lease

        def held(lease: Lease) -> None:
            check(lease)
            if lease is self._lease and self._is_the_one():
                self.stands.set()
                self._awake.wait(PATIENCE)
                self.went_on.set()

        monkeypatch.setattr(Worker, "__init__", noted)
        monkeypatch.setattr(Lease, "check", held)

    def _is_the_one(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left == 0

    def wake(self) -> None:
        self._awake.set()


@pytest.mark.sample(3)
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("recovery", "step"),
    [*((Scope.LOCAL, step) for step in range(1, STEPS_AN_EPOCH + 1)), (Scope.SUBGRAPH, 2), (Scope.SUBGRAPH, 5),
     (Scope.FULL, 3)],
)
def test_a_step_that_comes_after_the_loss_changes_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovery: Scope, step: int
) -> None:
    run_with(Zombie(step, monkeypatch), tmp_path, str(tmp_path / "store"), recovery)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("recovery", "step"), [(Scope.SUBGRAPH, 1), (Scope.SUBGRAPH, 2), (Scope.LOCAL, 1)])
def test_nor_does_one_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: ObjectServer, recovery: Scope, step: int
) -> None:
    """A pack that comes late has its process in its name, and no manifest names it."""
    zombie = Zombie(step, monkeypatch, an_epoch=STEPS_IN_A_BUCKET)
    store = str(bucket_place(s3).root)
    run_with(zombie, tmp_path, store, recovery)
    opened = NativeStore(open_writable(store))
    named = {
        whole_file(file.path)
        for epoch in opened.epoch_numbers() if opened.has_manifest(epoch)
        for part in opened.parts(epoch) for file in files_of(part)
    }  # fmt: skip
    assert any(path.endswith(".pack") for path in named)
    assert all(opened.storage.size(path) is not None for path in named)


def run_with(zombie: Zombie, tmp_path: Path, store: str, recovery: Scope) -> None:
    """The job to its end, its zombie having taken its step in the middle; what counts is as it would be without."""
    counts = write_rows(tmp_path, files=200, pause=0.1)
    services: list[Service] = []
    recovered: list[int] = []
    killed: list[bool] = []
    before: dict[str, str] = {}

    def progress(now: Progress) -> None:
        if zombie.stands.is_set() and not killed:
            killed.append(True)
            services[0].crew.kill(1)
        if recovered and now.epochs >= recovered[0] + 2 and not zombie.went_on.is_set():
            before.update(visible(tmp_path))
            zombie.wake()
            assert zombie.went_on.wait(PATIENCE)
        if zombie.went_on.is_set() and now.epochs >= recovered[0] + 4:
            open_gate(tmp_path)

    def on_news(news: News) -> None:
        if isinstance(news, Recovered):
            recovered.append(services[0].progress.epochs)

    outcome = run_job(
        fan(), store, inline(tmp_path, recovery=recovery), progress, services.append,
        on_news=on_news,
    )  # fmt: skip
    assert outcome.finished
    assert zombie.went_on.is_set()
    check_counted(tmp_path, counts)
    after = visible(tmp_path)
    assert {name: after[name] for name in before} == before
    report = validated(store, job_file(fan(), tmp_path))
    assert not report.damaged
    # Of an epoch that is gone; `abs gc` removes it.
    assert {finding.code for finding in report.findings} <= {Code.UNREFERENCED_FILE}


def visible(folder: Path) -> dict[str, str]:
    """Digests of what the sink shows."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "out").glob("part-*")}
