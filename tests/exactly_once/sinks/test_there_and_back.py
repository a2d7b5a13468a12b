"""A job that goes back behind what its sink has written, with `--take-over`, and later goes on from the branch that it
had left: what is there of that branch is not written a second time, and not taken for lost."""

from __future__ import annotations

from collections import Counter

from tests.exactly_once.sinks.test_renamed_sinks import broker, lines
from tests.support.jobs.lines import Lines
from tests.support.postgres import postgres_server

__all__ = ("broker", "lines", "postgres_server")


def test_a_branch_that_was_left_and_is_gone_on_from_is_there_once(lines: Lines) -> None:
    lines.run(epochs=4)
    epochs, before = lines.complete(), lines.shown()
    lines.run(from_epoch=epochs[1], take_over=True, epochs=1)
    middle = lines.shown()
    lines.run(from_epoch=epochs[-1], take_over=True)
    if lines.type == "jsonl":
        assert lines.wrong() == {}
        return
    if lines.type == "stdout":
        return  # which promises no more than that every row is there
    assert {line: n for line, n in lines.shown().items() if line in before} == {line: middle[line] for line in before}
    assert Counter(lines.wrong().keys()) <= Counter(middle.keys())
