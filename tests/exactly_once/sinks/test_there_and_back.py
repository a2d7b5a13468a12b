"""A job rolls back past committed rows with `--take-ownership`, and later resumes from the branch that it had left: the
rows of that branch are neither written again nor reported as missing. A sink gets another target and then the first
target again: each row is in one of them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from abscli.engine.errors import UsageError
from tests.exactly_once.sinks.test_renamed_sinks import lines
from tests.support.jobs.kinds import SERVED, Kinds
from tests.support.jobs.lines import Gate, Lines, write_lines

__all__ = ("lines",)


def test_a_branch_that_was_left_and_is_gone_on_from_is_there_once(lines: Lines) -> None:
    lines.run(epochs=4)
    epochs, before = lines.complete(), lines.shown()
    lines.run(from_epoch=epochs[1], take_ownership=True, epochs=1)
    middle = lines.shown()
    lines.run(from_epoch=epochs[-1], take_ownership=True)
    if lines.type == "jsonl":
        assert lines.wrong() == {}
        return
    if lines.type == "stdout":
        return  # stdout may show a row twice
    assert {line: n for line, n in lines.shown().items() if line in before} == {line: middle[line] for line in before}
    assert Counter(lines.wrong().keys()) <= Counter(middle.keys())


PAIRS = (
    "jsonl to jsonl", "delta to delta", "iceberg to iceberg", "delta to stdout", "stdout to delta", "jsonl to iceberg",
    "upsert to upsert", "postgres to postgres", "delta to postgres", "bucket to bucket", "kafka to kafka",
    "kafka to jsonl",
)  # fmt: skip


@pytest.fixture(
    params=[
        pytest.param(pair, marks=pytest.mark.integration) if {*pair.split()} & {*SERVED} else pair for pair in PAIRS
    ]
)
def places(tmp_path: Path, kinds: Kinds, request: pytest.FixtureRequest) -> tuple[Lines, Lines]:
    """A job with one sink, and the same job with another sink."""
    write_lines(tmp_path, 10)
    first, second = request.param.split(" to ")
    return kinds.lines(first, tmp_path, "one"), kinds.lines(second, tmp_path, "two")


@pytest.mark.cell("F", "exact")
@pytest.mark.sample(6)
@pytest.mark.parametrize("keep", [1, 10])
def test_a_sink_that_gets_another_target_and_then_the_first_again_has_each_row_in_one_of_them(
    places: tuple[Lines, Lines], keep: int
) -> None:
    first, second = places
    first.run(epochs=3, keep=keep)
    second.resume(epochs=3, keep=keep)
    in_second = second.shown()
    first.resume(epochs=2, keep=keep)
    assert second.shown() == in_second
    second.resume(keep=keep)
    due = Counter(line for file in (first.folder / "in").iterdir() for line in file.read_text().splitlines())
    assert first.shown() + second.shown() == due


def test_a_target_that_was_moved_is_gone_on_with(tmp_path: Path, gate: Gate) -> None:
    write_lines(tmp_path, 10)
    before, after = Lines(tmp_path, gate, "one", "delta"), Lines(tmp_path, gate, "moved/one", "delta")
    before.run(epochs=3, keep=1)
    (tmp_path / "moved").mkdir()
    (tmp_path / "one").rename(tmp_path / "moved" / "one")
    after.resume(epochs=2, keep=1)
    after.resume(keep=1)
    assert after.wrong() == {}


@pytest.mark.cell("I", "exact", "jsonl", "bucket", "postgres", "upsert", "delta", "iceberg", "kafka")
def test_an_older_copy_of_the_store_that_takes_over_writes_nothing_of_its_own_again(lines: Lines) -> None:
    """The marks of its epochs have been replaced by those of newer ones when it comes back."""
    if lines.type == "stdout":
        pytest.skip("stdout may show a row twice")
    shutil.rmtree(lines.folder / "in")
    write_lines(lines.folder, 20)
    lines.run(epochs=2, keep=3)
    lines.resume(epochs=1, keep=3)
    store, kept = lines.folder / "a", lines.folder / "kept"
    shutil.copytree(store, kept)
    before = lines.shown()
    lines.resume(epochs=1, keep=1)
    lines.resume(epochs=1, keep=1)
    shutil.rmtree(store)
    shutil.copytree(kept, store)
    with pytest.raises(UsageError):
        lines.resume(epochs=1, keep=3)
    lines.resume(keep=3, take_ownership=True)
    assert {line: n for line, n in lines.shown().items() if line in before} == before
    if lines.type == "jsonl":
        assert lines.wrong() == {}
