"""Repair of jobs whose keyed state waits for event time: what was due at the lost barrier is due at it again, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.stores.native.run import resume_from
from tests.support.jobs.damaged import assert_shown, clean, damage_state, killed, newest, repaired, stopped
from tests.support.jobs.repair import TIMED, opened, rows_of, run, write_input


def assert_goes_on_as_if_nothing_had_happened(folder: Path, epoch: int) -> None:
    """`run --resume` goes on from the epoch, and what comes out is what a job puts out that was left alone."""
    assert clean(folder)
    assert resume_from(str(folder / "store")).epoch == epoch
    job = opened(folder).job
    run(folder, job, from_epoch=epoch)
    assert clean(folder)
    undisturbed = folder.parent / "undisturbed"
    write_input(undisturbed, job)
    run(undisturbed, job)
    expected = rows_of(undisturbed, "out")
    assert expected
    assert rows_of(folder, "out") == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
@pytest.mark.parametrize("task", ["counts/0", "out/1", "rows0/0"])
@pytest.mark.parametrize("job", TIMED)
def test_an_epoch_that_a_sigkill_left_incomplete(tmp_path: Path, job: str, task: str, policy: str) -> None:
    for attempt in range(5):  # on a busy machine an epoch may be cut before any row comes out
        folder = tmp_path / str(attempt) / "job"
        epoch = killed(folder, job, task, policy=policy, epoch=6)
        done = repaired(folder)
        assert done["epoch"] == epoch
        if any(part.sink for part in opened(folder).parts(epoch)):
            break
    assert_shown(folder, epoch)
    assert_goes_on_as_if_nothing_had_happened(folder, epoch)


@pytest.mark.parametrize("job", TIMED)
def test_an_epoch_whose_state_is_damaged(tmp_path: Path, job: str) -> None:
    folder = stopped(tmp_path / "job", job, epochs=8)
    epoch = newest(folder)
    task = next(part.task_name for part in opened(folder).parts(epoch) if part.operator == "counts" and part.state)
    damage_state(folder, epoch, task)
    done = repaired(folder, epoch)
    assert done["epoch"] == epoch
    assert_goes_on_as_if_nothing_had_happened(folder, epoch)
