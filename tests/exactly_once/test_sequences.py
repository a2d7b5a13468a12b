"""Any sequence of runs, kills, steps back, copies and take-overs on one sink: after each, every line that the newest
epoch has read is visible once, and no other; or what was asked for is refused and nothing has changed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.engine import attempt, journal
from abscli.engine.errors import UsageError
from abscli.engine.io import outputs
from abscli.stores.native.plan import newest_whole
from tests.support.lines_job import Gate, Lines, write_lines

STEPS = 7
PLACES: tuple[tuple[object, str], ...] = (
    (journal, "put_trigger"),
    (journal, "complete"),
    (outputs.Outputs, "reveal"),
    (attempt, "put_attempt"),
    (attempt, "put_fence"),
    (outputs, "_move"),
    (outputs, "_publish"),
    (outputs.Outputs, "_claim"),
    (outputs.Outputs, "_bring_in"),
)
"""Where the process may end: before or after each call of these."""


class Killed(BaseException):
    """The process has ended here: nothing that it would have written is written any more."""


class Sequence:
    """One seeded sequence on two stores, `a` and a copy of it, and one sink."""

    def __init__(self, lines: Lines, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.lines = lines
        self.random = random.Random(seed)
        self.owner = "a"
        self.patch = patch
        self.seen: Counter[str] = Counter()

    def shown_is_what_the_newest_epoch_has_read(self) -> None:
        """By the positions of the epoch that the owner of the sink would go on from."""
        detail, _ = newest_whole(self.lines.store(self.owner))
        read = {
            position.split: position.records or 0
            for operator in detail.operators for task in operator.tasks for position in task.position or ()
        }  # fmt: skip
        due: Counter[str] = Counter()
        for split, records in read.items():
            due.update((self.lines.folder / split).read_text().splitlines()[:records])
        assert self.lines.shown() == due

    def run(self) -> None:
        """The owner goes on: to the end, or until it is stopped or killed."""
        store = self.lines.folder / self.owner
        goal = self.random.choice([1, 2, 3, None])
        start = self.start(store)
        kill_at = self.random.randrange(1, 25) if self.random.random() < 0.4 else None
        try:
            with pytest.MonkeyPatch.context() as patch:
                if kill_at is not None:
                    self.kill_at(kill_at, patch)
                self.lines.run(self.owner, epochs=goal, from_epoch=start, take_over=True)
        except Killed:
            self.seen["killed"] += 1
        else:
            self.seen["ended"] += 1
            self.shown_is_what_the_newest_epoch_has_read()

    def start(self, store: Path) -> int | None:
        complete = self.lines.complete(self.owner) if (store / "abs-store.json").exists() else []
        if not complete:
            return 0 if store.exists() else None
        if self.random.random() < 0.3:
            self.seen["back"] += 1
            return self.random.choice(complete)
        return newest_whole(self.lines.store(self.owner))[0].facts.epoch

    def kill_at(self, n: int, patch: pytest.MonkeyPatch) -> None:
        """Let the n-th call of any of the places be the last thing that the process does, or does not do any more."""
        left = n
        after = self.random.random() < 0.5

        def ending(plain: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left == 0 and not after:
                    raise Killed
                value = plain(*arguments, **options)
                if left == 0:
                    raise Killed
                return value

            return call

        for where, name in PLACES:
            patch.setattr(where, name, ending(getattr(where, name)))

    def copy(self) -> None:
        """A copy of the owner's store, which is as it is now, in place of the other one."""
        other = "b" if self.owner == "a" else "a"
        shutil.rmtree(self.lines.folder / other, ignore_errors=True)
        if (self.lines.folder / self.owner).exists():
            shutil.copytree(self.lines.folder / self.owner, self.lines.folder / other)

    def change_hands(self) -> None:
        """The other store, which stands where it was copied or where it was left, goes on instead."""
        other = "b" if self.owner == "a" else "a"
        if not (self.lines.folder / other / "abs-store.json").exists() or not self.lines.complete(other):
            return
        if self.lines.sink.visible():
            before = {p: p.stat().st_ino for p in (self.lines.folder / "out").rglob("part-*")}
            try:
                self.lines.resume(other, epochs=1)
            except UsageError:
                self.seen["refused"] += 1
                assert {p: p.stat().st_ino for p in (self.lines.folder / "out").rglob("part-*")} == before
        self.owner = other
        self.seen["hands"] += 1


@pytest.mark.parametrize("seed", range(10))
def test_any_sequence_is_exactly_once_or_refused(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path, 25)
    gate = Gate()
    gate.install(monkeypatch.setattr)
    sequence = Sequence(Lines(tmp_path, gate), seed, monkeypatch)
    for _ in range(STEPS):
        sequence.run()
        step = sequence.random.random()
        if step < 0.3:
            sequence.copy()
        elif step < 0.6:
            sequence.change_hands()
    complete = sequence.lines.complete(sequence.owner)
    if complete:
        sequence.lines.resume(sequence.owner, take_over=True)
    else:
        sequence.lines.run(sequence.owner, from_epoch=0, take_over=True)
    assert sequence.lines.wrong() == {}
