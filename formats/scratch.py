"""A folder of this process's own for what is needed only while it lives: private, gone at its end, and where a process
was killed, gone when the next one makes its own.

A folder belongs to a process that holds the lock on the file in it. What cannot be somebody else's is cleared: folders
of this user, named and closed to others as they are made here, whose lock nobody holds.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time

PREFIX = "abs-scratch-"
LOCK = "owner.lock"

ABANDONED_SECONDS = 3600.0
"""Age from which a folder without a lock file was left by a process that was killed while it made it."""

_mine: tuple[int, str, int] | None = None


def scratch() -> str:
    """The path of this process's folder, made when it is asked for first. OSError if there is no room for it."""
    global _mine
    if _mine is None or _mine[0] != os.getpid():  # a forked child has one of its own
        clear_dead()
        path, lock = _make()
        _mine = os.getpid(), path, lock
        atexit.register(_remove, *_mine)
    return _mine[1]


def clear_dead() -> None:
    """Remove the folders of processes that are gone; nothing else, and nothing that cannot be looked at."""
    root = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _clear(os.path.join(root, name))


def _make() -> tuple[str, int]:
    """A new folder, and the descriptor of its lock."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        with contextlib.suppress(FileNotFoundError):  # somebody has cleared it before it was locked
            lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return path, lock
            os.close(lock)


def _clear(path: str) -> None:
    """Remove a folder if it is ours and its owner is gone."""
    folder = os.lstat(path)
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid() or folder.st_mode & 0o077:
        return
    try:
        lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        if time.time() - folder.st_mtime > ABANDONED_SECONDS:
            os.rmdir(path)  # only where it is empty: that is all that a process can have left without a lock
        return
    try:
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(os.path.join(path, LOCK))  # whoever waits for the lock sees that it is no use
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _remove(process: int, path: str, lock: int) -> None:
    if process == os.getpid():
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(lock)
