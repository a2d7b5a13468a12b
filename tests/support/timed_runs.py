"""`abs run` in a process of its own, and its messages with their seconds since a fault.

`pytest -rP` shows what a test prints of them.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.commands.test_jobs import ABS
from tests.support.waiting import wait_for


@dataclass
class Run:
    """A job in a process of its own. lines: its messages, with the time of each. fault: the time of the fault."""

    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)
    fault: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append((time.monotonic(), line.rstrip()))

    def text(self) -> str:
        """Return the messages since the fault, each with its seconds."""
        return "\n".join(f"{at - self.fault:6.1f} s  {line}" for at, line in self.lines if at >= self.fault)

    def until(self, fact: Callable[[], object]) -> None:
        """Wait for a fact while the job runs."""
        wait_for(fact, self.process, self.text)

    def until_said(self, pattern: str) -> float:
        """Wait for a message since the fault; return its seconds."""
        self.until(lambda: self.seconds_of(pattern) is not None)
        seconds = self.seconds_of(pattern)
        assert seconds is not None
        return seconds

    def seconds_of(self, pattern: str) -> float | None:
        """Return the seconds from the fault to the first message with a pattern; None without one."""
        found = (at - self.fault for at, line in self.lines if at >= self.fault and re.search(pattern, line))
        return next(found, None)

    def end(self, seconds: float = 180) -> int:
        """Wait until it ends, print its messages and return the exit code."""
        code = self.process.wait(seconds)
        took = time.monotonic() - self.fault
        self._reader.join()
        sys.stdout.write(f"\n{self.text()}\n{took:6.1f} s  exit code {code}\n")
        return code

    def stop(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextlib.contextmanager
def run(folder: Path, *more: str) -> Iterator[Run]:
    """Run the job file of a folder; kill the job if the block ends before it."""
    command = [*ABS, "run", "job.yaml", "--store", "store", "--engine", "inline", "--interval", "500ms", *more]
    started = Run(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    try:
        yield started
    finally:
        started.stop()


def validate(folder: Path) -> None:
    """Check that `abs validate` finds nothing."""
    command = [*ABS, "validate", "store", "--job", "job.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
