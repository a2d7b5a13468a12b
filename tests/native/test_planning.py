"""Plans from a store of our own: which epoch, why no other one, and what is not carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.stores.native.plan import plan_failed, plan_recovery
from abscli.stores.native.restore import check_plan
from abscli.stores.reasons import NoPlan
from formats.errors import NoRecovery, UnknownTask
from formats.native import layout
from formats.native.plan import PlanKind
from formats.native.store import NativeStore
from formats.storage import MemoryStorage, absolute
from tests.support.stores.small import FIRST, Build, make_store

INCOMPLETE = "is incomplete: not acked by 2 of its tasks, seen/1, out/0"


@pytest.fixture
def build() -> Build:
    """Epochs 1, 2 and 4 complete, 3 given up, 5 incomplete."""
    return make_store(MemoryStorage())


@pytest.fixture
def store(build: Build) -> NativeStore:
    return NativeStore(build.storage)


def garble(build: Build, epoch: int) -> None:
    build.storage.put(layout.tasks_file(epoch, FIRST), b"garbage", replace=True)


def test_the_newest_whole_epoch_is_planned_for_and_why_not_a_newer_one(build: Build, store: NativeStore) -> None:
    plan = plan_recovery(store)
    assert (plan.body.epoch, [(row.epoch, row.reason) for row in plan.body.skipped]) == (4, [(5, INCOMPLETE)])
    garble(build, 4)
    plan = plan_recovery(store)
    (_, incomplete), (_, reason_4), (_, reason_3) = [(row.epoch, row.reason) for row in plan.body.skipped]
    assert (plan.body.epoch, incomplete) == (2, INCOMPLETE)
    assert reason_4.startswith("is damaged: ")
    assert reason_3.startswith("was aborted: ")


def test_an_epoch_that_is_asked_for_and_is_not_whole_is_refused_with_the_one_that_is(
    build: Build, store: NativeStore
) -> None:
    refused = plan_recovery(store, epoch=5)
    assert isinstance(refused, NoPlan)
    assert refused.message == f"epoch 5 cannot be restored: it {INCOMPLETE}"
    assert "epoch 4 is the newest intact epoch" in str(refused.hint)
    for epoch in (1, 2, 4):
        garble(build, epoch)
    refused = plan_recovery(store, epoch=2)
    assert isinstance(refused, NoPlan)
    assert refused.message.startswith("epoch 2 cannot be restored: it is damaged")
    assert "no other epoch is intact" in str(refused.hint)
    refused = plan_recovery(store)
    assert isinstance(refused, NoPlan)
    assert refused.message.startswith("no epoch is intact")
    error = refused.error()
    assert (error.message, error.path, error.hint) == (refused.message, store.path, refused.hint)


def test_a_part_that_is_not_to_be_used_leads_to_an_older_epoch(store: NativeStore) -> None:
    plan = plan_recovery(store, distrust=["seen/0"])
    assert (plan.body.epoch, plan.body.skipped[1].reason) == (2, "holds the part of seen/0, which is distrusted")
    assert plan_recovery(store, distrust=["seen/0"], below=2).body.epoch == 1
    with pytest.raises(UnknownTask, match="has no task 'seen/9'"):
        plan_recovery(store, distrust=["seen/9"])


def test_a_plan_for_some_tasks_of_a_running_job_is_not_carried_out(store: NativeStore) -> None:
    plan = plan_failed(store, ["seen/0"])
    assert (plan.body.kind, plan.body.base_epoch) == (PlanKind.PARTIAL, 4)
    with pytest.raises(NoRecovery, match="abs restore cannot execute a partial plan"):
        check_plan(plan, store)


def test_a_plan_names_its_store_for_whoever_carries_it_out_elsewhere() -> None:
    assert absolute("a/../store") == str(Path.cwd() / "store")
    assert absolute("file:/a/b") == absolute("file:///a/b") == "/a/b"
    assert absolute("s3://bucket/a/../store") == "s3://bucket/a/../store"
