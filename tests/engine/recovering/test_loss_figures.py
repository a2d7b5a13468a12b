"""The figures of a lost worker (tests/bench/engine/bench_loss.py) follow from what tasks write down."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest

from formats.native.hashing import key_groups
from tests.support.intervals import median_interval
from tests.support.jobs.loss import (
    MAX_PARALLELISM,
    WIDTH,
    Epoch,
    Input,
    Line,
    figures,
    is_steady,
    read_lines,
    with_new_rows,
    write_input,
)

BEGIN, KILLED = 1000.0, 1010.0
NEXT = Epoch(KILLED + 2.5, KILLED + 3.0)
ROWS = Input(Path("in"), keys=(50,) * WIDTH, backlog=50, rate=100)
"""Ten rows are due every tenth of a second."""


def steps(task: int, pid: int, first: int, last: int, at: float | None = None, kind: str = "keyed") -> list[Line]:
    """Ten rows a line, when they were due, or all `at`."""
    return [
        Line(BEGIN + ROWS.due(n + 9) + 0.01 if at is None else at, pid, kind, task, task, 10, n, n + 9, 0)
        for n in range(first, last, 10)
    ]


def by_time(*lines: list[Line]) -> list[Line]:
    return sorted((line for part in lines for line in part), key=lambda line: line.at)


def killed_after_ten_seconds(survivor: list[Line]) -> list[Line]:
    """Task 1 reached row 1,049, and comes again from row 840 after two seconds, at once up to date."""
    read = steps(1, 11, 0, 1050, kind="read") + steps(1, 21, 840, 1250, KILLED + 2.0, kind="read")
    again = steps(1, 21, 840, 1250, KILLED + 2.0) + steps(1, 21, 1250, 1500)
    return by_time(steps(1, 11, 0, 1050), read, again, survivor)


def test_the_key_range_is_back_with_the_first_row_that_its_task_had_not_processed() -> None:
    lines = killed_after_ten_seconds(steps(0, 10, 0, 1500))
    result = figures(lines, [Epoch(KILLED - 1.0, KILLED + 0.1), NEXT], KILLED, 11, ROWS, BEGIN)
    assert result.first_row == result.all_sources == pytest.approx(2.0)
    assert result.epoch == pytest.approx(3.0)
    assert result.read_again == result.keyed_again == 1050 - 840
    assert result.over


def test_who_goes_on_keeps_its_rate_and_is_on_time() -> None:
    result = figures(killed_after_ten_seconds(steps(0, 10, 0, 1500)), [NEXT], KILLED, 11, ROWS, BEGIN)
    assert result.kept == pytest.approx(1.0, abs=0.06)
    assert result.on_time == 1.0
    assert result.pause == pytest.approx(0.1, abs=0.01)


def test_who_goes_back_and_catches_up_keeps_rows_but_is_late() -> None:
    survivor = steps(0, 10, 0, 1050) + steps(0, 10, 840, 1250, KILLED + 1.9) + steps(0, 10, 1250, 1500)
    result = figures(killed_after_ten_seconds(survivor), [NEXT], KILLED, 11, ROWS, BEGIN)
    assert result.kept == pytest.approx(1.0, abs=0.06)
    assert result.on_time is not None
    assert result.on_time < 0.25  # those that were due just before
    assert result.pause == pytest.approx(1.9, abs=0.05)
    assert result.keyed_again == 2 * (1050 - 840)


def test_who_stands_still_keeps_nothing() -> None:
    survivor = steps(0, 10, 0, 1050) + steps(0, 10, 1050, 1500, KILLED + 2.5)
    result = figures(killed_after_ten_seconds(survivor), [], KILLED, 11, ROWS, BEGIN)
    assert result.kept == 0.0
    assert result.on_time == 0.0
    assert result.epoch is None
    assert not result.over


def test_a_range_that_does_not_come_back_is_no_figure() -> None:
    lines = by_time(steps(1, 11, 0, 1050), steps(0, 10, 0, 1500))
    result = figures(lines, [], KILLED, 11, ROWS, BEGIN)
    assert (result.first_row, result.all_sources, result.as_fresh, result.kept) == (None,) * 4


def test_a_job_is_steady_when_all_its_tasks_keep_up() -> None:
    all_tasks = [steps(task, 10, 0, 1500) for task in range(WIDTH)]
    now = KILLED + 1.0
    assert is_steady(by_time(*all_tasks), now, ROWS, BEGIN)
    assert not is_steady(by_time(*all_tasks[1:]), now, ROWS, BEGIN)
    caught_up = [steps(task, 10, 0, 850, KILLED - 2.0) + steps(task, 10, 850, 1500) for task in range(WIDTH)]
    assert not is_steady(by_time(*caught_up), now, ROWS, BEGIN)
    late = [steps(task, 10, 0, 1500, KILLED + 0.9) for task in range(WIDTH)]
    assert not is_steady(by_time(*late), now, ROWS, BEGIN)


def test_rows_of_a_line_that_reaches_beyond_count_in_part() -> None:
    lines = [Line(1.0, 1, "keyed", 0, 0, 10, 0, 9, 0), Line(2.0, 2, "keyed", 0, 0, 10, 5, 14, 0)]
    assert [new for _, new in with_new_rows(lines)] == [10, 5]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "7").write_text("1.5 7 keyed 1 2 10 0 9 0\n2.5 7 keyed 1 2 10 1")
    assert read_lines(tmp_path) == [Line(1.5, 7, "keyed", 1, 2, 10, 0, 9, 0)]


@pytest.mark.parametrize("shuffled", [False, True])
def test_sources_go_round_over_keys_of_their_own(tmp_path: Path, shuffled: bool) -> None:
    rows = write_input(tmp_path / "in", keys=1000, rate=100, batch=50, seconds=4, shuffled=shuffled)
    names = sorted(path.name for path in rows.folder.iterdir())
    seen: set[int] = set()
    for source in range(WIDTH):
        table = pa.concat_tables([pj.read_json(rows.folder / name) for name in names[source::WIDTH]])
        ids, keys = table["id"].to_numpy(), table["key"].to_numpy()
        assert ids.tolist() == [n * WIDTH + source for n in range(len(ids))]
        own = rows.keys[source]
        assert rows.backlog >= own
        assert keys[own:].tolist() == keys[: len(keys) - own].tolist()
        assert not seen & set(keys.tolist())
        seen |= set(keys.tolist())
        groups = key_groups([pa.array(np.unique(keys))], MAX_PARALLELISM).astype(int)
        assert set((groups * WIDTH // MAX_PARALLELISM).tolist()) == (set(range(WIDTH)) if shuffled else {source})
    assert seen == set(range(1000))




def test_an_interval_is_between_the_order_statistics_of_the_sign_test() -> None:
    values = [float(n) for n in range(1, 21)]
    random.Random(1).shuffle(values)
    assert median_interval(values) == (6.0, 15.0)
    assert median_interval(values[:0]) is None


@pytest.mark.parametrize(("count", "enough"), [(5, False), (6, True)])
def test_five_values_are_too_few_for_95_percent(count: int, enough: bool) -> None:
    assert (median_interval([float(n) for n in range(count)]) is not None) == enough


@pytest.mark.parametrize("count", [6, 11, 20])
def test_the_median_is_inside_as_often_as_is_said(count: int) -> None:
    drawn = random.Random(count)
    tries = [median_interval([drawn.random() for _ in range(count)]) for _ in range(2_000)]
    assert sum(interval is not None and interval[0] <= 0.5 <= interval[1] for interval in tries) > 0.94 * len(tries)
