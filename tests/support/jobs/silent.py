"""The function of a keyed `process` that tells of keys for which no row comes any more."""

from __future__ import annotations

from formats.job.model import Keeping

KEEPING = Keeping((("n", "int64"), ("last_at", "timestamp")), "at")
"""What it keeps of a key: how many rows it has had, and the time of the last."""


def track(seconds: int) -> str:
    """A module with it, as `track`. seconds: for which a key is silent before that is told."""
    return f"""
from datetime import timedelta
from abscli import Result, per_key

@per_key({{"key": "string", "n": "int64", "silent_since": "timestamp"}})
def track(key, row, state, timer):
    if row is None:
        return Result(None, [{{**key, "n": state["n"], "silent_since": state["last_at"]}}])
    n = 1 if state is None else state["n"] + 1
    return Result({{"n": n, "last_at": row["at"]}}, timer=row["at"] + timedelta(seconds={seconds}))
"""
