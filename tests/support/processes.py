"""Processes that a process has started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def children(process: int) -> list[int]:
    """The processes that a process has started and that live."""
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{process}/task").iterdir()
        return sorted(int(pid) for task in tasks for pid in (task / "children").read_text().split())
    return []


def descendants(process: int) -> Iterator[int]:
    """Those, and the ones that they have started."""
    for child in children(process):
        yield child
        yield from descendants(child)


def lives(process: int) -> bool:
    """Whether it has not ended; one that has, and that nobody has waited for, has ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
