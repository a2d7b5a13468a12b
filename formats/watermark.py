"""Watermarks: how far event time has come. Microseconds since 1970 in UTC; None where nothing is known of it yet."""

from __future__ import annotations

from collections.abc import Iterable

from formats.timestamps import event_moment

END = 2**63 - 1
"""Of what is at its end: no record comes any more."""

IDLE = END - 1
"""Of what has had nothing for a while: it says nothing about event time, and keeps nobody waiting. Between tasks only:
a task's own watermark stays where it was."""

DUE = "__due"
"""The column of a state that says at which event time an operator looks at a row once more."""

LOWEST, HIGHEST = -(2**63), IDLE - 1
"""Of event times."""


def watermark_text(watermark: int | None) -> str | None:
    """For people and scripts: RFC 3339, or `end`; None where nothing is known."""
    if watermark is None:
        return None
    return "end" if watermark == END else event_moment(watermark)


def lowest(watermarks: Iterable[int | None]) -> int | None:
    """Of several tasks together: None where of one of them nothing is known, or there is none."""
    each = list(watermarks)
    return None if None in each else min((w for w in each if w is not None), default=None)
