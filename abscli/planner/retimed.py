"""What operators do by other times than in the epoch that a job goes on from: their state keeps what it has by those
that they had then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from formats.durations import span_text
from formats.job.model import Join, Operator, Topology, Window


class Retimed(NamedTuple):
    """One thing that is another one. was, now: as texts."""

    operator: str
    name: str
    was: str
    now: str


def retimed(old: Topology, new: Topology, heirs: Mapping[str, str]) -> Iterator[Retimed]:
    """heirs: which operators go on, and as which."""
    after = {op.id: op for op in new.operators}
    for op in old.operators:
        heir = after.get(heirs.get(op.id, ""))
        if heir is not None:
            was, now = _times(op), _times(heir)
            for name in was:
                if name in now and was[name] != now[name]:
                    yield Retimed(heir.id, name, was[name], now[name])


def _times(operator: Operator) -> dict[str, str]:
    times: dict[str, str] = {}
    if operator.join:
        times |= _of_join(operator.join)
    if operator.window:
        times |= _of_window(operator.window)
    if operator.kept.time is not None:
        times["time"] = operator.kept.time
    if operator.ttl:
        times |= {"ttl": span_text(operator.ttl.after), "time": operator.ttl.time}
    return times


def _of_join(join: Join) -> dict[str, str]:
    return {
        "within": f"{span_text(join.before)} before to {span_text(join.after)} after",
        "lateness": span_text(join.lateness),
        "time": " and ".join(dict.fromkeys(join.time)),
        "left": join.left,
        "how": join.how.value,
    }


def _of_window(window: Window) -> dict[str, str]:
    every = f" every {span_text(window.every)}" if window.every is not None else ""
    return {
        "window": f"{window.kind} {span_text(window.size)}{every}",
        "lateness": span_text(window.lateness),
        "time": window.time,
    }
