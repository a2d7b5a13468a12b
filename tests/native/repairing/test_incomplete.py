"""Repair of an epoch without a manifest: it was lost, or the job died before all had acked."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from abscli.api import open_store, rebuild
from abscli.stores.native.restore import copy_epoch
from formats.errors import NoRecovery
from formats.native import layout
from formats.native.facts import PartFacts, seal, unseal
from formats.native.store import NativeStore
from formats.native.writer import put_trigger
from formats.storage import LocalStorage
from tests.support.jobs.damaged import (
    assert_goes_on_exactly,
    assert_shown,
    clean,
    damage_state,
    flip,
    killed,
    newest,
    part_of,
    repaired,
)
from tests.support.jobs.repair import opened, rows_of, run


@pytest.mark.parametrize("lose", ["flip", "delete"])
def test_a_manifest_that_is_lost_is_written_anew_from_the_list_of_parts(job: Path, lose: str) -> None:
    epoch = newest(job)
    path = job / "store" / layout.outcome(epoch)
    parts = opened(job).parts(epoch)
    flip(path) if lose == "flip" else path.unlink()
    done = repaired(job)
    assert (done["epoch"], done["repair"]["rerun"], done["repair"]["source_records"]) == (epoch, 0, 0)
    assert opened(job).parts(epoch) == parts
    assert opened(job).manifest(epoch).parent == epoch - 1
    assert_goes_on_exactly(job, epoch)


@pytest.mark.parametrize("away", ["copied", "removed"])
def test_a_manifest_that_is_lost_is_not_tied_to_an_epoch_that_was_not_its_parent(job: Path, away: str) -> None:
    """The one before it is not here, and what that one named is another's for ever if it is taken for given up."""
    store = opened(job)
    epoch = newest(job)
    parent = store.manifest(epoch).parent
    assert store.attempts()[-1].first_epoch <= parent
    if away == "copied":
        copy_epoch(store, epoch, str(job / "copy"))
        shutil.rmtree(job / "store")
        (job / "copy").rename(job / "store")
    else:
        open_store(job / "store").gc(keep=1, min_age=0)
    assert not opened(job).has_manifest(parent)
    (job / "store" / layout.outcome(epoch)).unlink()
    repaired(job, epoch)
    assert opened(job).manifest(epoch).parent == parent


def test_a_manifest_that_was_set_aside_with_the_books_is_written_anew_as_well(job: Path) -> None:
    """`abs rebuild` puts a fence in its place, so that nobody takes the number: all parts are still there."""
    epoch = newest(job)
    flip(job / "store" / layout.outcome(epoch))
    rebuild(job / "store", job=job / "job.json")
    assert opened(job).is_fenced(epoch)
    assert repaired(job, epoch)["repair"]["rerun"] == 0
    assert_goes_on_exactly(job, epoch)


def test_the_record_of_a_repair_is_missed_and_not_made_up(job: Path) -> None:
    damage_state(job, newest(job), "counts/0")
    repaired(job)
    (job / "store" / layout.attempt(2)).unlink()
    steps = rebuild(job / "store", job=job / "job.json", dry_run=True)
    assert "was a repair of epoch" in str(steps)


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_job_that_died_before_the_manifest_when_all_had_acked(tmp_path: Path, policy: str) -> None:
    """Nothing has to run: the parts are adopted, and what the sinks had staged is shown."""
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "manifest", policy=policy)
    parts = {part.task: part for part in opened(folder).parts(epoch)}
    assert len(parts) == 10
    plan = open_store(folder / "store").plan(repair=True)
    assert "Nothing has to run: every part is there" in str(plan)
    done = repaired(folder)
    assert (done["repair"]["rerun"], done["repair"]["adopted"], done["repair"]["source_records"]) == (0, 10, 0)
    for part in opened(folder).parts(epoch):
        assert (part.state, part.logs, part.sent) == (parts[part.task].state, parts[part.task].logs,
                                                      parts[part.task].sent)  # fmt: skip
    assert_goes_on_exactly(folder, epoch)


@pytest.mark.sample(2)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
@pytest.mark.parametrize(("task", "missing"), [("counts/0", 1), ("out/1", 1), ("lines/0", 1), ("counts/1", 4)])
def test_an_epoch_that_a_sigkill_left_incomplete(tmp_path: Path, policy: str, task: str, missing: int) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", task, policy=policy, missing=missing)
    lacking = next(row.missing for row in opened(folder).epochs() if row.epoch == epoch)
    assert task in map(str, lacking)
    done = repaired(folder)
    assert (done["epoch"], done["tasks"]) == (epoch, 10)
    assert_shown(folder, epoch)
    assert_goes_on_exactly(folder, epoch)


def test_what_a_repair_shows_belongs_to_it_and_stays_when_the_job_goes_back_and_forth(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    repaired(folder)
    shown = rows_of(folder, "raw")
    run(folder, "counting", from_epoch=epoch - 1, epochs=None)
    assert clean(folder)
    run(folder, "counting", from_epoch=epoch, epochs=None)
    assert clean(folder)
    assert set(shown) <= set(rows_of(folder, "raw"))
    words = [word for file in sorted((folder / "in").iterdir()) for word in file.read_text().split()]
    assert Counter(json.loads(row)["word"] for row in rows_of(folder, "raw")) == Counter(words)


def test_a_second_epoch_that_was_under_way_is_not_repaired_behind_one_that_was_made_anew(tmp_path: Path) -> None:
    """What its parts hold came after the epoch as it was, and not after what the repair made of it."""
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    store = opened(folder)
    trigger = store.trigger(epoch)
    assert trigger is not None
    put_trigger(store.storage, msgspec.structs.replace(trigger, epoch=epoch + 1))
    repaired(folder, epoch)
    with pytest.raises(NoRecovery, match=f"was taken after epoch {epoch}, which a repair has rewritten"):
        open_store(folder / "store").plan(epoch + 1, repair=True)


def test_what_a_repair_made_is_copied_removed_and_kept_as_everything_else(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    repaired(folder)
    plan = open_store(folder / "store").plan()
    assert plan.epoch == epoch
    shutil.copytree(folder, tmp_path / "copied" / "job")
    copy_epoch(opened(folder), epoch, str(tmp_path / "copied" / "job" / "other"))
    other = NativeStore(LocalStorage(tmp_path / "copied" / "job" / "other"))
    assert [a.repairs for a in other.attempts()] == [None, epoch]
    open_store(folder / "store").gc(keep=1, min_age=0)
    assert_goes_on_exactly(folder, epoch)
    open_store(folder / "store").gc(keep=1, min_age=0)
    assert clean(folder)


def test_an_ack_that_is_damaged_is_one_that_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "counting", "counts/0")
    part = part_of(folder, epoch, "raw/0")
    path = folder / "store" / layout.ack(epoch, "raw/0", part.attempt_id)
    assert unseal(path.read_bytes(), PartFacts, str(path)) == part
    path.write_bytes(seal(part)[:-9] + b"12345678\n")
    repaired(folder)
    assert_goes_on_exactly(folder, epoch)
