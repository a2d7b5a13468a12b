"""What a task, a channel and an epoch are called: types, each with its text.

Text stands only at the edges (facts on disk, pages, JSON); `parse` reads what `str` writes, and nothing else. Messages
between processes have an id as an array of its fields. An id keeps its hash, since protocol, engine and simulator look
nearly everything up by one. This is the only module that cuts names apart. Where an epoch has a million channels, and a
name is only compared, the functions at the end glue and cut it without making an id.
"""

from __future__ import annotations

import re
from typing import Self

import msgspec

UNKNOWN = "?"
"""In place of a task at the end of a channel where the format does not tell which one it is."""

_SUBTASK = re.compile(r"0|[1-9][0-9]{0,17}")
_JOINT = re.compile(r"/(?:0|[1-9][0-9]{0,17})->")
"""Where the name of a sender ends: an operator may be called `a->b` or `a/b` (Flink takes any text), never `a/0->b`,
since a channel's name could then be read in two ways."""


def may_be_operator(name: str) -> bool:
    """Whether the names of an operator's tasks and channels can be told apart again."""
    return name != "" and ("->" not in name or _JOINT.search(name) is None)


class TaskId(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True, cache_hash=True):
    """`counts/1`: one of an operator's tasks. Ordered by operator, then by number; ValueError for what is none.

    operator: its id;
    subtask: from 0.
    """

    operator: str
    subtask: int

    def __post_init__(self) -> None:
        if not may_be_operator(self.operator):
            raise ValueError(f"{self.operator!r} is not an operator id")
        if not 0 <= self.subtask < 10**18:
            raise ValueError(f"{self.subtask} is not a task number")

    def __str__(self) -> str:
        return f"{self.operator}/{self.subtask}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The task with this name; ValueError where no task can have it."""
        operator, _, subtask = text.rpartition("/")
        if not operator or _SUBTASK.fullmatch(subtask) is None:
            raise ValueError(f"{text!r} is not a task")
        return cls(operator, int(subtask))


class ChannelId(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True, cache_hash=True):
    """`words/0->counts/1`: the channel from a task to a task. Ordered by sender, then by receiver."""

    sender: TaskId
    receiver: TaskId

    def __str__(self) -> str:
        return f"{self.sender}->{self.receiver}"

    @property
    def edge(self) -> tuple[str, str]:
        """The operators at its ends."""
        return self.sender.operator, self.receiver.operator

    @classmethod
    def parse(cls, text: str) -> Self:
        """The channel with this name; ValueError where no channel can have it."""
        joint = _JOINT.search(text)
        if joint is None:
            raise ValueError(f"{text!r} is not a channel")
        return cls(TaskId.parse(text[: joint.end() - 2]), TaskId.parse(text[joint.end() :]))


class HalfChannelId(msgspec.Struct, frozen=True, gc=False):
    """`?->counts/1`: a channel of which the format tells one end only, the other being None; ValueError otherwise."""

    sender: TaskId | None
    receiver: TaskId | None

    def __post_init__(self) -> None:
        if (self.sender is None) == (self.receiver is None):
            raise ValueError(f"{self} has not one end")

    def __str__(self) -> str:
        return channel_name(*(UNKNOWN if end is None else str(end) for end in (self.sender, self.receiver)))

    @property
    def edge(self) -> tuple[str, str]:
        """The operators at its ends, empty for the one that is not known."""
        return self.sender.operator if self.sender else "", self.receiver.operator if self.receiver else ""


AnyChannelId = ChannelId | HalfChannelId


class EdgeId(msgspec.Struct, frozen=True, gc=False):
    """`words->counts`: all channels to an operator from another; from several where they cannot be told apart:
    `evens+odds->counts`."""

    senders: tuple[str, ...]
    receiver: str

    def __str__(self) -> str:
        return edge_name("+".join(self.senders), self.receiver)


class EpochId(msgspec.Struct, frozen=True, order=True, gc=False):
    """One epoch among all copies of a store, which use the same numbers again.

    attempt_id: of the attempt that began it; empty where that is not known;
    number: from 0, which is the beginning of a job.
    """

    attempt_id: str
    number: int

    def __post_init__(self) -> None:
        if self.number < 0 or "/" in self.attempt_id:
            raise ValueError(f"{self} is not an epoch")

    def __str__(self) -> str:
        return f"{self.attempt_id}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The epoch with this text; ValueError where no epoch has it."""
        attempt_id, slash, number = text.partition("/")
        if not slash or _SUBTASK.fullmatch(number) is None:
            raise ValueError(f"{text!r} is not an epoch")
        return cls(attempt_id, int(number))


def task_name(operator: str, subtask: int) -> str:
    """`counts/1`, as `str` of its TaskId."""
    return f"{operator}/{subtask}"


def subtask_names(operator: str, parallelism: int) -> list[str]:
    """The names of all tasks of an operator, in order."""
    return [f"{operator}/{subtask}" for subtask in range(parallelism)]


def tasks_name(operator: str, subtasks: str) -> str:
    """`counts/0-3,7`: several tasks of an operator, from the text of their ranges."""
    return f"{operator}/{subtasks}"


def channel_name(sender: str, receiver: str) -> str:
    """`words/0->counts/1` from the names of two tasks, of which one may be unknown."""
    return f"{sender}->{receiver}"


def edge_name(sender: str, receiver: str) -> str:
    """`words->counts` from two operators, as `str` of their EdgeId."""
    return f"{sender}->{receiver}"


def operator_of(task: str) -> str:
    """`counts` of `counts/1`; empty for a name without a number, and for an end that is not known."""
    return task.rpartition("/")[0]


def ends_of(channel: str) -> tuple[str, str]:
    """`words/0`, `counts/1` of `words/0->counts/1`: the names at the ends of a channel, of which one may be unknown."""
    sender, _, receiver = channel.partition("->")
    if "->" in receiver and (joint := _JOINT.search(channel)) is not None:
        return channel[: joint.end() - 2], channel[joint.end() :]
    return sender, receiver


def edge_of(channel: str) -> tuple[str, str]:
    """`words`, `counts` of `words/0->counts/1`: the operators at its ends, empty where that is not known."""
    sender, receiver = ends_of(channel)
    return operator_of(sender), operator_of(receiver)
