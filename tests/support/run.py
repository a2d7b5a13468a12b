"""One run of the tests, of one process or of several: a folder that its workers share, and how long it lasts.

The process that gathers results begins and ends a run. It holds the folder's pipe open, so that whatever reads from
there learns that the run is over, however that process ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import lives

PIPE = "running"
PREFIX = "abs-run-"
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
"""How long a busy machine may take to end what was started for a run."""


class Run:
    """One that this process began. folder: for its workers, in /tmp, since paths of sockets have to be short."""

    def __init__(self) -> None:
        _remove_remains()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        os.mkfifo(self.folder / PIPE)
        self._reader = os.open(self.folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)  # a pipe opens when both ends are there
        self._writer = os.open(self.folder / PIPE, os.O_WRONLY)

    def end(self) -> None:
        """Let what was started for it end; returns when it has, or TimeoutError names what has not."""
        os.close(self._writer)
        os.close(self._reader)
        deadline = time.monotonic() + SECONDS
        while remaining := [path.name for path in self.folder.glob("*.pid") if lives(int(path.read_text()))]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{', '.join(remaining)} in {self.folder} did not end")
            time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_remains() -> None:
    """Folders of runs that were killed: nobody reads their pipes. One that is a minute old may just be begun."""
    for folder in Path("/tmp").glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - folder.stat().st_mtime < SECONDS:
                continue
            try:
                os.close(os.open(folder / PIPE, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path, name: str, module: str, *arguments: str, log: Path) -> int:
    """Start a module in a process that ends when the run of this folder does; its number.

    The module has to end when its stdin does. It outlives this process, which may be only one of the run's workers:
    nobody here waits for it, but the run's end does, by the number that it writes down as `name`.
    """
    reader = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with log.open("wb") as out:
        process = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", module, *arguments],
            {**os.environ, "TMPDIR": str(log.parent), "PYTHONPATH": str(ROOT)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reader, 0), (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 2),
            ],
            setsid=True,
        )  # fmt: skip
    os.close(reader)
    (folder / f"{name}.pid").write_text(str(process))
    return process


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """While no other worker of the run has the lock of this name."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
