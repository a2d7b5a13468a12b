"""Random sequences of runs, kills, backups, roll-backs and exchanged targets on each kind of sink: every step is exact
or refused. The soak tier plays them for ten minutes per sink."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.engine.sinks import file_publisher
from abscli.planner import target
from abscli.protocol.committer import Obstacle, Permissions
from tests.exactly_once.sinks.sequences import KILLS, Sequence
from tests.support.jobs.kinds import Kinds, cases
from tests.support.jobs.lines import write_lines

EPOCHS = 30
SECONDS = float(os.environ.get("SEQUENCE_SECONDS", 600))
"""Seconds for which the soak tier plays each kind of sink."""
SEED = int(os.environ.get("SEQUENCE_SEED", 1))
"""The first seed of the soak tier."""

EACH = pytest.mark.parametrize("kind", cases(KILLS))


@pytest.fixture
def begin(kind: str, tmp_path: Path, kinds: Kinds) -> Callable[[int], Sequence]:
    """A function that begins the sequence of a seed, in a folder and on targets of its own."""

    def sequence(seed: int) -> Sequence:
        folder = tmp_path / str(seed)
        write_lines(folder, EPOCHS)
        names = ("one", "two") if seed % 3 == 0 and kind != "stdout" else ("one",)
        first, *others = [kinds.lines(kind, folder, name) for name in names]
        return Sequence(first, kind, seed, tuple(others))

    return sequence


@pytest.mark.cell("O", "exact or refused", *(kind for kind in KILLS if kind != "stdout"))
@pytest.mark.cell("O", "at least once", "stdout")
@pytest.mark.parametrize(
    "kind", [*cases(kind for kind in KILLS if kind != "kafka"), pytest.param("kafka", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_every_step_of_a_random_sequence_is_exact_or_refused(begin: Callable[[int], Sequence], seed: int) -> None:
    begin(seed).play(steps=6)


def nothing(*arguments: object) -> None:
    """Find nothing."""


def permit(permissions: Permissions, obstacle: Obstacle) -> bool:
    """Permit what the user permits, and foreign commits."""
    return obstacle is Obstacle.FOREIGN or permissions.accept_missing


FAULTS: dict[str, tuple[object, str, Callable[..., object], str]] = {
    "rows that the target lacks are not looked for": (target, "find_gap", nothing, "delta"),
    "files that the folder lacks are not looked for": (file_publisher, "find_gap_in_files", nothing, "jsonl"),
    "foreign commits are not refused": (Permissions, "permit", permit, "delta"),
}
"""A function, what the fault replaces it by, and the kind of sink to search on."""
SEARCHED = 60
"""Sequences within which a planted fault is found; usually it is one of the first five."""


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(fault, kind, marks=pytest.mark.soak) for fault, (_, _, _, kind) in FAULTS.items()
    ],
)
def test_a_planted_fault_is_found(
    begin: Callable[[int], Sequence], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, replacement, _ = FAULTS[fault]
    monkeypatch.setattr(owner, name, replacement)

    def play_all() -> None:
        for seed in range(SEARCHED):
            begin(seed).play(steps=20)

    with pytest.raises(AssertionError, match=r"rows (are lost|are there twice|of complete epochs are not there)"):
        play_all()


@pytest.mark.soak
@EACH
def test_random_sequences_of_ten_minutes_with_fifty_kills(
    begin: Callable[[int], Sequence], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = time.monotonic() + SECONDS
    kills = refusals = validations = steps = played = 0
    for seed in itertools.count(SEED):
        if time.monotonic() > end:
            break
        sequence = begin(seed)
        sequence.play(steps=20)
        kills, refusals = kills + sequence.kills, refusals + sequence.refusals
        validations, steps, played = validations + sequence.validations, steps + len(sequence.steps), played + 1
        shutil.rmtree(tmp_path / str(seed))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}: {played} sequences from seed {SEED} on, {steps} steps, {kills} kills, {refusals} refusals, "
            f"{validations} validations without a finding; 0 rows lost, 0 twice\n"
        )
    assert kills >= min(50, SECONDS // 20)
