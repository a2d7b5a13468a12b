"""The order of a task's steps from one copy to the next, as the facts of a part have it: a word a step.

A word is the letter of a kind, the number of the input and a colon where that is not 0, the number where that is not 0,
and `*` with how often where the same step was taken several times: `r1:4096*3 b7 b1:7 c7`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

RECORDS, BARRIER, COPIED = "r", "b", "c"
KINDS = "rbtasexinc" + "mw"
"""The letters, by the number of the kind from 1: records taken, barrier, trigger, abort, stop, end, timer, idle, empty
poll, copied, marked, watermark."""

MOST_STEPS = 1 << 20
"""Of one part. What claims to be more is none of ours."""

MOST_WORDS = 1 << 14
"""Of one part: where there are more, none are written."""

_WORD = re.compile(rf"([{KINDS}])(?:(\d{{1,10}}):)?(\d{{1,20}})?(?:\*(\d{{1,7}}))?")


class TakenStep(NamedTuple):
    """kind: a letter of KINDS. channel: the place of an input among the task's, of a split at a source, or 0. number:
    of records, of an epoch."""

    kind: str
    channel: int
    number: int


def write_steps(steps: Iterable[TakenStep]) -> str | None:
    """The words; None where they are too many."""
    words = []
    for step, run in groupby(steps):
        times = sum(1 for _ in run)
        channel = f"{step.channel}:" if step.channel else ""
        words.append(f"{step.kind}{channel}{step.number or ''}" + (f"*{times}" if times > 1 else ""))
    return " ".join(words) if len(words) <= MOST_WORDS else None


def read_steps(text: str) -> Iterator[tuple[TakenStep, int]]:
    """Each step, and how often it was taken; ValueError for what is no schedule."""
    total = 0
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word[:40]!r} is not a step")
        kind, channel, number, times = match.groups()
        total += int(times or 1)
        if total > MOST_STEPS:
            raise ValueError(f"more than {MOST_STEPS} steps")
        yield TakenStep(kind, int(channel or 0), int(number or 0)), int(times or 1)
