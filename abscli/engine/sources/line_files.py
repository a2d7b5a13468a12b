"""Files of lines: read in whole lines, with a position in bytes for each file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import IO

from abscli.engine.errors import JobFailed
from formats.ids import TaskId
from formats.view import Position

CHUNK = 1 << 20
"""Bytes read at a time; a batch holds the whole lines among them."""

MAX_LINE = 256 << 20
"""Bytes of a line, which has to fit into memory several times over."""


def _place(position: Position | None, split: str) -> Position:
    """Where reading of a split begins."""
    if position is None:
        return Position(split, 0, 0)
    return Position(split, position.offset or 0, position.records or 0)


class LineFiles:
    """The files of one task, one after the other, in whole lines. A split is a path relative to the job file."""

    def __init__(
        self, splits: Iterable[str], directory: str, task: TaskId, positions: Iterable[Position] | None
    ) -> None:
        by_split = {p.split: p for p in positions or ()}
        names = list(by_split) if positions is not None else list(splits)
        # Kept as they are handed out: with thousands of files, those that stand where they stood are not made anew.
        self._positions = {name: _place(by_split.get(name), name) for name in names}
        self._todo = deque(names)
        self._directory = directory
        self._task = task
        self._ends: Mapping[str, int] | None = None
        self._lines: int | None = None

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(self._positions.values())

    @property
    def finished(self) -> bool:
        return not self._todo

    def next_lines(self) -> tuple[str, bytes] | None:
        """(split, whole lines) or None at the end; the caller reports the rows with `advance`."""
        while (name := self._next_split()) is not None:
            lines = self._read_lines(name, self._offset(name))
            if lines:
                return name, lines if self._lines is None else self._first_lines(lines)
            self._todo.remove(name)  # of which it is the first, or one of a few that may still be read
        return None

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """As of `Source`. A split that is not among the offsets is not read."""
        self._ends, self._lines = offsets, lines

    def _next_split(self) -> str | None:
        if self._lines == 0:
            return None
        if self._ends is None:
            return self._todo[0] if self._todo else None
        # One that may be read no further now is not at its end.
        ends = self._ends
        return next((name for name in self._todo if self._offset(name) < ends.get(name, 0)), None)

    def _first_lines(self, data: bytes) -> bytes:
        """As many lines as may still be read."""
        assert self._lines is not None
        end = 0
        while self._lines and end < len(data):
            end = data.find(b"\n", end) + 1 or len(data)
            self._lines -= 1
        return data[:end]

    def advance(self, split: str, size: int, records: int) -> None:
        """Note that `size` bytes of a split became `records` rows."""
        self._positions[split] = Position(split, self._offset(split) + size, self.records(split) + records)

    def records(self, split: str) -> int:
        """Rows read of a split so far."""
        return self._positions[split].records or 0

    def _offset(self, split: str) -> int:
        return self._positions[split].offset or 0

    def _read_lines(self, name: str, offset: int) -> bytes:
        path = os.path.join(self._directory, name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < offset:
                    raise JobFailed(
                        f"task {self._task}: {path} has {size} bytes, it was read up to {offset} before",
                        hint="a source file must not shrink; put it back, or go back with --from-epoch",
                    )
                file.seek(offset)
                data = self._chunk(file, name)
                while data and not data.endswith(b"\n"):
                    if len(data) > MAX_LINE:
                        raise JobFailed(
                            f"task {self._task}: {path} has a line of more than {MAX_LINE} bytes, at byte {offset}",
                            hint="is it a file of lines?",
                        )
                    more = self._chunk(file, name)
                    if not more:
                        return data
                    whole = more.rfind(b"\n") + 1
                    if whole:
                        return data + more[:whole]
                    data += more
                return data
        except OSError as error:
            raise JobFailed(f"task {self._task}: cannot read {path}: {error.strerror}") from error

    def _chunk(self, file: IO[bytes], name: str) -> bytes:
        return file.read(CHUNK if self._ends is None else min(CHUNK, self._ends[name] - file.tell()))


class FromLines:
    """What sources that read lines of files leave to these."""

    def __init__(self, files: LineFiles) -> None:
        self._files = files

    @property
    def finished(self) -> bool:
        return self._files.finished

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._files.positions

    def cut(self) -> tuple[Position, ...]:
        """As of `Source`."""
        return self._files.positions

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """As of `Source`."""
        self._files.stop_at(offsets, lines=lines)
