"""Stdout belongs to results: where code runs that is not ours, what it prints goes to stderr.

Functions of a job print, start programs that print, and call libraries that write to descriptor 1; so do Spark and
Java. So results get a descriptor of their own, which no child process inherits, and descriptor 1 becomes stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import NamedTuple, TextIO


class _Original(NamedTuple):
    """What stdout was.

    stream: for results;
    descriptor: a copy of 1, None where that was closed;
    replaced: the object that `sys.stdout` was, if it is another one meanwhile.
    """

    stream: TextIO
    descriptor: int | None
    replaced: TextIO | None


_original: _Original | None = None
_was_closed = False


def open_standard_streams() -> None:
    """Open standard streams that are closed on /dev/null.

    The next file or connection would get their number otherwise, and what is written to them would go into it.
    """
    global _was_closed
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            _was_closed = _was_closed or name == "stdout"
            mode = "w" if descriptor else "r"
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - for as long as the process lives


def check_open() -> None:
    """Raise OSError if stdout was closed when the process started."""
    if _was_closed:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def stdout() -> TextIO:
    """Where results go."""
    return sys.stdout if _original is None else _original.stream


def keep_stdout() -> None:
    """From now on only what is written to `stdout()` reaches the process's stdout."""
    global _original
    if _original is not None or sys.stdout is None:
        return
    sys.stdout.flush()
    copy = None
    with contextlib.suppress(OSError):
        copy = os.dup(1)
    if copy is not None:
        _point_to_stderr(1)
    if copy is not None and _descriptor(sys.stdout) == 1:
        own = open(os.dup(copy), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115
        _original = _Original(own, copy, None)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
    else:  # something else stands in for it, as in tests
        _original = _Original(sys.stdout, copy, sys.stdout)
        sys.stdout = sys.stderr


def give_back_stdout() -> None:
    """Undo `keep_stdout`, for those who call `abs` from a process of theirs."""
    global _original
    if _original is None:
        return
    original, _original = _original, None
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if original.descriptor is not None:
        os.dup2(original.descriptor, 1)
        os.close(original.descriptor)
    if original.replaced is not None:
        sys.stdout = original.replaced
    else:
        with contextlib.suppress(OSError):
            original.stream.close()


def _descriptor(stream: TextIO) -> int | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return stream.fileno()
    return None


def _point_to_stderr(descriptor: int) -> None:
    try:
        os.dup2(2, descriptor)
    except OSError:  # stderr is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
