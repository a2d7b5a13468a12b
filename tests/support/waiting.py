"""Waiting for a fact that somebody else brings about."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

SECONDS = 120.0
"""How long a busy machine may take."""


def wait_for(
    fact: Callable[[], object], process: subprocess.Popen[Any] | None = None, text: Callable[[], str] = lambda: "", *,
    seconds: float = SECONDS,
) -> None:  # fmt: skip
    """Until it is so; fails when that takes too long.

    process: on which it depends: fails when this has ended without it.
    text: what is shown then.
    """
    deadline = time.monotonic() + seconds
    while not fact():
        assert process is None or process.poll() is None, f"it has ended: {text()}"
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {text()}"
        time.sleep(0.01)
