"""What operators and subtasks of Flink are called: by hash in its metadata, by uid where that is known.

Flink makes an operator's id of its uid, the 128-bit murmur for x64 of its UTF-8, and its metadata knows everything by
that hash. What the view calls an operator (`formats.ids`) may be its uid: that is another name, and another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NewType

import mmh3

from formats.ids import TaskId, task_name

_HASH = re.compile("[0-9a-f]{32}")

OperatorHash = NewType("OperatorHash", str)
"""The id of an operator, as Flink prints it: 32 hex digits."""

Names = Mapping[OperatorHash, str]
"""What the view calls an operator."""


class SubtaskId(NamedTuple):
    """`8eeed16b661251f13cfc6a3c5e75c420/1`: one of an operator's subtasks, from 0."""

    operator: OperatorHash
    subtask: int

    def __str__(self) -> str:
        return task_name(self.operator, self.subtask)

    def task(self, names: Names) -> TaskId:
        """What the view calls it."""
        return TaskId(names[self.operator], self.subtask)


class Edge(NamedTuple):
    """Which operator feeds which."""

    sender: OperatorHash
    receiver: OperatorHash


def hash_in(text: str) -> OperatorHash | None:
    """The hash that a text is; None if it is none."""
    return OperatorHash(text) if _HASH.fullmatch(text) else None


def operator_id(uid: str) -> OperatorHash:
    """The id of an operator that was given this uid."""
    # Bytes of a command line or file that are no UTF-8 are nobody's uid, and no error.
    return OperatorHash(mmh3.mmh3_x64_128_digest(uid.encode("utf-8", "surrogateescape")).hex())


def proved(uids: Iterable[str], ids: Iterable[OperatorHash]) -> dict[OperatorHash, str]:
    """Which of the guessed uids are those of operators that are there."""
    there = set(ids)
    return {id: uid for uid in uids if (id := operator_id(uid)) in there}
