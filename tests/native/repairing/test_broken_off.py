"""A repair that is killed before any of its changes: nothing is lost, and the next one ends it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from abscli.api import open_store, read_plan
from abscli.stores.native.run import resume_from
from tests.commands.test_jobs import fingerprint
from tests.support.jobs.damaged import (
    assert_exact,
    assert_goes_on_exactly,
    assert_shown,
    clean,
    damage_state,
    killed,
    newest,
    process,
    repaired,
)
from tests.support.jobs.repair import opened, run


def killed_at_every_change(folder: Path, scratch: Path, step: int) -> int:
    """The repair of the plan in `folder`, killed before its first change of the file system, before its next, and so
    on, each time on a copy; and carried out to its end after each. How often it was killed."""
    place, n = scratch / "job", 1
    while True:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        done = process(place, "restore", n)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            return (n - 1) // step
        if n % 2:
            assert read_plan(place / "plan.json").prepare(job=place / "job.json").carry_out()
            assert clean(place), n
            assert_shown(place, newest(place))
            assert not list((place / "store").glob(".tmp-*")), n
        else:
            run(place, opened(place).job, from_epoch=resume_from(str(place / "store")).epoch)
            assert_exact(place)
        n += step


@pytest.mark.integration
def test_a_repair_of_a_damaged_file_that_is_killed_at_any_step(counted: Path, tmp_path: Path) -> None:
    place = tmp_path / "work" / "job"
    shutil.copytree(counted, place)
    epoch = newest(place)
    damage_state(place, epoch, "counts/0")
    open_store(place / "store").plan(repair=True).save(place / "plan.json")
    shutil.copytree(place, tmp_path / "kept")
    assert killed_at_every_change(tmp_path / "kept", place.parent, step=8) > 3
    assert newest(place) == epoch
    assert_goes_on_exactly(place, epoch)


@pytest.mark.soak
def test_a_repair_of_an_incomplete_epoch_that_is_killed_at_any_step(tmp_path: Path) -> None:
    place = tmp_path / "work" / "job"
    epoch = killed(place, "counting", "counts/0")
    open_store(place / "store").plan(repair=True).save(place / "plan.json")
    shutil.copytree(place, tmp_path / "kept")
    assert killed_at_every_change(tmp_path / "kept", place.parent, step=14) > 3
    assert_goes_on_exactly(place, epoch)


def test_a_repair_that_is_carried_out_twice_has_nothing_left_to_do(job: Path) -> None:
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    repaired(job)
    before = fingerprint(job / "store")
    again = read_plan(job / "plan.json").prepare(job=job / "job.json").carry_out().to_json()
    assert again["epoch"] == epoch
    assert fingerprint(job / "store") == before
