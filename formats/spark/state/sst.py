"""SST files of RocksDB, read without RocksDB: every block's checksum, then its keys and values.

The block-based table of format versions 2 to 5: data blocks, filter, properties, index and metaindex blocks, each
followed by its compression (1 byte) and checksum (4), and a footer of 53 bytes that points to the last two. Keys end in
8 bytes of sequence number and kind. A database is all its SSTs: of a key the entry with the highest number holds.
Source: RocksDB's `table/format.h`, `table/block_based`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.bounds import decoding
from formats.codec.xxh3 import xxh3_64
from formats.errors import Damaged, UnsupportedVersion
from formats.spark.checksums import ChecksumMismatch, crc32c
from formats.spark.state.blocks import LARGEST, xxhash32

MAGIC = 0x88E241B785F4CFF7
FOOTER = 53
TRAILER = 5
DELETION, VALUE, MERGE, SINGLE_DELETION = 0, 1, 2, 7


class Entry(NamedTuple):
    """One entry of a table. number: the higher, the newer."""

    key: bytes
    number: int
    kind: int
    value: bytes


class _Handle(NamedTuple):
    """Where a block lies."""

    offset: int
    size: int


def parse_sst(data: bytes, path: str) -> list[Entry]:
    """The entries of a table, in its order; Damaged if any block is not what was written.

    UnsupportedVersion for formats, compressions and kinds of entries that are not read here.
    """
    return _Table(data, path).entries()


def resolve(entries: Iterable[Entry]) -> dict[bytes, bytes]:
    """What holds of the entries of all tables of a database: per key the newest value, with what was merged into it."""
    found: dict[bytes, Entry | list[Entry]] = {}
    for entry in entries:
        before = found.get(entry.key)
        if before is None:
            found[entry.key] = entry
        elif isinstance(before, list):
            before.append(entry)
        else:
            found[entry.key] = [before, entry]
    state: dict[bytes, bytes] = {}
    for key, several in found.items():
        newest = [several] if isinstance(several, Entry) else sorted(several, key=lambda entry: -entry.number)
        parts: list[bytes] = []
        for entry in newest:
            if entry.kind in (DELETION, SINGLE_DELETION):
                break
            parts.append(entry.value)
            if entry.kind == VALUE:
                break
        if parts:
            state[key] = b",".join(reversed(parts))
    return state


class _Table:
    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path = data, path
        self.covered = FOOTER
        footer = data[-FOOTER:]
        if len(data) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
            raise Damaged("does not end in the footer of an SST file", path=path, hint="it was cut short or changed")
        self.version = int.from_bytes(footer[-12:-8], "little")
        self.checksum = footer[0]
        if self.checksum > 4 or not 0 < self.version < 16:
            raise Damaged(f"says it is of version {self.version}, checksums {self.checksum}: there are none", path=path)
        if not 2 <= self.version <= 5 or self.checksum == 3:
            said = f"is an SST file of version {self.version} with checksums of type {self.checksum}, not read here"
            raise UnsupportedVersion(said, path=path)
        self.metaindex, at = self._handle(footer, 1)
        self.index, at = self._handle(footer, at)
        if any(footer[at:-12]):
            raise Damaged("its footer has bits set where there are none", path=path)

    def entries(self) -> list[Entry]:
        meta = {key: self._handle(value, 0)[0] for key, value in self._items(self._block(self.metaindex))}
        properties: dict[bytes, bytes] = {}
        for name, handle in meta.items():
            if name == b"rocksdb.properties":
                properties = dict(self._items(self._block(handle)))
            elif name in (b"rocksdb.range_del", b"rocksdb.compression_dict"):
                raise UnsupportedVersion(f"has a block {name.decode()}, which is not read here", path=self.path)
            else:
                self._checked(handle)
        out: list[Entry] = []
        kind = properties.get(b"rocksdb.block.based.table.index.type", b"\0\0\0\0")
        if int.from_bytes(kind, "little") not in (0, 3):
            raise UnsupportedVersion("has an index of several levels, which is not read here", path=self.path)
        deltas = properties.get(b"rocksdb.index.value.is.delta.encoded", b"\0") != b"\0"
        for handle in self._index(self._block(self.index), deltas):
            for key, value in self._items(self._block(handle)):
                out.append(self._entry(key, value))
        said = properties.get(b"rocksdb.num.entries")
        if said is not None and self._varint(said, 0)[0] != len(out):
            said_entries = self._varint(said, 0)[0]
            raise Damaged(f"has {len(out)} entries, its properties say {said_entries}", path=self.path)
        if self.covered != len(self.data):
            raise Damaged(f"{len(self.data) - self.covered} bytes of it belong to no block", path=self.path)
        return out

    def _entry(self, key: bytes, value: bytes) -> Entry:
        if len(key) < 8:
            raise Damaged("has a key of less than 8 bytes", path=self.path)
        number = int.from_bytes(key[-8:], "little")
        kind = number & 0xFF
        if kind not in (DELETION, VALUE, MERGE, SINGLE_DELETION):
            raise UnsupportedVersion(f"has an entry of kind {kind}, which is not read here", path=self.path)
        return Entry(key[:-8], number >> 8, kind, value)

    # Blocks

    def _checked(self, handle: _Handle) -> bytes:
        """The bytes of a block with its compression behind it, its checksum checked."""
        end = handle.offset + handle.size + 1
        body = self.data[handle.offset : end]
        said = int.from_bytes(self.data[end : end + 4], "little")
        if end + 4 > len(self.data) - FOOTER:
            raise Damaged(f"points to a block at byte {handle.offset}, outside of it", path=self.path)
        self.covered += handle.size + TRAILER
        if self.checksum and _checksum(self.checksum, body) != said:
            what = f"its block at byte {handle.offset} does not have the checksum that was written"
            raise ChecksumMismatch(
                what, path=self.path, hint="bits of it have changed; RocksDB reads such files without a word"
            )
        return body

    def _block(self, handle: _Handle) -> bytes:
        body = self._checked(handle)
        kind, body = body[-1], body[:-1]
        if kind == 0:
            return body
        if kind not in (1, 4, 5, 7):
            raise UnsupportedVersion(f"has blocks compressed by method {kind}, which is not read here", path=self.path)
        import pyarrow as pa

        size, at = self._varint(body, 0)
        if size > min(LARGEST, 256 * len(body) + 64):
            raise Damaged(f"its block at byte {handle.offset} would unpack to {size} bytes", path=self.path)
        name = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}[kind]
        try:
            with decoding(self.path):
                return bytes(pa.Codec(name).decompress(body[0 if kind == 1 else at :], size, asbytes=True))
        except (OSError, ValueError):
            raise Damaged(f"its block at byte {handle.offset} does not unpack", path=self.path) from None

    def _end(self, block: bytes) -> int:
        """Where the entries of a block end and its restart points begin."""
        restarts = int.from_bytes(block[-4:], "little")
        if restarts >> 31:
            raise UnsupportedVersion("has blocks with a hash index, which is not read here", path=self.path)
        end = len(block) - 4 - 4 * restarts
        if len(block) < 4 or end < 0:
            raise Damaged("has a block without restart points", path=self.path)
        return end

    def _items(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        end, at, key = self._end(block), 0, b""
        while at < end:
            shared, at = self._varint(block, at)
            own, at = self._varint(block, at)
            size, at = self._varint(block, at)
            if shared > len(key) or at + own + size > end:
                raise Damaged("has an entry that leads out of its block", path=self.path)
            key = key[:shared] + block[at : at + own]
            at += own
            yield key, block[at : at + size]
            at += size

    def _index(self, block: bytes, deltas: bool) -> Iterator[_Handle]:
        """Handles of the data blocks. deltas: a key that shares a part with the last has a difference of sizes."""
        if not deltas:
            for _, value in self._items(block):
                yield self._handle(value, 0)[0]
            return
        end, at, last = self._end(block), 0, _Handle(0, 0)
        while at < end:
            shared, at = self._varint(block, at)
            own, at = self._varint(block, at)
            at += own
            if shared:
                zigzag, at = self._varint(block, at)
                last = _Handle(last.offset + last.size + TRAILER, last.size + (zigzag >> 1 ^ -(zigzag & 1)))
            else:
                last, at = self._handle(block, at)
            yield last

    def _handle(self, data: bytes, at: int) -> tuple[_Handle, int]:
        offset, at = self._varint(data, at)
        size, at = self._varint(data, at)
        return _Handle(offset, size), at

    def _varint(self, data: bytes, at: int) -> tuple[int, int]:
        number = shift = 0
        while at < len(data) and shift < 70:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, at
            shift += 7
        raise Damaged("has a number that does not end", path=self.path)


def _checksum(kind: int, body: bytes) -> int:
    if kind == 1:
        crc = crc32c(body)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if kind == 2:
        return xxhash32(body, 0)
    return (xxh3_64(body[:-1]) & 0xFFFFFFFF) ^ (body[-1] * 0x6B9083D9 & 0xFFFFFFFF)
