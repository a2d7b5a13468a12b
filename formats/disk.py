"""Names that last on a disk, and errors of writing to it, told with what they leave out: which file, how much room."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def writing(path: str, size: int | None = None) -> Iterator[None]:
    """While a file is written: an OSError names it, and of a disk that is full what was to be written and what is free.

    size: bytes that are to be written, where that is known.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            wanted = "" if size is None else f", {size:,} bytes were to be written"
            free = _free(path)
            left = "" if free is None else f", {free:,} bytes are free"
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)}{wanted}{left}", path) from error
        error.filename = path  # not the temporary name that it was to have until it is whole
        raise


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str) -> list[str]:
    """Make a folder durably, with those above it; which of them were not there."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(new)
        sync_folder(os.path.dirname(new))
    return missing


def _free(path: str) -> int | None:
    """Bytes that somebody without privileges can still write where the file lies, or is to lie; None if unknown."""
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize
