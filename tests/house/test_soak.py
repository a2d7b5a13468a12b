"""The third tier in pieces: what has passed is not run again, and a piece ends when its time is over."""

from __future__ import annotations

from pathlib import Path

from tests.soak import Passed, run_piece


def test_a_piece_goes_on_behind_what_has_passed(tmp_path: Path) -> None:
    kept, ran = tmp_path / "kept" / "commit", list[str]()

    def run(name: str) -> bool:
        ran.append(name)
        return name != "b"

    assert run_piece(["a", "b", "c"], Passed(kept), 60, run) == ["b"]
    assert run_piece(["a", "b", "c"], Passed(kept), 60, run) == ["b"]
    assert ran == ["a", "b", "c", "b"]
    assert Passed(kept).names == {"a", "c"}


def test_a_piece_without_time_runs_one_file(tmp_path: Path) -> None:
    passed = Passed(tmp_path / "commit")
    for done in range(1, 4):
        assert run_piece(["a", "b", "c"], passed, 0, lambda name: True) == []
        assert len(passed.names) == done


def test_nothing_is_kept_of_a_tree_with_changes() -> None:
    passed = Passed(None)
    assert run_piece(["a"], passed, 60, lambda name: True) == []
    assert Passed(None).names == set()
