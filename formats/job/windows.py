"""What an operator's entry says of windows of event time, and of how long a key is kept."""

from __future__ import annotations

from typing import Any

from formats.durations import duration_text
from formats.job.event_time import duration
from formats.job.model import Ttl, Window, WindowKind
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node
from formats.user_file.values import Record, shape

_TIME = "the column with the time of each row's event"
_RECORD = Record(
    {
        "time": read.string,
        **{kind.value: duration for kind in WindowKind},
        "every": duration,
        "lateness": duration,
    },
    {"time": _TIME},
    descriptions={
        "time": "Its type is a timestamp or a date.",
        "tumbling": "How long a window is; each begins where the one before ends.",
        "sliding": "How long a window is; one begins after every so long.",
        "session": "How long a key has had no row when its window ends.",
        "every": "After how long the next sliding window begins.",
        "lateness": "For how long behind its end a window still takes rows; it is put out again when it has.",
    },
)


@shape("window", **_RECORD.schema, minProperties=2)
def window(node: Node, label: str, mistakes: Mistakes) -> Window | None:
    """The windows of a `reduce`."""
    values = _RECORD.read(node, label, mistakes)
    if values is None or not isinstance(node, Mapping):
        return None
    kinds = [kind for kind in WindowKind if kind in node.pairs]
    if len(kinds) != 1:
        message = f"{label} must have one of {', '.join(WindowKind)}, not {len(kinds)} of them"
        mistakes.add(node, message, "for example tumbling: 10s")
        return None
    size, every = values.get(kinds[0]), values.get("every")
    if kinds[0] is WindowKind.SLIDING and "every" not in node.pairs:
        mistakes.add(node, f"{label}: every is missing", "after how long the next window begins, such as every: 1m")
        return None
    if kinds[0] is not WindowKind.SLIDING and "every" in node.pairs:
        mistakes.add(node.pairs["every"][1], f"{label}: every is for sliding windows, and these are {kinds[0]}")
        return None
    if values["time"] is None or size is None or None in (values.get(name, 0) for name in ("every", "lateness")):
        return None
    if every is not None and every > size:
        message = f"{label}: a window of {size // 1000:,} ms every {every // 1000:,} ms leaves rows out"
        mistakes.add(node.pairs["every"][1], message, "let every be as long as the window at most")
        return None
    if every is not None and size > MOST_PANES * every:
        message = f"{label}: each row is in {-(-size // every):,} windows, {MOST_PANES:,} are the most"
        mistakes.add(node.pairs["every"][1], message, "let windows begin less often")
        return None
    return Window(values["time"], kinds[0], size, every, values.get("lateness", 0))


MOST_PANES = 1_000
"""Windows of which one row can be a part."""

_TTL = Record({"time": read.string, "after": duration}, {"time": _TIME, "after": "how long, such as after: 1h"})


@shape("ttl", **_TTL.schema)
def ttl(node: Node, label: str, mistakes: Mistakes) -> Ttl | None:
    """How long a key is kept behind its latest row."""
    values = _TTL.read(node, label, mistakes)
    if values is None or None in values.values():
        return None
    return Ttl(values["time"], values["after"])


def window_document(window: Window) -> dict[str, Any]:
    """What stands in a file for it."""
    return {
        "time": window.time,
        window.kind.value: _text(window.size),
        **({} if window.every is None else {"every": _text(window.every)}),
        **({"lateness": _text(window.lateness)} if window.lateness else {}),
    }


def ttl_document(ttl: Ttl) -> dict[str, Any]:
    """What stands in a file for it."""
    return {"time": ttl.time, "after": _text(ttl.after)}


def _text(microseconds: int) -> str:
    return duration_text(microseconds / 1_000_000)
