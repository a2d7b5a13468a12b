"""Errors of writing to a disk, told with what they leave out: which file it was, and how much room there is."""

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
