"""RocksDB's table files, block by block: every block has the checksum that was written with it.

A file of blocks and a footer of 53 bytes: u8 checksum type, the handles of the metaindex and the index as varints, i32
format version and u64 magic, little-endian. A block is its bytes, u8 compression and u32 checksum. The blocks, as the
two indexes name them, must cover the file without a gap: then no byte has gone unchecked.

Known: block-based tables of format versions 2 to 5 with a plain index, checksums CRC32C and XXH3; what is not known is
said. Source: RocksDB's `table/format.cc` and `block_based`; held against files that Flink 2.3 (RocksDB 8.10) wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from formats.errors import Damaged, FormatError
from formats.flink.bytes import Reader

FOOTER: Final = 53
_TRAILER: Final = 5
_MAGIC: Final = 0x88E241B785F4CFF7
_CRC32C, _XXH3 = 1, 4
_MOST: Final = 64 << 20
_NAMES: Final = {0: "no checksum", 2: "xxHash", 3: "xxHash64"}


class Unknown(FormatError):
    """A table file of a kind whose checksums are not known here."""


class Block(NamedTuple):
    """Where a block lies, without its trailer."""

    offset: int
    size: int


def check(data: bytes, path: str | None = None) -> int:
    """Check every block of a file; their number.

    path: what messages call the file. Damaged if a byte is not what was written, Unknown if it cannot be told.
    """
    kind, metaindex, index = _footer(data, path)
    blocks = [metaindex, index]
    blocks += [block for _, block in _entries(_block(data, metaindex, kind, path), path, delta=False)]
    version = int.from_bytes(data[-12:-8], "little")
    blocks += [block for _, block in _entries(_block(data, index, kind, path), path, delta=version >= 4)]
    at = 0
    for block in sorted(set(blocks)):
        if block.offset != at:
            raise Unknown(f"its blocks leave bytes {at} to {block.offset} unaccounted for", path=path)
        _verify(data, block, kind, path)
        at += block.size + _TRAILER
    if at != len(data) - FOOTER:
        raise Unknown(f"its blocks leave bytes {at} to {len(data) - FOOTER} unaccounted for", path=path)
    return len(set(blocks))


def _footer(data: bytes, path: str | None) -> tuple[int, Block, Block]:
    if len(data) < FOOTER:
        raise Damaged(f"has {len(data)} bytes, the footer alone has {FOOTER}", path=path)
    magic = int.from_bytes(data[-8:], "little")
    version = int.from_bytes(data[-12:-8], "little")
    if magic != _MAGIC:
        raise Damaged(f"ends with 0x{magic:016x}, not with 0x{_MAGIC:016x} as table files do", path=path)
    if not 2 <= version <= 5:
        raise Unknown(f"is a table file of format version {version}", path=path)
    r = Reader(data, path, len(data) - FOOTER, len(data) - 12)
    kind = r.u8("checksum type")
    if kind not in (_CRC32C, _XXH3):
        raise Unknown(f"has checksums of type {_NAMES.get(kind, kind)}", path=path)
    return kind, _handle(r), _handle(r)


def _handle(r: Reader) -> Block:
    return Block(_varint(r), _varint(r))


def _varint(r: Reader) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = r.u8("varint")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise r.error("a varint of more than 64 bits", "varint")


def _entries(data: bytes, path: str | None, *, delta: bool) -> Iterator[tuple[bytes, Block]]:
    """Keys and block handles of an index. delta: handles are told by the difference of sizes where a key is shared."""
    if len(data) < 4:
        raise Damaged(f"has an index of {len(data)} bytes", path=path)
    restarts = int.from_bytes(data[-4:], "little") & 0x7FFFFFFF
    end = len(data) - 4 - 4 * restarts
    if end < 0:
        raise Damaged(f"has an index of {len(data)} bytes with {restarts} restarts", path=path)
    r = Reader(data, path, 0, end)
    key = b""
    last = Block(0, 0)
    while r.left:
        shared, own = _varint(r), _varint(r)
        length = None if delta else _varint(r)
        key = key[:shared] + r.take(own, "index key")
        begin = r.pos
        if delta and shared:
            size = _varint(r)
            last = Block(last.offset + last.size + _TRAILER, last.size + (size >> 1 ^ -(size & 1)))
        else:
            last = _handle(r)
        if length is not None:
            if r.pos - begin > length:
                raise r.error("an entry that is longer than it says", "index value")
            r.take(length - (r.pos - begin), "index value")
        yield key, last


def _stored(data: bytes, block: Block, path: str | None) -> tuple[bytes, int, int]:
    """The bytes of a block, its compression and its checksum."""
    end = block.offset + block.size
    if block.size < 0 or end + _TRAILER > len(data) - FOOTER:
        raise Damaged(f"names a block of {block.size} bytes at {block.offset}, beyond its end", path=path)
    return data[block.offset : end], data[end], int.from_bytes(data[end + 1 : end + _TRAILER], "little")


def _verify(data: bytes, block: Block, kind: int, path: str | None) -> None:
    content, compression, written = _stored(data, block, path)
    if kind == _XXH3:
        from formats.codec.xxh3 import xxh3_64  # which needs numpy

        found = xxh3_64(content) & 0xFFFFFFFF ^ compression * 0x6B9083D9 & 0xFFFFFFFF
    else:
        from formats.codec.snappy import crc32c

        crc = crc32c(content + bytes([compression]))
        found = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if found != written:
        said = f"the block at {block.offset} has checksum {found:08x}, {written:08x} was written"
        raise Damaged(said, path=path)


def _unpacked(content: bytes, path: str | None) -> bytes:
    """A snappy block: its plain length as a varint, then the pieces."""
    import pyarrow as pa

    size = _varint(Reader(content, path))
    if size > _MOST:
        raise Damaged(f"has an index of {size} bytes when unpacked, more than {_MOST}", path=path)
    try:
        plain: bytes = pa.Codec("snappy").decompress(content, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"has an index that cannot be unpacked: {error}", path=path) from None
    return plain


def _block(data: bytes, block: Block, kind: int, path: str | None) -> bytes:
    """A block's content, checked and decompressed."""
    _verify(data, block, kind, path)
    content, compression, _ = _stored(data, block, path)
    if compression == 0:
        return content
    if compression == 1:
        return _unpacked(content, path)
    raise Unknown(f"its index is compressed by method {compression}", path=path)
