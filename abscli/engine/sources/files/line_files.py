"""Files that are read from the beginning on, in whole records, with a position in bytes for each."""

from __future__ import annotations

import contextlib
import errno
from typing import Protocol

from abscli.engine.errors import JobFailed
from abscli.engine.sources.files.fingerprints import Fingerprint, beginning, is_what_was_read
from abscli.engine.sources.files.input_files import (
    InputFile,
    ServedFile,
    Status,
    is_uri,
    open_file,
    path_of,
    status_of_open,
)
from abscli.engine.sources.splits import FromSplits, Splits
from formats.ids import TaskId

CHUNK = 1 << 20
"""Bytes read at a time; a batch holds the whole records among them."""

MAX_LINE = 256 << 20
"""Bytes of a record, which has to fit into memory several times over."""


class Records(Protocol):
    """Where records end in bytes that begin with one."""

    def last_end(self, data: bytes) -> int:
        """Behind the last whole record; 0 where there is none."""

    def end_of(self, data: bytes, count: int) -> int:
        """Behind the first `count` records; of all where there are no more."""


class Lines:
    """A record is a line."""

    def last_end(self, data: bytes) -> int:
        """As of `Records`."""
        return data.rfind(b"\n") + 1

    def end_of(self, data: bytes, count: int) -> int:
        """As of `Records`."""
        end = 0
        while count and end < len(data):
            end = data.find(b"\n", end) + 1 or len(data)
            count -= 1
        return end


class LineFiles:
    """The files of one task, one after the other, in whole records. A split is a path relative to the job file."""

    def __init__(
        self,
        splits: Splits,
        directory: str,
        task: TaskId,
        records: Records | None = None,
        *,
        heading: bool = False,
    ) -> None:
        """heading: whether the first record of a file is no row."""
        self.splits = splits
        self.task = task
        self._directory = directory
        self._records = records or Lines()
        self._heading = heading
        self._status: Status | None = None
        self._served: tuple[str, ServedFile] | None = None
        self._proved: dict[str, int | str | None] = {}

    def next_lines(self) -> tuple[str, bytes] | None:
        """(split, whole records) or None at the end; the caller reports the rows with `advance`."""
        splits = self.splits
        while (name := splits.next()) is not None:
            data = self._read(name, splits.offset(name))
            if data and splits.rows is not None:
                heading = self._heading and not splits.offset(name)
                return name, data[: self._records.end_of(data, splits.rows + heading)]
            if data:
                return name, data
            self._served = None  # what comes later is another version
            splits.end(name)
        return None

    def advance(self, split: str, data: bytes, records: int) -> None:
        """Note that these bytes of a split, which were read last, became `records` rows."""
        assert self._status is not None
        text, offset = self.splits.fingerprint(split), self.splits.offset(split)
        before = Fingerprint.parse(text) if text is not None else None
        # What was read before there were fingerprints has none, and nothing can be said of it any more.
        after = str(beginning(data, before, self._status)) if before is not None or not offset else None
        self.splits.advance(split, len(data), records, after)
        if self.splits.rows is not None:
            self.splits.rows = max(0, self.splits.rows - records)  # only rows count: records may be empty lines

    def path(self, split: str) -> str:
        """Where a split lies."""
        return path_of(self._directory, split)

    def _read(self, name: str, offset: int) -> bytes:
        path = self.path(name)
        end = None if self.splits.ends is None else self.splits.ends[name]
        try:
            with self._opened(name, path) as file:
                self._status = status_of_open(file)
                if self._status.size < offset:
                    raise JobFailed(
                        f"task {self.task}: {path} has {self._status.size} bytes, but {offset} bytes were already read",
                        hint="restore the file, or roll back with --from-epoch: a source file must not shrink",
                    )
                self._prove(name, file, offset)
                file.seek(offset)
                data = b""
                while more := file.read(CHUNK if end is None else min(CHUNK, end - file.tell())):
                    data += more
                    if whole := self._records.last_end(data):
                        return data[:whole]
                    if len(data) > MAX_LINE:
                        raise JobFailed(
                            f"task {self.task}: {path} has a line of more than {MAX_LINE} bytes, at byte {offset}",
                            hint="check that the file is a text file",
                        )
                return b"" if self.splits.waits_for_lines else data
        except OSError as error:
            if error.errno == errno.ESTALE and self._served is not None:  # the new version may only be longer
                self._served = None
                return self._read(name, offset)
            raise JobFailed(f"task {self.task}: cannot read {path}: {error.strerror}") from error

    def _opened(self, name: str, path: str) -> contextlib.AbstractContextManager[InputFile]:
        """A file; one that a server has stays open, as it has read ahead."""
        if not is_uri(path):
            return open_file(path)
        if self._served is None or self._served[0] != name:
            self._served = name, ServedFile(path)
        return contextlib.nullcontext(self._served[1])

    def _prove(self, name: str, file: InputFile, offset: int) -> None:
        """JobFailed for another file than that of which `offset` bytes were read. Of one on this machine that is not
        followed it is proved when a job goes on."""
        assert self._status is not None
        mark = self._status.tag or (self._status.number if self.splits.waits_for_lines else None)
        if mark is None or self._proved.get(name) == mark:
            return
        text = self.splits.fingerprint(name)
        fingerprint = Fingerprint.parse(text) if text is not None else None
        if offset and fingerprint is not None and not is_what_was_read(file, fingerprint, offset):
            raise JobFailed(
                f"task {self.task}: {self.path(name)} was replaced since it was read: the first {offset:,} bytes have "
                "a different checksum",
                hint="restore the previous file; or read everything again, with --from-epoch 0 or a new store",
            )
        self._proved[name] = mark


class FromLines(FromSplits):
    """What sources that read records of files leave to these."""

    def __init__(self, files: LineFiles) -> None:
        super().__init__(files.splits)
        self._files = files
