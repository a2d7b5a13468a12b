"""`abs run --trace`: the lines of all machines of an attempt in one file, those of workers as they come.

A worker that is killed takes its last lines with it; what it had acked is in the file, since lines go before acks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

import msgspec

from abscli.protocol.task import Task
from abscli.protocol.trace import SCHEMA, Plain, TracedTask
from formats.disk import writing
from formats.errors import FormatError
from formats.ids import TaskId
from formats.output_file import check_outside
from formats.version import FORMAT_VERSION

_BEGIN = f'{{"schema":"{SCHEMA}"'.encode()

AT_ONCE = 64 << 10
"""Bytes of lines that a worker keeps before it sends them."""


def check_trace(path: str, store: str) -> None:
    """FormatError for a trace that would lie in the store, or be appended to a file that is none."""
    check_outside(path, store)
    if not os.path.isfile(path):
        return
    with writing(path), open(path, "rb") as file:
        begin = file.read(len(_BEGIN))
    if begin and begin != _BEGIN:
        raise FormatError("exists, but is not a trace", path=path, hint="choose another file")


class TraceFile:
    """Write traces to a file; attempts are appended. Raises OSError if it cannot be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        with writing(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self._drop_cut_line()

    def _drop_cut_line(self) -> None:
        """A driver that was killed may have left a line that is not whole."""
        end = os.fstat(self._file).st_size
        while end and os.pread(self._file, 1, end - 1) != b"\n":
            end -= 1
        os.truncate(self._file, end)

    def begin(self, head: Plain) -> None:
        """A new attempt. head: what is to be known of it."""
        self.tell({"schema": SCHEMA, "version": FORMAT_VERSION, **head})

    def tell(self, line: Plain) -> None:
        """One line."""
        self.write(encoded(line))

    def write(self, lines: bytes | memoryview) -> None:
        """Whole lines of a worker."""
        with writing(self.path, len(lines)):
            view = memoryview(lines)
            while view:
                view = view[os.write(self._file, view) :]

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)


class WorkerTrace:
    """The lines of a worker's machines. send: takes whole lines; name: no other worker of the attempt has it."""

    def __init__(self, send: Callable[[bytes], None], name: str) -> None:
        self._send = send
        self._name = name
        self._lives = count()
        self._lines = bytearray()

    def maker(self, attempt: int, again: Collection[TaskId] = ()) -> Callable[..., Task]:
        """Return a function that makes the tasks of an attempt. again: the tasks that replay their steps."""

        def make(name: TaskId, *arguments: Any, **options: Any) -> Task:
            life = f"{self._name}.{next(self._lives)}"
            return TracedTask(
                name, *arguments, tell=self._tell, life=life, attempt=attempt, again=name in again, **options
            )

        return make

    def _tell(self, line: Plain) -> None:
        self._lines += encoded(line)
        if len(self._lines) > AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send what there is: before a message that would else be heard of first."""
        if self._lines:
            lines, self._lines = bytes(self._lines), bytearray()
            self._send(lines)


def encoded(line: Plain) -> bytes:
    """A line of a trace."""
    return msgspec.json.encode(line) + b"\n"
