"""A task's steps as words: what is written is read again, and what is no schedule is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.protocol.schedule import StepKind
from formats.native.schedules import KINDS, MOST_STEPS, MOST_WORDS, TakenStep, read_steps, write_steps

steps = st.builds(
    TakenStep, st.sampled_from(KINDS), st.integers(0, 2**32 - 1) | st.just(0), st.integers(0, 2**64 - 1) | st.just(7)
)


@given(st.lists(steps | st.just(TakenStep("r", 0, 7)), max_size=30))
def test_what_is_written_is_read_again(taken: list[TakenStep]) -> None:
    text = write_steps(taken)
    assert text is not None
    assert [step for step, times in read_steps(text) for _ in range(times)] == taken


def test_steps_that_follow_on_themselves_are_one_word() -> None:
    taken = [TakenStep("r", 1, 4096)] * 3 + [TakenStep("b", 0, 7), TakenStep("c", 0, 7), TakenStep("e", 0, 0)]
    assert write_steps(taken) == "r1:4096*3 b7 c7 e"


def test_every_kind_of_step_has_its_letter() -> None:
    letters = {kind.name: KINDS[kind - 1] for kind in StepKind}
    assert letters == {
        "RECORDS": "r", "BARRIER": "b", "TRIGGER": "t", "ABORT": "a", "STOP": "s", "END": "e", "TIMER": "x",
        "IDLE": "i", "EMPTY": "n", "COPIED": "c", "MARKED": "m", "WATERMARK": "w",
    }  # fmt: skip


def test_too_many_words_are_not_written() -> None:
    taken = [TakenStep("r", 0, 1 + i % 2) for i in range(MOST_WORDS + 1)]
    assert write_steps(taken) is None
    assert write_steps(taken[1:]) is not None


@pytest.mark.parametrize("text", ["r1:4096 q7", "r:1", "7", "r1:2:3", "r*", f"r1*{MOST_STEPS} r1", "r" + "9" * 21])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a step|more than"):
        list(read_steps(text))
