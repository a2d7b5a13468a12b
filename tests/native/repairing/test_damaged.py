"""Repair of what is damaged or distrusted: it is made again as it was, proved, and the job goes on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abscli.api import open_store
from formats.errors import NoRecovery
from formats.native.store import NativeStore, files_of
from formats.view import Status
from tests.support.commands import result_of, run_command
from tests.support.jobs.damaged import (
    assert_goes_on_exactly,
    damage_state,
    flip,
    hold_ack,
    make,
    newest,
    part_of,
    repair_later,
    repaired,
    stopped,
)
from tests.support.jobs.repair import Pace, opened, run


def test_a_state_file_is_made_again_and_the_neighbours_stay(job: Path) -> None:
    epoch = newest(job)
    path = damage_state(job, epoch, "counts/0")
    broken = (job / "store" / path).read_bytes()
    before = {str(part.task): part for part in opened(job).parts(epoch)}
    shown = {file.name: file.read_bytes() for sink in ("out", "raw") for file in (job / sink).glob("part-*")}
    done = repaired(job)
    assert done["epoch"] == epoch
    assert (done["repair"]["rerun"], done["repair"]["adopted"]) == (6, 4)
    assert done["repair"]["dropped"] > 0
    store = opened(job)
    after = {str(part.task): part for part in store.parts(epoch)}
    stayed = {"counts/1", "raw/0", "raw/1", "out/1"}
    assert {task for task, part in after.items() if part == before[task]} >= stayed
    assert after["counts/0"].state[-1].path != path
    assert after["counts/0"].rows == before["counts/0"].rows
    assert (job / "store" / "quarantine" / path).read_bytes() == broken
    assert [(a.kind, a.repairs) for a in store.attempts()] == [("run", None), ("repair", epoch)]
    assert store.manifest(epoch).attempt == 2
    # What readers saw is what they see.
    assert {file.name: file.read_bytes() for sink in ("out", "raw") for file in (job / sink).glob("part-*")} == shown
    assert_goes_on_exactly(job, epoch)


def test_files_of_older_epochs_are_referred_to_and_never_touched(job: Path) -> None:
    epoch = 3  # of the first ones none holds the whole state again
    damage_state(job, epoch, "counts/0")
    store = job / "store"
    older = {path: (store / path).read_bytes() for n in opened(job).epoch_numbers() if n < epoch
             for part in opened(job).parts(n) for file in files_of(part) for path in [file.path]}  # fmt: skip
    repaired(job, epoch)
    assert {path: (store / path).read_bytes() for path in older} == older
    assert any(file.path in older for file in part_of(job, epoch, "counts/0").state)


def test_an_epoch_in_the_middle_is_repaired_where_later_ones_refer_to_it(job: Path) -> None:
    epoch = newest(job) - 1
    path = damage_state(job, epoch, "counts/0")
    refers = any(file.path == path for file in part_of(job, epoch + 1, "counts/0").state)
    done = repaired(job, epoch)
    assert done["epoch"] == epoch
    # Where a later epoch refers to the damaged file it stays, and that epoch needs a repair of its own.
    assert (job / "store" / path).exists() is refers
    if refers:
        assert repaired(job)["epoch"] == epoch + 1
    assert_goes_on_exactly(job, epoch + 1)


def test_several_tasks_and_the_list_of_a_second_repair(job: Path) -> None:
    epoch = newest(job)
    for task in ("counts/0", "counts/1"):
        damage_state(job, epoch, task)
    assert repaired(job)["repair"]["rerun"] == 8
    damage_state(job, epoch, "counts/1")
    assert repaired(job)["repair"]["rerun"] == 6
    assert [a.kind for a in opened(job).attempts()] == ["run", "repair", "repair"]
    assert_goes_on_exactly(job, epoch)


def test_over_an_epoch_that_is_damaged_too_and_has_shown_its_output(job: Path) -> None:
    epoch = newest(job)
    for number in (epoch, epoch - 1):
        damage_state(job, number, "counts/0")
    shown = {file.name: file.read_bytes() for sink in ("out", "raw") for file in (job / sink).glob("part-*")}
    plan = open_store(job / "store").plan(repair=True)
    assert (plan.plan.body.epoch, plan.plan.body.base_epoch) == (epoch, epoch - 2)
    assert repaired(job)["repair"]["base_epoch"] == epoch - 2
    assert {file.name: file.read_bytes() for sink in ("out", "raw") for file in (job / sink).glob("part-*")} == shown
    assert repaired(job, epoch - 1)["repair"]["base_epoch"] == epoch - 2
    assert_goes_on_exactly(job, epoch)


def test_over_an_epoch_that_was_given_up(tmp_path: Path) -> None:
    """Its barrier is where it was: the sink has a part of it, which the next complete epoch named."""
    folder = make(tmp_path / "job", "counting")
    with pytest.MonkeyPatch.context() as patch:
        pace = Pace()
        pace.install(lambda target, name, value: patch.setattr(target, name, value))
        hold_ack(patch, folder, "counts/1", 3)
        run(folder, "counting", epochs=4, pace=pace, epoch_timeout=0.5)
    status = {row.epoch: row.status for row in opened(folder).epochs()}
    assert status[3] is Status.ABORTED
    epoch = min(number for number, how in status.items() if number > 3 and how is Status.COMPLETE)
    assert any(len(part.sink) > 1 for part in opened(folder).parts(epoch))
    damage_state(folder, epoch, "counts/0")
    assert repaired(folder, epoch)["repair"]["base_epoch"] == 2
    with pytest.raises(NoRecovery, match="was aborted"):
        open_store(folder / "store").plan(3, repair=True)
    repair_later(folder, epoch)
    assert_goes_on_exactly(folder, newest(folder))


def test_the_first_epoch_of_an_attempt_from_the_last_of_the_one_before(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "job", "counting", epochs=2)
    parent = newest(folder)
    with pytest.MonkeyPatch.context() as patch:
        pace = Pace()
        pace.install(lambda target, name, value: patch.setattr(target, name, value))
        run(folder, "counting", epochs=2, pace=pace, from_epoch=parent)
    epoch = opened(folder).attempts()[-1].first_epoch
    damage_state(folder, epoch, "counts/0")
    assert repaired(folder, epoch)["repair"]["base_epoch"] == parent
    repair_later(folder, epoch)
    assert_goes_on_exactly(folder, newest(folder))


def test_from_the_beginning_where_no_epoch_before_it_is_whole(job: Path) -> None:
    epoch = newest(job)
    for number in opened(job).epoch_numbers():
        flip(job / "store" / opened(job).manifest(number).tasks_file.path) if number < epoch else None
    damage_state(job, epoch, "counts/0")
    # What the sink had shown of the epochs before is theirs: only what it shows of this one can be compared.
    plan = open_store(job / "store").plan(repair=True)
    assert plan.plan.body.base_epoch == 0
    with pytest.raises(NoRecovery, match="does not come out as it was"):
        plan.prepare(job=job / "job.json").carry_out()


def test_a_part_that_is_distrusted_is_made_again_and_comes_out_the_same(job: Path) -> None:
    epoch = newest(job)
    done = repaired(job, epoch, distrust=("counts/1",))
    assert (done["repair"]["rerun"], done["repair"]["adopted"]) == (6, 4)
    assert_goes_on_exactly(job, epoch)


def test_a_source_whose_part_is_distrusted_is_stopped_by_what_others_counted(job: Path) -> None:
    epoch = newest(job)
    before = part_of(job, epoch, "lines/0").positions
    done = repaired(job, epoch, distrust=("lines/0",))
    assert done["repair"]["rerun"] >= 1
    assert part_of(job, epoch, "lines/0").positions == before
    assert_goes_on_exactly(job, epoch)


def test_a_chain_whose_parts_are_distrusted_is_stopped_by_what_its_end_counted(job: Path) -> None:
    epoch = newest(job)
    before = part_of(job, epoch, "lines/1").positions
    repaired(job, epoch, distrust=("lines/1", "words/1"))
    assert part_of(job, epoch, "lines/1").positions == before
    assert_goes_on_exactly(job, epoch)


def test_the_state_is_row_by_row_what_it_was(job: Path) -> None:
    """Against the state before the damage, whatever the order of the rows in the files."""
    epoch = newest(job)

    def rows(store: NativeStore) -> list[dict[str, Any]]:
        batches = store.state(epoch, "counts")
        return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: str(row["word"]))

    before = rows(opened(job))
    damage_state(job, epoch, "counts/0")
    repaired(job)
    assert rows(opened(job)) == before
    assert next(row for row in opened(job).epochs() if row.epoch == epoch).status is Status.COMPLETE


def test_what_the_commands_say_of_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    epoch = newest(job)
    damage_state(job, epoch, "counts/0")
    plan = job / "plan.json"
    code, out, _ = run_command("plan-recovery", capsys, job / "store", "--strategy", "repair", "--out", plan)
    assert code == 0
    assert f"epoch {epoch} of" in out
    assert "Run again: 6 of 10 tasks" in out
    assert f"Next: abs restore {plan} --job JOB" in out
    done = result_of("restore", capsys, plan, "--job", job / "job.json", "--yes", "-q")
    assert done["repair"]["source_records"] > 0
    code, out, err = run_command("plan-recovery", capsys, job / "store", "--strategy", "repair")
    assert (code, out) == (4, "")
    assert f"epoch {epoch}, the newest, is intact" in err
    damage_state(job, epoch, "counts/0")
    (job / "suffix").write_text("x")
    run_command("plan-recovery", capsys, job / "store", "--strategy", "repair", "--out", plan)
    code, out, err = run_command("restore", capsys, plan, "--job", job / "job.json", "--yes")
    assert (code, out) == (4, "")
    assert "put the code and the source files back" in err or "run with the code" in err
