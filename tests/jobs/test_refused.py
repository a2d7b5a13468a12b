"""What cannot be a job is refused at its line, before anything runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abscli import BadFile, Job, col, count
from tests.jobs.functions import step


def line_of(text: str) -> int:
    """The line of this file with that text in a comment."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return number


def mistake(error: BadFile) -> tuple[int, str, str | None]:
    (one,) = error.mistakes
    assert one.file.endswith("test_refused.py")
    return one.line, one.message, one.hint


def test_a_lambda_is_refused_at_its_line() -> None:
    with pytest.raises(BadFile) as caught:
        Job("j").text("in").map(lambda batch: batch)  # the lambda
    line, message, hint = mistake(caught.value)
    assert (line, message) == (line_of("the lambda"), "a lambda has no name under which a worker could import it")
    assert "def name(batch)" in str(hint)


@functools.lru_cache
def cached(batch: object) -> object:
    return batch


def other_name(batch: object) -> object:
    return batch


another_name, other_name = other_name, step


class Holder:
    def method(self, batch: object) -> object:
        return batch

    def __call__(self, batch: object) -> object:
        return batch


def inner() -> Any:
    def split(batch: object) -> object:
        return batch

    return split


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (inner(), "split is defined inside inner, where a worker cannot import it"),
        (Holder().method, "method is defined inside Holder, where a worker cannot import it"),
        (Holder(), "has no name under which a worker could import it"),
        (functools.partial(step), "has no name under which a worker could import it"),
        (another_name, "test_refused:other_name is another function than the one that was given, or none"),
        (3, "3 has no name"),
        (None, "None has no name"),
        (print, "print is in no file"),
    ],
)
def test_a_function_that_no_worker_can_import_is_refused(function: Any, message: str) -> None:
    with pytest.raises(BadFile, match=re.escape(message)):
        Job("j").text("in").map(function)


def test_a_function_that_is_wrapped_under_its_own_name_can_be_imported() -> None:
    job = Job("j")
    job.text("in").map(cached)
    assert job.topology.operators[1].function == "test_refused:cached"


def test_ids_that_clash_are_both_named() -> None:
    job = Job("j")
    lines = job.text("in")
    lines.map(step)  # the first step
    with pytest.raises(BadFile) as caught:
        lines.filter(step)  # the second step
    line, message, hint = mistake(caught.value)
    assert line == line_of("the second step")
    assert message == f"two operators have the id 'step': this filter, and the map of line {line_of('the first step')}"
    assert hint == "give one of them another with id=..."


def test_a_loop_that_is_not_closed_is_told_where_it_begins() -> None:
    job = Job("j")
    job.text("in").iterate().distinct("line")  # an open loop
    with pytest.raises(BadFile) as caught:
        job.read()
    line, message, _ = mistake(caught.value)
    assert (line, message) == (line_of("an open loop"), "this loop is never closed")


def test_what_closes_a_loop_has_to_come_from_it() -> None:
    job = Job("j")
    lines = job.text("in")
    loop = lines.iterate()
    loop.distinct("line")
    loop.closed_by(lines.map(step))
    with pytest.raises(BadFile, match=r"step does not come from the loop of line \d+: there is no cycle"):
        job.read()


def test_a_loop_that_only_closes_itself_is_none() -> None:
    job = Job("j")
    loop = job.text("in").iterate()
    loop.distinct("line")
    loop.closed_by(loop)
    with pytest.raises(BadFile, match="text does not come from the loop"):
        job.read()


def test_a_loop_is_closed_once() -> None:
    loop = Job("j").text("in").iterate()
    seen = loop.distinct("line")
    loop.closed_by(seen.map(step))
    with pytest.raises(BadFile, match=r"closed on line \d+ already"):
        loop.closed_by(seen)


def test_streams_of_two_jobs_do_not_meet() -> None:
    one, other = Job("one").text("in"), Job("other").text("in")
    for call in (lambda: one.merge(other), lambda: one.union(other), lambda: one.iterate().closed_by(other)):
        with pytest.raises(BadFile, match="two jobs, 'one' and 'other'"):
            call()


def test_one_stream_is_not_read_twice() -> None:
    job = Job("j")
    lines = job.text("in")
    lines.merge(lines.rebalance()).to_jsonl("out")
    with pytest.raises(BadFile, match="operator to_jsonl reads text twice"):
        job.read()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda lines: lines.map(step, id="1st"), "'1st' is not an operator id"),
        (lambda lines: lines.map(step, id=1), "1 is not an operator id"),
        (lambda lines: lines.map(step, parallelism=0), "parallelism must be"),
        (lambda lines: lines.map(step, parallelism=200), "parallelism 200 is above max_parallelism 128"),
        (lambda lines: lines.map(step, parallelism=[object()]), "is nothing that a job file can say"),
        (lambda lines: lines.map(step, wide=True), "unknown key 'wide'"),
        (lambda lines: lines.map("a b"), "must be module:function"),
        (lambda lines: lines.forward().map(step, parallelism=3), "forward from parallelism 1 to 3"),
        (lambda lines: lines.rebalance().distinct("line"), "needs hash, not rebalance"),
        (lambda lines: lines.distinct(), "names no column"),
        (lambda lines: lines.group_by("line").agg(), "has no output"),
        (lambda lines: lines.group_by(col("line")).agg(n=count()), "group_by: Column(name='line') is not a name"),
        (lambda lines: lines.group_by("line").agg(count()), "has no name"),
        (lambda lines: lines.group_by("line").agg(line=count()), "has the name of a key column"),
        (lambda lines: lines.group_by("line").agg(n="count"), "output n is 'count'"),
        (lambda lines: lines.group_by("line").agg({"emit": count()}), "an output cannot be called emit"),
        (lambda lines: lines.group_by("line").agg(n=count(), emit="now"), "emit"),
        (lambda lines: lines.to_jsonl(Path("out")), "is nothing that a job file can say"),
    ],
)
def test_what_no_job_file_may_say_is_refused_in_its_words(build: Callable[[Any], object], message: str) -> None:
    job = Job("j")

    def built() -> None:
        build(job.text("in"))
        job.read()

    with pytest.raises(BadFile, match=re.escape(message)) as caught:
        built()
    assert all(one.file.endswith("test_refused.py") for one in caught.value.mistakes)


def test_all_mistakes_are_told_at_once_each_at_its_line() -> None:
    job = Job("j")
    job.text("in").iterate().distinct("line")  # mistake one
    job.text("other", id="other", parallelism=0)  # mistake two
    with pytest.raises(BadFile) as caught:
        job.read()
    assert [one.line for one in caught.value.mistakes] == [line_of("mistake one"), line_of("mistake two")]


def test_a_join_of_anything_but_two_operators_is_refused_at_its_line() -> None:
    job = Job("j")
    one, other = job.text("a", id="a"), job.text("b", id="b")
    with pytest.raises(BadFile, match=r"test_refused\.py:[0-9]+.*a join is of two operators' rows"):
        one.join(one.merge(other), on="line", time="at")
