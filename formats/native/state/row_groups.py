"""Row groups of state files: where they lie, what proves each of them, and reading some of a file without the rest.

A row group is a run of bytes in its file, and so is what follows the last one, the footer. Who has both with their
digests needs no other byte.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from formats.bounds import Expansion
from formats.errors import Damaged
from formats.native.facts import FooterFacts, RowGroupFacts, StateFileFacts, digest
from formats.native.state.guards import check_row_groups, read_row_group, text_columns
from formats.native.state.tables import (
    KEY_GROUP,
    Piece,
    StateKey,
    as_written,
    decoded_row_groups,
    encode_state,
    encoded_pieces,
    first_line,
    of_key_groups,
)
from formats.native.writer import put_file
from formats.storage import Putting, Slices, Storage, put_pieces, ranges

WHOLE = 8 << 20
"""Bytes of a file up to which it is read in one go: of a larger one each row group is in memory alone."""


def put_state(storage: Storage, path: str, table: pa.Table, key: Sequence[str]) -> StateFileFacts:
    """Write a state file (see `encode_state`) and return how a fact file names it."""
    return put_encoded(storage, path, encode_state(table, key))


def put_encoded(storage: Putting, path: str, data: bytes) -> StateFileFacts:
    """Write a state file that is encoded already, and return how a fact file names it."""
    row_groups, footer = described(data)
    file = put_file(storage, path, data, sum(group.rows for group in row_groups))
    return StateFileFacts(file.path, file.bytes, file.rows, file.sha256, row_groups, footer)


def put_tables(
    storage: Putting, path: str, tables: Iterable[pa.Table], key: StateKey, *, in_key_order: bool = False
) -> StateFileFacts:
    """Write a state file of these tables (see `encoded_pieces`), which is never in memory as a whole where it is large,
    and return how a fact file names it."""
    description = _Description()
    put_pieces(storage, path, description.passing(encoded_pieces(tables, key, in_key_order=in_key_order)))
    return description.facts(path)


class _Description:
    """What facts say of a state file whose pieces have passed: as of `described`, without the file."""

    def __init__(self) -> None:
        self._whole, self._outside = hashlib.sha256(), hashlib.sha256()
        self._bytes = 0
        self._row_groups: list[RowGroupFacts] = []
        self._removed: int | None = None

    def passing(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        """The bytes of each."""
        for piece in pieces:
            self._whole.update(piece.data)
            if piece.rows:
                place = self._bytes, len(piece.data), digest(piece.data)
                self._row_groups.append(RowGroupFacts(int(piece.first), int(piece.last), piece.rows, *place))
                if piece.removed is not None:
                    self._removed = (self._removed or 0) + piece.removed
                self._outside = hashlib.sha256()  # what stands before the first row group belongs to no footer
            else:
                self._outside.update(piece.data)
            self._bytes += len(piece.data)
            yield piece.data

    def facts(self, path: str) -> StateFileFacts:
        """When all have."""
        groups = tuple(self._row_groups)
        footer = FooterFacts(groups[-1].offset + groups[-1].bytes if groups else 0, self._outside.hexdigest())
        rows = sum(group.rows for group in groups)
        return StateFileFacts(
            path, self._bytes, rows, self._whole.hexdigest(), groups, footer, removed=self._removed
        )


def described(data: bytes) -> tuple[tuple[RowGroupFacts, ...], FooterFacts]:
    """The row groups of a state file and its footer, as facts name them. data: of a file that `encode_state` made."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    places, view = spans(metadata), memoryview(data)
    column = metadata.schema.names.index(KEY_GROUP)
    row_groups = []
    for i, place in enumerate(places):
        group = metadata.row_group(i)
        bounds = group.column(column).statistics
        sha256 = digest(view[place.start : place.stop])
        row_groups.append(
            RowGroupFacts(bounds.min, bounds.max, group.num_rows, place.start, len(place), sha256)
        )
    end = places[-1].stop if places else 0
    return tuple(row_groups), FooterFacts(end, digest(view[end:]))


def spans(metadata: pq.FileMetaData) -> list[range]:
    """The bytes of each row group, as the footer places them."""
    return [_span(metadata.row_group(i)) for i in range(metadata.num_row_groups)]


def _span(group: pq.RowGroupMetaData) -> range:
    columns = [group.column(j) for j in range(group.num_columns)]
    starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
    ends = [start + c.total_compressed_size for start, c in zip(starts, columns, strict=True)]
    return range(min(starts), max(ends))


def proved_rows(storage: Storage, file: StateFileFacts) -> Iterator[pa.Table]:
    """The rows of a state file that count for the task whose facts name it, a row group at a time.

    A small file is read whole and verified against the digest of the file. Of a file that the task has by key group, or
    of a large one, only the footer and the row groups that the facts name are read, each verified against its own
    digest. Damaged if it is not what was written, or facts and footer disagree.
    """
    if file.key_groups is None and (file.bytes or 0) <= WHOLE:
        data = _checked(storage, file, 0, None, file.sha256 or "", "")
        yield from decoded_row_groups(data, file.path)
        return
    where = f"{storage.root}/{file.path}"
    end = (file.bytes or 0) - file.footer.offset
    footer = _checked(storage, file, file.footer.offset, end, file.footer.sha256, "its footer ")
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"is not a readable state file: {first_line(error)}", path=where) from None
    check_row_groups(metadata, where)
    numbers = {place: number for number, place in enumerate(spans(metadata))}
    for group in file.row_groups:
        number = numbers.get(range(group.offset, group.offset + group.bytes))
        if number is None:
            raise Damaged(f"has no row group from byte {group.offset} on, as the facts say", path=where)
        name = f"its row group of key groups {group.first} to {group.last} "
        data = _checked(storage, file, group.offset, group.bytes, group.sha256, name)
        try:
            yield _read(metadata, number, _Slice(data, group.offset, file.bytes or 0), file, where)
        except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
            raise Damaged(f"is not a readable state file: {first_line(error)}", path=where) from None


def _checked(storage: Storage, file: StateFileFacts, offset: int, length: int | None, sha256: str, name: str) -> bytes:
    """A slice of a file, up to its end where it has no length, that has this digest."""
    data = ranges.read(storage, file.path, offset, length)
    if digest(data) != sha256:
        raise Damaged(
            f"{name}has SHA-256 {digest(data)[:12]}…, the manifest says {sha256[:12]}…",
            path=f"{storage.root}/{file.path}",
            hint=f"`abs validate {shlex.quote(storage.root)}` lists the damaged files; "
            f"`abs plan-recovery {shlex.quote(storage.root)} --out plan.json` takes the newest epoch that is whole",
        )
    return data


def _read(metadata: pq.FileMetaData, number: int, source: _Slice, file: StateFileFacts, where: str) -> pa.Table:
    schema = metadata.schema.to_arrow_schema()
    opened = pq.ParquetFile(
        pa.PythonFile(source, mode="r"), metadata=metadata, read_dictionary=text_columns(schema), pre_buffer=False
    )
    table = as_written(read_row_group(opened, number, Expansion(where, len(source.data))))
    return table if file.key_groups is None else of_key_groups(table, _range(file.key_groups))


def _range(key_groups: tuple[int, int]) -> range:
    return range(key_groups[0], key_groups[1] + 1)


class _Slice(Slices):
    """A file of which one slice alone can be read: what a reader asks for beside it is not there."""

    def __init__(self, data: bytes, offset: int, size: int) -> None:
        super().__init__(size)
        self.data, self._offset = data, offset

    def read(self, size: int = -1) -> bytes:
        start = self._at - self._offset
        data = self.data[start : start + size] if start >= 0 and size >= 0 else b""
        if len(data) != size:
            raise OSError(f"the footer leads to byte {self._at}, outside of the row group")
        self._at += size
        return data
