"""Records on which a task fails and goes on without them: counted, and written where the job says."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeGuard

import msgspec
import pyarrow as pa

from abscli.engine.sinks.json_lines import json_lines
from formats.ids import TaskId

MOST_TEXT = 2_000
"""Characters of an error's text."""

SCHEMA = pa.schema([
    pa.field("record", pa.string()),
    pa.field("operator", pa.string()),
    pa.field("task", pa.string()),
    pa.field("error", pa.string()),
    pa.field("message", pa.string()),
    pa.field("origin", pa.string()),
    pa.field("number", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("epoch", pa.int64()),
])  # fmt: skip
"""A dead letter."""


class _Letter(NamedTuple):
    record: str
    error: str
    message: str
    origin: str
    number: int | None = None
    offset: int | None = None


class Letters(Protocol):
    """Takes dead letters, as a sink does."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More of them."""


class Failures:
    """Of one task, on which it goes on. sink: where they are written; None: nowhere. count: of those so far."""

    def __init__(self, task: TaskId, sink: Letters | None, count: int = 0) -> None:
        self.count = count
        self._task = task
        self._sink = sink
        self._origin = ""
        self._epoch = 0
        self._letters: list[_Letter] = []

    @contextlib.contextmanager
    def during(self, epoch: int, origin: str = "") -> Iterator[None]:
        """What fails meanwhile belongs to that epoch, and is written when all that came with it has been worked on.
        origin: the channel that it came on."""
        self._origin, self._epoch = origin, epoch
        yield
        self._put()

    def add(self, row: pa.RecordBatch, number: int | None, error: Exception) -> None:
        """A row on which the operator fails. number: of its record on the channel; None: it is of the state."""
        self.count += 1
        if self._sink is not None:
            message = f"{error}{place_of_error(error)}"
            self._letters.append(_Letter(_as_json(row), type(error).__name__, message, self._origin, number=number))

    def add_text(self, text: bytes, split: str, offset: int, error: Exception) -> None:
        """A record of a file that cannot be read. offset: where it begins, in bytes."""
        self.count += 1
        if self._sink is not None:
            record = text.decode("utf-8", "replace").rstrip("\r\n")
            message = (str(error).splitlines() or [""])[0]
            self._letters.append(_Letter(record, type(error).__name__, message, split, offset=offset))

    def _put(self) -> None:
        if self._sink is None or not self._letters:
            return
        letters, self._letters = self._letters, []
        rows = [
            {
                **letter._asdict(), "message": _plain(letter.message), "operator": self._task.operator,
                "task": str(self._task), "epoch": self._epoch,
            }
            for letter in letters
        ]  # fmt: skip
        self._sink.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def taken_by(
    failures: Failures | None, epoch: int, origin: str = ""
) -> contextlib.AbstractContextManager[None]:
    """As `Failures.during`, where there are any."""
    return contextlib.nullcontext() if failures is None else failures.during(epoch, origin)


def is_of_record(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error may be that of a record, and not of this process, as where a function leaves it."""
    return isinstance(error, Exception) and not isinstance(error, MemoryError)


def place_of_error(error: BaseException) -> str:
    """Where in the user's file it was raised: the innermost frame that is no library's."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno}, in {own[-1].name})" if own else ""


def _is_library(file: str) -> bool:
    """Whether a frame is of an installed package, be it one that is compiled, as Arrow is from .pxi files."""
    return "site-packages" in file or file.startswith("<") or file.endswith((".pxi", ".pyx"))


def _as_json(row: pa.RecordBatch) -> str:
    """One row as a sink of JSON lines writes it; where it cannot, with its values as text."""
    try:
        return b"".join(json_lines(row)).decode().rstrip("\n")
    except (pa.ArrowException, ValueError, TypeError, msgspec.MsgspecError):
        columns = zip(row.schema.names, row.columns, strict=True)
        return msgspec.json.encode({name: _plain(str(column[0])) for name, column in columns}).decode()


def _plain(text: str) -> str:
    """Text that can be written: without halves of surrogates, and not too much of it."""
    return text[:MOST_TEXT].encode("utf-8", "backslashreplace").decode()
