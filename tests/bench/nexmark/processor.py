"""Seconds of processor that a session of processes has used, with those that nobody waits for, as Spark's."""

from __future__ import annotations

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def session_seconds() -> float:
    """Of all processes of this one's session that live, with what those have waited for that do not."""
    session, ticks = str(os.getsid(0)), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        if fields[3] == session:
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / TICK
