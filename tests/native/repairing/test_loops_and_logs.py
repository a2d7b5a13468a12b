"""Repair of a task in a loop, and of what was on its way at the cut."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from formats.job.expand import task_ids
from formats.native.facts import LogFacts, PartFacts
from formats.native.state.tables import decode_log
from tests.support.jobs.damaged import (
    assert_goes_on_exactly,
    damage_state,
    flip,
    killed,
    make,
    newest,
    part_of,
    repaired,
)
from tests.support.jobs.repair import JOBS, Pace, opened, run


def test_a_task_of_a_loop_takes_the_loop_with_it(tmp_path: Path) -> None:
    """What goes round depends on when the loop is cut: all of it runs again, and everything behind it."""
    folder = tmp_path / "job"
    epoch = killed(folder, "reach", "out/1")
    damage_state(folder, epoch, "pairs/0")
    done = repaired(folder)
    assert (done["repair"]["rerun"], done["repair"]["adopted"]) == (len(task_ids(JOBS["reach"]())), 0)
    assert_goes_on_exactly(folder, epoch)


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_that_died_while_an_epoch_was_being_taken(tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "reach", "pairs/1", policy=policy)
    done = repaired(folder)
    assert (done["epoch"], done["repair"]["adopted"]) == (epoch, 0)
    assert_goes_on_exactly(folder, epoch)


def with_log_of_words(place: Path) -> tuple[Path, tuple[int, PartFacts, LogFacts]]:
    """A job that was stopped, and the newest of its epochs that cut a channel to `words` on which something was; most
    runs have one: when workers take what was sent is theirs."""
    for number in range(20):
        folder = make(place / f"job-{number}", "counting")
        with pytest.MonkeyPatch.context() as patch:
            pace = Pace(chunks=12)
            pace.install(lambda target, name, value: patch.setattr(target, name, value))
            run(folder, "counting", policy="unaligned", epochs=3, pace=pace)
        store = opened(folder)
        logs = [
            (epoch, part, log)
            for epoch in store.epoch_numbers() for part in store.parts(epoch) if part.operator == "words"
            for log in part.logs if log.file is not None
        ]  # fmt: skip
        if logs:
            return folder, logs[-1]
    raise AssertionError("no run was cut with something on its way")


@pytest.mark.parametrize("believed", [True, False])
def test_a_log_of_a_channel_is_made_again_record_by_record(tmp_path: Path, believed: bool) -> None:
    """Unaligned, and sources are in the middle of reading at the cut: what was on its way then is so again. Where the
    task's own numbers are not believed, those of its receivers say where it was cut."""
    folder, (epoch, part, log) = with_log_of_words(tmp_path)
    assert log.file is not None
    before = decode_log((folder / "store" / log.file.path).read_bytes(), log.file.path)
    flip(folder / "store" / log.file.path)
    done = repaired(folder, epoch, distrust=() if believed else (part.task_name,))
    assert done["repair"]["rerun"] == 2
    made = part_of(folder, epoch, part.task_name)
    assert (made.sent, made.received) == (part.sent, part.received)
    after = next(new for new in made.logs if new.channel == log.channel)
    assert after.file is not None
    assert after.file.path != log.file.path
    rows = decode_log((folder / "store" / after.file.path).read_bytes(), after.file.path)
    assert pa.Table.from_batches(rows).equals(pa.Table.from_batches(before))
    assert_goes_on_exactly(folder, newest(folder))


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_log_of_a_back_edge_takes_its_loop_with_it(tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "job"
    epoch = killed(folder, "reach", "out/0", policy=policy)
    logs = [log for part in opened(folder).parts(epoch) for log in part.logs if log.file is not None]
    for log in logs[:1]:
        assert log.file is not None
        flip(folder / "store" / log.file.path)
    assert repaired(folder)["repair"]["adopted"] == 0
    assert_goes_on_exactly(folder, epoch)
