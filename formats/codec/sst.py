"""Table files of RocksDB (SST), read without RocksDB: every block's checksum, then keys and values.

A block-based table is blocks and a footer of 53 bytes: u8 kind of checksums, the handles (offset and size as varints)
of metaindex and index, zeros, u32 format version, u64 magic, all little-endian. A block is its bytes, u8 compression
and u32 checksum. The metaindex names filter and properties, the index the blocks of data. Keys end in 8 bytes of
sequence number and kind; of a key the entry with the highest number holds.

Read are format versions 2 to 5 with an index of one or two levels and checksums CRC32C, xxHash and XXH3. Whatever is of
another kind is UnsupportedVersion: it says nothing of the bytes. Sources: RocksDB's `table/format.cc`,
`table/block_based`; held against files that Flink 2.3 (RocksDB 8.10) and Spark wrote, and indexes of two levels against
files of rocksdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, overload

import xxhash

from formats.bounds import decoding
from formats.codec.crc32c import crc32c, masked
from formats.codec.snappy import unpack_block
from formats.codec.varint import read_varint, zigzag
from formats.errors import ChecksumMismatch, Damaged, UnsupportedVersion

MAGIC: Final = 0x88E241B785F4CFF7
FOOTER: Final = 53
TRAILER: Final = 5
DELETION, VALUE, MERGE, SINGLE_DELETION = 0, 1, 2, 7

_CRC32C, _XXHASH, _XXH3 = 1, 2, 4
_CHECKSUMS: Final = ("no checksum", "CRC32C", "xxHash", "xxHash64", "XXH3")
_LARGEST_VERSION: Final = 16
"""No format version will be as large for long: a larger one is damage."""

_PLAIN, _SNAPPY = 0, 1
_PACKED: Final = {4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
"""Compressions before whose bytes the plain size stands, by Arrow's names."""
_LARGEST: Final = 1 << 31
_LARGEST_INDEX: Final = 64 << 20
_RATIO: Final = 256
"""Bytes that one packed byte may stand for."""

_PROPERTIES: Final = b"rocksdb.properties"
_INDEX_TYPE: Final = b"rocksdb.block.based.table.index.type"
_DELTAS: Final = b"rocksdb.index.value.is.delta.encoded"
_ENTRIES: Final = b"rocksdb.num.entries"
_SESSION: Final = b"rocksdb.creating.session.identity"
_NUMBER: Final = b"rocksdb.original.file.number"
_ONE_LEVEL: Final = (0, 1)
"""Types of index that name the blocks of data themselves: for binary search, and for that with a hash beside it."""
_TWO_LEVELS: Final = 2
"""The type of index that names blocks of an index, each of which names blocks of data (partitioned index)."""
_PARTITIONED_FILTER: Final = b"partitionedfilter."
"""The beginning of the name of a filter of two levels: its block is an index of the blocks of the filter."""
_UNREAD: Final = (b"rocksdb.range_del", b"rocksdb.compression_dict")
"""Blocks without which entries do not mean what they say."""


class Entry(NamedTuple):
    """One entry of a table.

    number: the higher, the newer.
    """

    key: bytes
    number: int
    kind: int
    value: bytes


class _Handle(NamedTuple):
    """Where a block lies, without its trailer."""

    offset: int
    size: int


def check_sst(data: bytes, path: str | None = None) -> int:
    """Check every block of a table against its checksum; how many it has. Damaged, UnsupportedVersion."""
    table = _Table(data, path)
    table.check(table.handles)
    return len(table.handles)


def parse_sst(data: bytes, path: str | None) -> list[Entry]:
    """The entries of a table, in its order, every block checked; Damaged, UnsupportedVersion."""
    return _Table(data, path).entries()


class Contents(NamedTuple):
    """What a table has.

    session: the id of the session that wrote it; None if it does not say.
    number: the number that it was written under; None if it does not say.
    """

    entries: list[Entry]
    session: str | None
    number: int | None


def read_table(data: bytes, path: str | None) -> Contents:
    """The entries of a table as `parse_sst`, and who wrote it; Damaged, UnsupportedVersion."""
    table = _Table(data, path)
    session, number = table.properties.get(_SESSION), table.properties.get(_NUMBER)
    return Contents(
        table.entries(),
        session.decode("latin-1") if session else None,
        table.number(number) if number else None,
    )


class Window:
    """The bytes of a file that are read as they are asked for. read: (offset, length) -> bytes; size: of the file."""

    AHEAD: Final = 4096
    """Bytes that are read at least: the parts of a block, and the small blocks, lie beside each other."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, path: str | None) -> None:
        self._read, self._size, self._path = read, size, path
        self._begin, self._data = 0, b""

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...
    def __getitem__(self, at: int | slice) -> int | bytes:
        if isinstance(at, slice):
            begin, end, _ = at.indices(self._size)
        else:
            begin, end = at, at + 1
        if begin < self._begin or end > self._begin + len(self._data):
            begin_read = max(0, min(begin, self._size - self.AHEAD))
            end_read = min(max(end + TRAILER, begin_read + self.AHEAD), self._size)
            self._data = self._read(begin_read, end_read - begin_read)
            self._begin = begin_read
            if end - begin_read > len(self._data):
                raise Damaged(f"ends at {begin_read + len(self._data)}, it has {self._size} bytes", path=self._path)
        piece = self._data[begin - self._begin : max(end, begin) - self._begin]
        return piece if isinstance(at, slice) else piece[0]


class Span(NamedTuple):
    """A block of data, by the index. last: a key from its last one on, before the next block's first; size: packed."""

    last: bytes
    offset: int
    size: int


class TableFacts:
    """What a table says of itself, from its properties and index alone; blocks are read as they are asked for.

    family: its column family.
    entries: versions of keys, deletions among them.
    key_bytes, value_bytes: of all of them, uncompressed, without what RocksDB adds.
    index_bytes: packed.
    """

    def __init__(self, data: Window, path: str | None) -> None:
        self._table = _Table(data, path, data_blocks=False)
        properties = self._table.properties
        self.family = properties.get(b"rocksdb.column.family.name", b"").decode("utf-8", "backslashreplace")
        self.entries = self._number(_ENTRIES)
        self.deletions = min(self._number(b"rocksdb.deleted.keys"), self.entries)
        self.key_bytes = max(0, self._number(b"rocksdb.raw.key.size") - 8 * self.entries)
        self.value_bytes = self._number(b"rocksdb.raw.value.size")
        self.index_bytes = self._table.index.size

    def _number(self, name: bytes) -> int:
        written = self._table.properties.get(name)
        return self._table.number(written) if written is not None else 0

    def spans(self) -> list[Span]:
        """Its blocks of data, in order of keys: reads the index."""
        table = self._table
        return [Span(key, at.offset, at.size) for key, at in table.data_blocks()]

    def read(self, span: Span) -> list[Entry]:
        """The entries of one block."""
        return self._table.read(_Handle(span.offset, span.size))


class _Table:
    """A table whose blocks lie without a gap between its beginning and its footer.

    blocks: of data, in order of keys; handles: of all blocks; meta: those that the metaindex names.
    """

    def __init__(self, data: bytes | Window, path: str | None, *, data_blocks: bool = True) -> None:
        self.data, self.path = data, path
        self._footer()
        metaindex = self._index_block(self.metaindex)
        self.meta = {key: self._handle(value, 0)[0] for key, value in self._items(metaindex)}
        self.properties: dict[bytes, bytes] = {}
        if _PROPERTIES in self.meta:
            self.properties = dict(self._items(self._index_block(self.meta[_PROPERTIES])))
        self._index_is_read()
        if not data_blocks:
            return
        self.blocks = [at for _, at in self.data_blocks()]
        self.partitions = {at for index in self._partitioned() for _, at in self._indexed(index)}
        self.handles = sorted({self.metaindex, self.index, *self.meta.values(), *self.partitions, *self.blocks})
        self._no_gap()

    def check(self, handles: Iterable[_Handle]) -> None:
        """Damaged unless the blocks have the checksums that were written."""
        for handle in handles:
            self._checked(handle)

    def entries(self) -> list[Entry]:
        """All entries, in order; every block is checked."""
        for name in _UNREAD:
            if name in self.meta:
                raise UnsupportedVersion(f"has a block {name.decode()}, which is not read here", path=self.path)
        self.check((*self.meta.values(), *self.partitions))
        out = [self._entry(key, value) for handle in self.blocks for key, value in self._items(self._block(handle))]
        written = self.properties.get(_ENTRIES)
        if written is not None and (count := self._varint(written, 0)[0]) != len(out):
            raise Damaged(f"has {len(out)} entries, its properties say {count}", path=self.path)
        return out

    def number(self, written: bytes) -> int:
        """A number among the properties."""
        return self._varint(written, 0)[0]

    def data_blocks(self) -> Iterator[tuple[bytes, _Handle]]:
        """Yield the blocks of data in order of keys: a key at or after the last one of each, and its location."""
        if not self._has_two_levels():
            yield from self._indexed(self.index)
            return
        for _, partition in self._indexed(self.index):
            yield from self._indexed(partition)

    def _partitioned(self) -> Iterator[_Handle]:
        """Yield the blocks that are an index of further blocks of the index, or of a filter."""
        if self._has_two_levels():
            yield self.index
        yield from (at for name, at in self.meta.items() if name.startswith(_PARTITIONED_FILTER))

    def _has_two_levels(self) -> bool:
        return self._index_type() == _TWO_LEVELS

    def read(self, handle: _Handle) -> list[Entry]:
        """The entries of a block of data."""
        return [self._entry(key, value) for key, value in self._items(self._block(handle))]

    def _footer(self) -> None:
        data, path = self.data, self.path
        if len(data) < FOOTER:
            raise Damaged(f"has {len(data)} bytes, the footer alone has {FOOTER}", path=path, hint="it was cut short")
        footer = data[-FOOTER:]
        magic = int.from_bytes(footer[-8:], "little")
        if magic != MAGIC:
            message = f"ends with 0x{magic:016x}, not with 0x{MAGIC:016x} as table files do"
            raise Damaged(message, path=path, hint="it was cut short or changed")
        self.version = int.from_bytes(footer[-12:-8], "little")
        self.checksum = footer[0]
        if self.checksum >= len(_CHECKSUMS) or not 0 < self.version < _LARGEST_VERSION:
            message = f"says it is of version {self.version}, checksums {self.checksum}: there are none"
            raise Damaged(message, path=path)
        if not 2 <= self.version <= 5 or self.checksum not in (_CRC32C, _XXHASH, _XXH3):
            kind = _CHECKSUMS[self.checksum]
            raise UnsupportedVersion(
                f"is an SST file of version {self.version} with checksums of type {kind}, not read here", path=path
            )
        self.metaindex, at = self._handle(footer, 1)
        self.index, at = self._handle(footer, at)
        if any(footer[at:-12]):
            raise Damaged("its footer has bits set where there are none", path=path)

    def _index_type(self) -> int:
        return int.from_bytes(self.properties.get(_INDEX_TYPE, b"\0"), "little")

    def _index_is_read(self) -> None:
        kind = self._index_type()
        if kind not in (*_ONE_LEVEL, _TWO_LEVELS):
            raise UnsupportedVersion(f"has an index of type {kind}, which is not read here", path=self.path)

    def _no_gap(self) -> None:
        """Every byte belongs to one block, so that none goes unchecked."""
        at = 0
        for offset, size in [*self.handles, _Handle(len(self.data) - FOOTER, 0)]:
            if offset < at:
                raise Damaged(f"two of its blocks share bytes {offset} to {at}", path=self.path)
            if offset > at:
                # RocksDB can be told to lay blocks at pages of the disk: between them there are zeros then.
                kind = Damaged if any(self.data[at:offset]) else UnsupportedVersion
                raise kind(f"its blocks leave bytes {at} to {offset} unaccounted for", path=self.path)
            at = offset + size + TRAILER

    # Blocks

    def _checked(self, handle: _Handle) -> tuple[bytes, int]:
        """The bytes of a block, which have the checksum that was written, and their compression."""
        begin, end = handle.offset, handle.offset + handle.size
        if handle.size < 0 or end + TRAILER > len(self.data) - FOOTER:
            raise Damaged(f"names a block of {handle.size} bytes at {begin}, beyond its end", path=self.path)
        content, compression = self.data[begin:end], self.data[end]
        if self.checksum == _XXH3:
            crc = (xxhash.xxh3_64_intdigest(content) ^ compression * 0x6B9083D9) & 0xFFFFFFFF
        elif self.checksum == _XXHASH:
            crc = xxhash.xxh32_intdigest(self.data[begin : end + 1])
        else:
            crc = masked(crc32c(self.data[begin : end + 1]))
        written = int.from_bytes(self.data[end + 1 : end + TRAILER], "little")
        if crc != written:
            raise ChecksumMismatch(
                f"the block at {begin} has checksum {crc:08x}, {written:08x} was written",
                path=self.path,
                hint="bits of it have changed; RocksDB reads such files without a word",
            )
        return content, compression

    def _index_block(self, handle: _Handle) -> bytes:
        return self._block(handle, _LARGEST_INDEX)

    def _block(self, handle: _Handle, most: int = _LARGEST) -> bytes:
        """The plain bytes of a block; Damaged beyond `most` of them."""
        content, compression = self._checked(handle)
        name = f"its block at byte {handle.offset}"
        if compression == _PLAIN:
            return content
        if compression == _SNAPPY:
            return unpack_block(content, self.path, name, most)
        if compression not in _PACKED:
            message = f"has blocks compressed by method {compression}, which is not read here"
            raise UnsupportedVersion(message, path=self.path)
        import pyarrow as pa

        size, at = self._varint(content, 0)
        if size > min(most, _RATIO * len(content) + 64):
            raise Damaged(f"{name} would unpack to {size} bytes", path=self.path)
        try:
            with decoding(self.path):
                return bytes(pa.Codec(_PACKED[compression]).decompress(content[at:], size, asbytes=True))
        except (OSError, ValueError):
            raise Damaged(f"{name} does not unpack", path=self.path) from None

    # Entries

    def _entry(self, key: bytes, value: bytes) -> Entry:
        if len(key) < 8:
            raise Damaged("has a key of less than 8 bytes", path=self.path)
        number = int.from_bytes(key[-8:], "little")
        kind = number & 0xFF
        if kind not in (DELETION, VALUE, MERGE, SINGLE_DELETION):
            raise UnsupportedVersion(f"has an entry of kind {kind}, which is not read here", path=self.path)
        return Entry(key[:-8], number >> 8, kind, value)

    def _end(self, block: bytes) -> int:
        """Where the entries of a block end and its restart points begin."""
        restarts = int.from_bytes(block[-4:], "little")
        if restarts >> 31:
            raise UnsupportedVersion("has blocks with a hash index, which is not read here", path=self.path)
        end = len(block) - 4 - 4 * restarts
        if len(block) < 4 or end < 0:
            raise Damaged(f"has a block of {len(block)} bytes with {restarts} restart points", path=self.path)
        return end

    def _items(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values: of a key the bytes that it shares with the last are left out."""
        end, at, key = self._end(block), 0, b""
        while at < end:
            shared, own, size = block[at], block[at + 1], block[at + 2]
            if (shared | own | size) < 0x80:
                at += 3
            else:
                shared, at = self._varint(block, at)
                own, at = self._varint(block, at)
                size, at = self._varint(block, at)
            begin = at + own
            if shared > len(key) or begin + size > end:
                raise self._outside()
            key = key[:shared] + block[at:begin]
            at = begin + size
            yield key, block[begin:at]

    def _indexed(self, index: _Handle) -> Iterator[tuple[bytes, _Handle]]:
        """Yield the blocks that a block of an index names: a key at or after the last one of each, and its location."""
        block = self._index_block(index)
        if not self._has_deltas():
            for key, value in self._items(block):
                yield key, self._handle(value, 0)[0]
            return
        end, at, last, key = self._end(block), 0, _Handle(0, 0), b""
        while at < end:
            shared, own = block[at], block[at + 1]
            if (shared | own) < 0x80:
                at += 2
            else:
                shared, at = self._varint(block, at)
                own, at = self._varint(block, at)
            if shared > len(key) or at + own > end:
                raise self._outside()
            key = key[:shared] + block[at : at + own]
            at += own
            if shared:  # a block that follows the last one: only by how much its size differs is there
                more, at = self._varint(block, at)
                last = _Handle(last.offset + last.size + TRAILER, last.size + zigzag(more))
            else:
                last, at = self._handle(block, at)
            if at > end:
                raise self._outside()
            yield key, last

    def _has_deltas(self) -> bool:
        """Whether handles in the index stand as differences: all tables of version 4 on, unless they say otherwise."""
        return self.properties.get(_DELTAS, b"\1" if self.version >= 4 else b"\0") != b"\0"

    def _handle(self, data: bytes, at: int) -> tuple[_Handle, int]:
        offset, at = self._varint(data, at)
        size, at = self._varint(data, at)
        return _Handle(offset, size), at

    def _varint(self, data: bytes, at: int) -> tuple[int, int]:
        try:
            if data[at] < 0x80:
                return data[at], at + 1
            return read_varint(data, at)
        except (IndexError, ValueError):
            raise Damaged("has a number that does not end", path=self.path) from None

    def _outside(self) -> Damaged:
        return Damaged("has an entry that leads out of its block", path=self.path)
