"""Ids and their text: what `str` writes `parse` reads, and nothing else; the cuts without an id agree with it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.ids import (
    UNKNOWN,
    ChannelId,
    EpochId,
    HalfChannelId,
    TaskId,
    channel_name,
    edge_of,
    ends_of,
    may_be_operator,
    operator_of,
    subtask_names,
    task_name,
)

OPERATORS = st.one_of(st.text("ab01/->?.\n", min_size=1, max_size=8), st.text(min_size=1)).filter(may_be_operator)
"""As Flink has them: any text. Ours have a narrower alphabet."""
TASKS = st.builds(TaskId, OPERATORS, st.integers(0, 10**18 - 1))
CHANNELS = st.builds(ChannelId, TASKS, TASKS)
EPOCHS = st.builds(EpochId, st.sampled_from(["", "0" * 32, "9f" * 16]), st.integers(0, 10**10 - 1))


@given(TASKS)
def test_a_task_is_read_as_it_is_written(task: TaskId) -> None:
    assert TaskId.parse(str(task)) == task
    assert str(task) == task_name(task.operator, task.subtask)
    assert operator_of(str(task)) == task.operator


@given(CHANNELS)
@example(ChannelId(TaskId("a->b", 0), TaskId("c/d", 1)))
@example(ChannelId(TaskId("a", 0), TaskId("->b", 1)))
@example(ChannelId(TaskId("a/01->b/0", 7), TaskId("c->d", 1)))
def test_a_channel_is_read_as_it_is_written(channel: ChannelId) -> None:
    text = str(channel)
    assert ChannelId.parse(text) == channel
    assert text == channel_name(str(channel.sender), str(channel.receiver))
    assert ends_of(text) == (str(channel.sender), str(channel.receiver))
    assert edge_of(text) == channel.edge == (channel.sender.operator, channel.receiver.operator)


@given(TASKS)
def test_an_end_that_is_not_known_is_told_from_a_task(task: TaskId) -> None:
    assert ends_of(channel_name(str(task), UNKNOWN)) == (str(task), UNKNOWN)
    assert ends_of(channel_name(UNKNOWN, str(task))) == (UNKNOWN, str(task))
    assert edge_of(channel_name(UNKNOWN, str(task))) == ("", task.operator)
    assert edge_of(channel_name(UNKNOWN, UNKNOWN)) == ("", "")


@given(CHANNELS)
def test_a_message_has_a_channel_as_its_two_ends(channel: ChannelId) -> None:
    body = msgspec.json.encode(channel)
    (sender, subtask), receiver = msgspec.json.decode(body)
    assert (sender, subtask, receiver[0], receiver[1]) == (
        channel.sender.operator, channel.sender.subtask, channel.receiver.operator, channel.receiver.subtask
    )  # fmt: skip
    assert msgspec.json.decode(body, type=ChannelId) == channel


@pytest.mark.parametrize("body", [b'["",0]', b'["a",-1]', b'["a/0->b",0]', b'"a/0"', b'["a"]', b'["a","0"]'])
def test_a_message_with_a_task_that_cannot_be_is_none(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=TaskId)


@given(TASKS, st.booleans())
def test_a_channel_with_one_end_has_the_name_and_the_edge_of_what_is_known(task: TaskId, sends: bool) -> None:
    half = HalfChannelId(task if sends else None, None if sends else task)
    assert ends_of(str(half)) == ((str(task), UNKNOWN) if sends else (UNKNOWN, str(task)))
    assert half.edge == edge_of(str(half))


def test_a_channel_with_both_ends_or_none_is_not_one_with_one_end() -> None:
    for end in (None, TaskId("a", 0)):
        with pytest.raises(ValueError, match="has not one end"):
            HalfChannelId(end, end)


@given(EPOCHS)
def test_an_epoch_is_read_as_it_is_written(epoch: EpochId) -> None:
    assert EpochId.parse(str(epoch)) == epoch


@given(st.one_of(st.text("ab01/->?", max_size=12), st.text()))
def test_what_is_read_is_written_the_same(text: str) -> None:
    for kind in (TaskId, ChannelId, EpochId):
        try:
            id = kind.parse(text)
        except ValueError:
            continue
        assert str(id) == text


@pytest.mark.parametrize("text", ["", "a", "/0", "a/", "a/x", "a/01", "a/-1", "a/+1", "a/1 ", "a/1\n", "a/٣", "?"])
def test_what_is_no_task(text: str) -> None:
    with pytest.raises(ValueError, match="is not a task"):
        TaskId.parse(text)


@pytest.mark.parametrize("text", ["", "->", "a/0", "a/0->", "->a/0", "a->b", "a/0->b", "a/0->b/0->c/0", "?->a/0"])
def test_what_is_no_channel(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an? "):
        ChannelId.parse(text)


@pytest.mark.parametrize(("operator", "subtask"), [("", 0), ("a/0->b", 0), ("a", -1), ("a", 10**18)])
def test_what_cannot_be_made(operator: str, subtask: int) -> None:
    with pytest.raises(ValueError, match=r"is not an? "):
        TaskId(operator, subtask)


def test_tasks_are_ordered_by_number_and_are_keys() -> None:
    tasks = [TaskId("a", 10), TaskId("a", 2), TaskId("A", 3)]
    assert sorted(tasks) == [tasks[2], tasks[1], tasks[0]]
    assert {TaskId("a", 2): 1}[TaskId("a", 2)] == 1
    assert subtask_names("a", 3) == ["a/0", "a/1", "a/2"]
    with pytest.raises(AttributeError):
        tasks[0].subtask = 1  # type: ignore[misc]
