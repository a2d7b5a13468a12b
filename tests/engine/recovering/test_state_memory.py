"""State larger than the memory that is given: workers are lost, and the results are those of a job with all of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.engine.losses.decisions import Scope
from formats.storage import LocalStorage
from tests.engine.recovering.test_live import STORE, on_spark, survive
from tests.support.jobs.inline import stop_after
from tests.support.jobs.kills import after, check_counted, fan, write_rows
from tests.support.jobs.small import (
    countdown,
    inline,
    last_counts,
    output_pairs,
    output_rows,
    reach,
    write_countdown,
    write_graph,
)

pytestmark = pytest.mark.minutes

LITTLE = 10_000
"""Bytes: less than the state of any of these jobs, of which some is always on disk."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_lost_worker_leaves_every_count_exact(tmp_path: Path, policy: str, scope: Scope) -> None:
    counts = write_rows(tmp_path)
    options = inline(tmp_path, policy=policy, recovery=scope, state_memory=LITTLE)
    survive(fan(), tmp_path, options, [(after(2, open_epoch=True), [1])])
    check_counted(tmp_path, counts)


@pytest.mark.sample(1)
@pytest.mark.parametrize("scope", [Scope.SUBGRAPH, Scope.LOCAL])
def test_what_an_epoch_puts_out_comes_once(tmp_path: Path, scope: Scope) -> None:
    counts = write_rows(tmp_path)
    options = inline(tmp_path, max_concurrent=2, interval=0.03, recovery=scope, state_memory=LITTLE)
    survive(fan("epoch"), tmp_path, options, [(after(2, open_epoch=True), [1]), (after(4, open_epoch=True), [0])])
    rows = [(str(row["key"]), int(str(row["n"]))) for row in output_rows(tmp_path)]
    assert len(rows) == len(set(rows))
    assert {key: max(n for k, n in rows if k == key) for key, _ in rows} == counts


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_of_distinct_pairs_is_exact(tmp_path: Path, policy: str) -> None:
    pairs = write_graph(tmp_path, turning=True)
    options = inline(tmp_path, policy=policy, state_memory=LITTLE)
    survive(reach(), tmp_path, options, [(after(2, open_epoch=True), [1])])
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    options = inline(tmp_path, policy="at-least-once", state_memory=LITTLE)
    survive(countdown(), tmp_path, options, [(after(2, open_epoch=True), [0])])
    assert all(last_counts(tmp_path, "id")[id] >= count for id, count in counts.items())


@pytest.mark.soak
@pytest.mark.parametrize("scope", Scope)
def test_a_python_worker_gets_sigkill_and_leaves_no_file(tmp_path: Path, spark: Any, scope: Scope) -> None:
    counts = write_rows(tmp_path)
    options = on_spark(tmp_path, spark, recovery=scope, state_memory=LITTLE)
    survive(fan(), tmp_path, options, [(after(2, open_epoch=True), [1])])
    check_counted(tmp_path, counts)
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("abs-state")]


@pytest.mark.parametrize("memory", [None, LITTLE])
def test_a_stopped_job_goes_on_with_more_tasks_and_other_memory(tmp_path: Path, memory: int | None) -> None:
    """Files that were written under one limit are read under another, and a task has key groups of several."""
    counts = write_countdown(tmp_path, files=10, turning=True)
    before = inline(tmp_path, state_memory=LITTLE if memory is None else None)
    stopping, _ = stop_after(3)
    epoch = run_job(countdown(), str(tmp_path / STORE), before, **stopping).epoch
    epoch = publish(LocalStorage(tmp_path / STORE), Rescale(epoch, countdown(3), str(tmp_path)))
    options = inline(tmp_path, from_epoch=epoch, workers=3, state_memory=memory)
    survive(countdown(3), tmp_path, options, [(after(2), [0])])
    assert last_counts(tmp_path, "id") == counts
