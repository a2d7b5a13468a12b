"""Repair of epochs with dead letters: they are made again as they were, and each is shown once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support.jobs.damaged import clean, damage_state, killed, newest, part_of, repair_later, repaired, stopped
from tests.support.jobs.repair import Pace, opened, rows_of, run


def check(folder: Path) -> None:
    """To its end: every line's words are shown, or the line is a dead letter."""
    run(folder, "poisoned", from_epoch=newest(folder))
    assert clean(folder)
    lines = [line for file in sorted((folder / "in").iterdir()) for line in file.read_text().splitlines()]
    words = Counter(word for line in lines if "w7" not in line for word in line.split())
    assert Counter(json.loads(row)["word"] for row in rows_of(folder, "raw")) == words
    poison = [line for line in lines if "w7" in line]
    assert poison
    assert sorted(json.loads(json.loads(row)["record"])["line"] for row in rows_of(folder, "dead")) == sorted(poison)


def test_a_complete_epoch_is_proved_by_its_dead_letters_too(tmp_path: Path) -> None:
    folder = stopped(tmp_path, "poisoned")
    epoch = next(n for n in range(2, newest(folder) + 1) if part_of(folder, n, "words/0").sink)
    damage_state(folder, epoch, "counts/0")
    before = {file.name: file.read_bytes() for file in (folder / "dead").glob("part-*")}
    done = repaired(folder, epoch)
    assert done["epoch"] == epoch
    assert {file.name: file.read_bytes() for file in (folder / "dead").glob("part-*")} == before
    repair_later(folder, epoch)
    check(folder)


def test_an_epoch_of_an_attempt_that_went_on_is_proved(tmp_path: Path) -> None:
    """Its first epoch has not the number behind that from which it went on, and letters name their epoch."""
    folder = stopped(tmp_path, "poisoned", epochs=2)
    before = newest(folder)
    with pytest.MonkeyPatch.context() as patch:
        pace = Pace()
        pace.install(lambda target, name, value: patch.setattr(target, name, value))
        run(folder, "poisoned", from_epoch=before, epochs=2, pace=pace)
    first = opened(folder).attempts()[-1].first_epoch
    assert first > before + 1
    # The first one with letters: on a busy machine an epoch may end before its sources have read a line.
    epochs = [epoch for epoch in opened(folder).epoch_numbers() if epoch >= first]
    epoch = next(epoch for epoch in epochs if any(part_of(folder, epoch, f"words/{i}").sink for i in range(2)))
    damage_state(folder, epoch, "counts/0")
    assert repaired(folder, epoch)["epoch"] == epoch
    repair_later(folder, epoch)
    check(folder)


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", ["words/0", "counts/1"])
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_an_epoch_that_was_not_complete_shows_its_dead_letters_once(tmp_path: Path, task: str, policy: str) -> None:
    epoch = killed(tmp_path, "poisoned", task, policy=policy)
    shown = {file.name for file in (tmp_path / "dead").glob("part-*")}
    repaired(tmp_path, epoch)
    parts = [file.name for i in range(2) for file in part_of(tmp_path, epoch, f"words/{i}").sink]
    assert parts
    assert not shown.intersection(parts)
    assert all((tmp_path / "dead" / name).exists() for name in parts)
    check(tmp_path)
