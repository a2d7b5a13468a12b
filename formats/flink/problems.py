"""What reading a checkpoint finds wrong, before anybody judges it."""

from __future__ import annotations

import msgspec

from formats.ids import AnyChannelId, TaskId


class StreamProblem(msgspec.Struct, frozen=True):
    """Something in a checkpoint that is not as it should be.

    code: a word of the check's findings.
    """

    code: str
    task: TaskId | None
    channel: AnyChannelId | None
    path: str | None
    message: str


class StreamResult(msgspec.Struct, frozen=True):
    """What came of reading: one handle's streams to the end, or all of a checkpoint for one question.

    unchecked: (code, why) of what could not be looked at.
    """

    problems: tuple[StreamProblem, ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()
