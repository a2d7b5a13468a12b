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
    UnpackedFile,
    open_file,
    open_text,
    path_of,
    status_of_open,
)
from abscli.engine.sources.files.readable import Place
from abscli.engine.sources.splits import FromSplits, Splits
from abscli.engine.sources.text_records import BYTE_ORDER_MARK
from formats.ids import TaskId

CHUNK = 1 << 20
"""Bytes read at a time; a batch holds the whole records among them."""

MAX_LINE = 256 << 20
"""Bytes of a record, which has to fit into memory several times over."""

TAIL = 4 << 10
"""Bytes before the position that are compared again before anything new is read of a file on this machine."""


class Records(Protocol):
    """Where records end in bytes that begin with one."""

    def last_end(self, data: bytes) -> int:
        """Behind the last whole record; 0 where there is none."""

    def end_of(self, data: bytes, count: int) -> int:
        """Behind the first `count` records; of all where there are no more."""


class Lines:
    """A record is a line."""

    def last_end(self, data: bytes) -> int:
        """See `Records`."""
        return data.rfind(b"\n") + 1

    def end_of(self, data: bytes, count: int) -> int:
        """See `Records`."""
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
        self._kept: tuple[str, ServedFile | UnpackedFile] | None = None
        self._proved: dict[str, int | str | None] = {}
        self._is_unpacked = False
        self._mark = b""
        self._tails: dict[str, bytes] = {}

    def next_lines(self) -> tuple[str, bytes] | None:
        """Return a split and its next whole records, without a byte order mark; None at the end.

        The caller reports the rows with `advance`.
        """
        splits = self.splits
        while (name := splits.next()) is not None:
            offset = splits.offset(name)
            data = self._read(name, offset)
            self._mark = BYTE_ORDER_MARK if not offset and data.startswith(BYTE_ORDER_MARK) else b""
            data = data[len(self._mark) :]
            if data and splits.rows is not None:
                heading = self._heading and not offset
                return name, data[: self._records.end_of(data, splits.rows + heading)]
            if data:
                return name, data
            self._let_go()  # what comes later is another version
            splits.end(name)
            if not splits.waits_for_lines:
                self._tails.pop(name, None)
        return None

    def advance(self, split: str, data: bytes, records: int) -> None:
        """Note that these bytes of a split, which were read last, became `records` rows."""
        assert self._status is not None
        data = self._mark + data
        text, offset = self.splits.fingerprint(split), self.splits.offset(split)
        before = Fingerprint.parse(text) if text is not None else None
        # What was read before there were fingerprints has none, and nothing can be said of it any more.
        after = None
        if before is not None or not offset:
            after = str(beginning(data, before, self._status, is_unpacked=self._is_unpacked))
        self.splits.advance(split, len(data), records, after)
        self._tails[split] = (self._tails.get(split, b"") + data[-TAIL:])[-TAIL:]
        if self.splits.rows is not None:
            self.splits.rows = max(0, self.splits.rows - records)  # only rows count: records may be empty lines

    def place(self, split: str) -> Place:
        """Return where the records begin that were read last."""
        return Place(split, self.splits.offset(split) + len(self._mark), self.splits.records(split))

    def path(self, split: str) -> str:
        """Where a split lies."""
        return path_of(self._directory, split)

    def _read(self, name: str, offset: int) -> bytes:
        path = self.path(name)
        end = None if self.splits.ends is None else self.splits.ends[name]
        try:
            with self._opened(name, path, offset) as file:
                self._status, self._is_unpacked = status_of_open(file), isinstance(file, UnpackedFile)
                if self._is_unpacked and self.splits.waits_for_lines:
                    raise JobFailed(
                        f"task {self.task}: {path} is compressed; a source that follows files reads plain text",
                        hint="change the path of the source so that it does not match compressed files",
                    )
                if self._status.size < offset and not self._is_unpacked:
                    raise JobFailed(
                        f"task {self.task}: {path} has {self._status.size} bytes, but {offset} bytes were already read",
                        hint="restore the file, or roll back with --from-epoch: a source file must not shrink",
                    )
                self._prove(name, file, offset)
                data = self._read_on(name, file, offset)
                while not (whole := self._records.last_end(data)) and (
                    more := file.read(_most(max(CHUNK, len(data)), end, file.tell()))
                ):
                    data += more
                    if len(data) > MAX_LINE:
                        raise JobFailed(
                            f"task {self.task}: {path} has a record of more than {MAX_LINE:,} bytes at byte {offset:,}",
                            hint="check that the file is a text file, and, in CSV, that each quoted field is closed",
                        )
                if whole:
                    return data[:whole]
                return b"" if self.splits.waits_for_lines else data
        except OSError as error:
            if error.errno == errno.ESTALE:  # the new version may only be longer
                self._let_go()
                return self._read(name, offset)
            raise JobFailed(f"task {self.task}: cannot read {path}: {error.strerror or error}") from error

    def _read_on(self, name: str, file: InputFile, offset: int) -> bytes:
        """Return the next bytes of a file. Raises JobFailed if other bytes are before them than were read.

        A file that was truncated in place and has grown past the position since has the same inode, and no smaller
        size. The bytes before the position are read in one call with the next ones, so that both are of one state.
        """
        end = None if self.splits.ends is None else self.splits.ends[name]
        is_checked = not isinstance(file, ServedFile | UnpackedFile)  # these are of one version
        before = self._tails.get(name, b"") if is_checked else b""
        if not before and offset and is_checked:  # the first read of an attempt
            file.seek(max(0, offset - TAIL))
            before = self._tails[name] = file.read(min(TAIL, offset))
        file.seek(offset - len(before))
        data = file.read(len(before) + _most(CHUNK, end, offset))
        if data[: len(before)] != before:
            raise JobFailed(
                f"task {self.task}: {self.path(name)} was truncated or rewritten in place since it was read: the "
                f"{len(before):,} bytes before byte {offset:,} have changed",
                hint="rotate logs by rename and create, not with copytruncate; to continue, restore the file, or read "
                "everything again, with --from-epoch 0 or a new store",
            )
        return data[len(before) :]

    def _opened(self, name: str, path: str, offset: int) -> contextlib.AbstractContextManager[InputFile]:
        """Open a file. A file that a server has read ahead, or that is unpacked, stays open."""
        if self._kept is None or self._kept[0] != name:
            self._let_go()
            fingerprint = Fingerprint.parse(self.splits.fingerprint(name) or "")
            # Only its beginning tells whether a file is compressed; a server need not send that again.
            is_plain = offset and not (fingerprint is not None and fingerprint.is_unpacked)
            file = open_file(path) if is_plain else open_text(path)
            if not isinstance(file, ServedFile | UnpackedFile):
                return file
            self._kept = name, file
        return contextlib.nullcontext(self._kept[1])

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].__exit__(None, None, None)

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


def _most(size: int, end: int | None, at: int) -> int:
    return size if end is None else max(0, min(size, end - at))


class FromLines(FromSplits):
    """What sources that read records of files leave to these."""

    def __init__(self, files: LineFiles) -> None:
        super().__init__(files.splits)
        self._files = files
