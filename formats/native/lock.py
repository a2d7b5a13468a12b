"""The store's lock: held by the process that runs or restores a job, let go by the kernel when that process ends.

In a bucket there is no kernel to let go of it: see `claims`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from formats.errors import Damaged, FormatError, StoreInUse
from formats.native import claims, layout
from formats.storage import LocalStorage, ServedStorage, Storage

LOOKS, LOOK_SECONDS = 25, 0.01


@contextlib.contextmanager
def exclusive(storage: Storage, *, new: bool = False) -> Iterator[None]:
    """Hold the store; StoreInUse, naming the holder, if somebody else does.

    new: its folder is made if it has to be; where no store has come of it in the end, neither the lock nor a folder
    that was made for it is left.
    """
    if not isinstance(storage, LocalStorage):
        with claims.claimed(storage):
            yield
        return
    path = storage.local_path(layout.LOCK)
    with contextlib.ExitStack() as made:
        fd = _taken(storage, path, made if new else None)
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
            yield
        finally:
            if new:
                with contextlib.suppress(OSError, FormatError):
                    if storage.size(layout.STORE) is None and not storage.list(layout.EPOCHS):
                        os.unlink(path)
            # Lets go of the lock. Of a store the file stays: each opening of another one would be one more to wait for.
            os.close(fd)


def _taken(storage: LocalStorage, path: str, made: contextlib.ExitStack | None) -> int:
    """The lock's file, open and locked. made: removes in the end the folders that are made for it, unless something
    has come into them; None: none are made."""
    while True:
        if made is not None:
            _make_folder(Path(storage.root), made)
        try:
            # No link is followed, whose target would be cut to nothing, and a pipe is not waited for.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise _no_lock(path) from None
            if error.errno == errno.ENOENT and made is not None:  # who was refused has just removed the folder
                continue
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _no_lock(path)
            if not _locked(fd):
                raise StoreInUse(
                    f"in use by {_holder(fd)}", path=storage.root,
                    hint="wait for the job to end, or stop the job with SIGTERM",
                )  # fmt: skip
            if _is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # who had it has removed it: nobody else would find it any more


def _make_folder(folder: Path, made: contextlib.ExitStack) -> None:
    for path in [path for path in (folder, *folder.parents) if not path.exists()][::-1]:
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            made.callback(_remove_empty, path)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_at(fd: int, path: str) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _no_lock(path: str) -> Damaged:
    """The error for what is no file that can be locked, such as a pipe, a link or a folder."""
    hint = "remove it when no job runs on the store: abs creates a new one"
    return Damaged("is not a plain file", path=path, hint=hint)


def _locked(fd: int) -> bool:
    """Take the lock; again for a while, since `held` takes it for a moment to look."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
        else:
            return True
    return False


def held(storage: Storage) -> bool:
    """Whether somebody holds the store now; False where that cannot be known."""
    if isinstance(storage, ServedStorage):
        return claims.is_claimed(storage)
    if not isinstance(storage, LocalStorage):
        return False
    try:
        fd = os.open(storage.local_path(layout.LOCK), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Shared: two that look at a time are not in each other's way.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"
