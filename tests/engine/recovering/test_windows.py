"""Windows of event time while workers are killed: every window comes out once, with all of its rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.stores.native.check import check_all
from formats.job.model import Kind, Topology, Ttl, Window, WindowKind
from formats.native.probe import Prober
from formats.storage import LocalStorage
from tests.engine.recovering.test_live import STORE, on_spark, store, survive
from tests.support.jobs.kills import after, in_event_time, spread, write_rows
from tests.support.jobs.small import inline, open_gate, output_rows

pytestmark = pytest.mark.integration

SECOND = 1_000_000
WINDOWS = {
    "tumbling": Window("at", WindowKind.TUMBLING, 60 * SECOND),
    "sliding": Window("at", WindowKind.SLIDING, 60 * SECOND, 20 * SECOND),
    "session": Window("at", WindowKind.SESSION, 30 * SECOND),
}


def windowed(window: Window, folder: Path, parallelism: int = 2) -> Topology:
    """The rows of `write_rows`, one a second, counted by key and window."""
    return with_windows(in_event_time(spread("windows", 1, parallelism, "epoch"), folder), window)


def with_windows(topology: Topology, window: Window) -> Topology:
    operators = [
        msgspec.structs.replace(op, window=window) if op.kind is Kind.REDUCE else op for op in topology.operators
    ]
    return msgspec.structs.replace(topology, operators=tuple(operators))


def times_by_key(folder: Path) -> dict[str, list[int]]:
    """Of the input: when each key has rows, in seconds."""
    times = defaultdict(list)
    for path in sorted((folder / "in").iterdir()):
        for row in map(json.loads, path.read_text().splitlines()):
            times[row["key"]].append(row["id"])
    return times


def expected(folder: Path, window: Window) -> Counter[tuple[str, int, int]]:
    """Key, length in seconds and count of every window, from the input itself."""
    rows: Counter[tuple[str, int, int]] = Counter()
    size, every = window.size // SECOND, (window.every or window.size) // SECOND
    for key, times in times_by_key(folder).items():
        if window.kind is WindowKind.SESSION:
            stretches: list[list[int]] = []
            for time in sorted(times):
                if stretches and time <= stretches[-1][-1] + size:
                    stretches[-1].append(time)
                else:
                    stretches.append([time])
            rows.update((key, some[-1] - some[0] + size, len(some)) for some in stretches)
        else:
            panes = Counter(
                start for t in times for start in range((t - size) // every * every + every, t + 1, every)
            )
            rows.update((key, size, count) for count in panes.values())
    return rows


def shown(folder: Path) -> Counter[tuple[str, int, int]]:
    """The same of what came out."""
    from datetime import datetime

    def seconds(row: dict[str, Any]) -> int:
        start, end = (datetime.fromisoformat(row[f"window_{name}"]) for name in ("start", "end"))
        return round((end - start).total_seconds())

    return Counter((str(row["key"]), seconds(row), int(str(row["n"]))) for row in output_rows(folder))


@pytest.mark.sample(4)
@pytest.mark.parametrize("recovery", list(Scope))
@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_comes_out_once_though_workers_are_lost(tmp_path: Path, window: str, recovery: Scope) -> None:
    write_rows(tmp_path, files=160)
    topology = windowed(WINDOWS[window], tmp_path)
    options = inline(tmp_path, recovery=recovery)
    survive(topology, tmp_path, options, [(after(2, open_epoch=True), [1]), (after(4), [0])])
    assert shown(tmp_path) == expected(tmp_path, WINDOWS[window])


@pytest.mark.parametrize("window", ["sliding", "session"])
def test_a_python_worker_with_windows_gets_sigkill(tmp_path: Path, spark: Any, window: str) -> None:
    write_rows(tmp_path, files=160)
    topology = windowed(WINDOWS[window], tmp_path)
    survive(topology, tmp_path, on_spark(tmp_path, spark, recovery=Scope.LOCAL), [(after(2), [1])])
    assert shown(tmp_path) == expected(tmp_path, WINDOWS[window])


def stopped_in_the_middle(topology: Topology, folder: Path, **more: Any) -> int:
    """The epoch at which a run was stopped that has rows to come."""
    from abscli.engine.coordinator import Progress, Service

    services: list[Service] = []

    def progress(progress: Progress) -> None:
        if progress.epochs >= 3 and services:
            services.pop().request_stop()

    options: JobOptions = inline(folder, keep=None, **more)
    outcome = run_job(topology, str(folder / STORE), options, progress, services.append)
    assert not outcome.finished
    assert outcome.epoch is not None
    return outcome.epoch


@pytest.mark.sample(3)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("memory", [None, 1])
def test_open_windows_go_on_in_more_tasks(tmp_path: Path, window: str, memory: int | None) -> None:
    write_rows(tmp_path, files=160)
    before = windowed(WINDOWS[window], tmp_path, 2)
    epoch = stopped_in_the_middle(before, tmp_path, state_memory=memory)
    more = tuple(
        msgspec.structs.replace(op, parallelism=3) if op.id in ("counts", "out") else op for op in before.operators
    )
    after_it = msgspec.structs.replace(before, operators=more)
    start = publish(LocalStorage(tmp_path / STORE), Rescale(epoch, after_it, str(tmp_path)))
    open_gate(tmp_path)
    options = inline(tmp_path, from_epoch=start, keep=None, state_memory=memory)
    assert run_job(after_it, str(tmp_path / STORE), options).finished
    assert shown(tmp_path) == expected(tmp_path, WINDOWS[window])
    report = check_all(store(tmp_path), (), Prober(store(tmp_path).storage))
    assert [finding for epoch_report in report.epochs for finding in epoch_report.findings] == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("recovery", [Scope.SUBGRAPH, Scope.LOCAL])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_of_a_rescaled_job_comes_out_once_though_workers_are_lost(
    tmp_path: Path, window: str, recovery: Scope
) -> None:
    write_rows(tmp_path, files=160)
    before, wide = (windowed(WINDOWS[window], tmp_path, tasks) for tasks in (2, 3))
    epoch = stopped_in_the_middle(before, tmp_path)
    start = publish(LocalStorage(tmp_path / STORE), Rescale(epoch, wide, str(tmp_path)))
    options = inline(tmp_path, from_epoch=start, keep=None, recovery=recovery)
    survive(wide, tmp_path, options, [(after(1, open_epoch=True), [1]), (after(3), [0])])
    assert shown(tmp_path) == expected(tmp_path, WINDOWS[window])


def test_keys_of_the_past_are_forgotten(tmp_path: Path) -> None:
    write_rows(tmp_path, files=160)
    topology = in_event_time(spread("forgetful", 1, 2, "record"), tmp_path)
    operators = [
        msgspec.structs.replace(op, ttl=Ttl("at", 100 * SECOND)) if op.kind is Kind.REDUCE else op
        for op in topology.operators
    ]
    timed = msgspec.structs.replace(topology, operators=tuple(operators))
    survive(timed, tmp_path, inline(tmp_path, recovery=Scope.LOCAL), [(after(2), [1])])
    assert Counter(str(row["key"]) for row in output_rows(tmp_path)) == {
        key: len(times) for key, times in times_by_key(tmp_path).items()
    }
    kept = [part for part in store(tmp_path).parts(store(tmp_path).latest() or 0) if part.operator == "counts"]
    assert sum(part.rows or 0 for part in kept) == 0
