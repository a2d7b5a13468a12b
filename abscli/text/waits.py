"""Messages about sources and sinks that wait, and about what takes longer because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abscli.engine.waits import Doing
from abscli.text.columns import counted, some

if TYPE_CHECKING:
    from abscli.engine.telemetry.news import SlowSink, WatermarkHeld
    from abscli.engine.waits import Wait

_NAMED = 3
"""Splits and operators that a message names."""


def wait_text(wait: Wait) -> str:
    """Return a message such as `sink out has waited 5 s for kafka:orders: connection refused`."""
    if wait.doing is Doing.STORE:
        reason = f": {wait.reason}" if wait.reason else ""
        return f"{wait.operator} has waited {wait.seconds:.0f} s for the store {wait.target}{reason}"
    kind = "source" if wait.is_source else "sink"
    waited = f"{kind} {wait.operator} has waited {wait.seconds:.0f} s"
    if wait.doing is Doing.READ:
        return f"{waited}: {wait.reason}; the job continues without new rows of this source"
    target = wait.target or "its target"
    if wait.reason:
        return f"{waited} for {target}: {wait.reason}"
    if wait.doing in (Doing.FIND, Doing.ASK):
        return f"{waited} for an answer from {target}"
    rows = counted(wait.rows, "row")
    done = f"it is publishing {rows} to {target}"
    if wait.doing is Doing.STAGE:
        done = f"it is staging {rows} for {target}"
    return f"epoch {wait.epoch} has waited {wait.seconds:.0f} s for sink {wait.operator}: {done}"


def continues_text(wait: Wait) -> str:
    """Return a message such as `sink out continues, after 21 s`."""
    kind = "" if wait.doing is Doing.STORE else "source " if wait.is_source else "sink "
    return f"{kind}{wait.operator} continues, after {wait.seconds:.0f} s"


def slow_sink_text(slow: SlowSink) -> str:
    """Return a message such as `epochs take 2.1 s, with an interval of 0.5 s: sink out takes 2.0 s of that`."""
    return (
        f"epochs take {slow.epoch_seconds:.1f} s, with an interval of {slow.interval:g} s: sink {slow.sink} takes "
        f"{slow.seconds:.1f} s of that to stage and publish its rows"
    )


def held_text(held: WatermarkHeld) -> str:
    """Return a message such as `source clicks holds back the watermark: b.jsonl has had no rows for 12 s`."""
    quiet = some(held.splits, _NAMED) if held.splits else "it"
    waiting = some(held.waiting, _NAMED)
    wait = "waits" if len(held.waiting) == 1 else "wait"
    return (
        f"source {held.source} holds the watermark back: no rows have come from {quiet} for {held.seconds:.0f} s; "
        f"{waiting} {wait} for event time, although other inputs have rows"
    )


def held_hint(held: WatermarkHeld) -> str:
    """Return how to have the watermark advance without the input."""
    return f"set `idle: 30s` in the event_time of source {held.source}: inputs without rows for that long do not count"
