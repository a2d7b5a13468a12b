"""Encodings that several systems share: tables of RocksDB of all kinds, snappy, numbers of variable length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rocksdict as rocks

from formats.codec import snappy
from formats.codec.sst import DELETION, FOOTER, TRAILER, Entry, check_sst, parse_sst
from formats.codec.varint import read_varint, zigzag
from formats.errors import ChecksumMismatch, Damaged, UnsupportedVersion

Tune = Callable[[Any, Any], object]
ROWS = 500


def table(folder: Path, tune: Tune = lambda options, blocks: None) -> bytes:
    """A table that RocksDB writes, of several blocks; the last key is deleted."""
    options, blocks = rocks.Options(raw_mode=True), rocks.BlockBasedOptions()
    blocks.set_format_version(5)
    tune(options, blocks)
    options.set_block_based_table_factory(blocks)
    writer = rocks.SstFileWriter(options)
    path = folder / "a.sst"
    writer.open(str(path))
    for i in range(ROWS):
        writer[b"key-%06d" % i] = value(i)
    del writer[b"key-%06d" % ROWS]
    writer.finish()
    return path.read_bytes()


def value(i: int) -> bytes:
    return (b"%d," % i) * (1 + i % 50)


def checksum(name: str) -> Tune:
    return lambda options, blocks: blocks.set_checksum_type(getattr(rocks.ChecksumType, name)())


def compression(name: str) -> Tune:
    return lambda options, blocks: options.set_compression_type(getattr(rocks.DBCompressionType, name)())


def version(number: int) -> Tune:
    return lambda options, blocks: blocks.set_format_version(number)


def hashed_index(options: Any, blocks: Any) -> None:
    blocks.set_index_type(rocks.BlockBasedIndexType.hash_search())
    options.set_prefix_extractor(rocks.SliceTransform.create_fixed_prefix(6))


def two_levels(*, restart: int = 1, version: int = 5) -> Any:
    """`state.backend.rocksdb.memory.partitioned-index-filters` of Flink: many small blocks of index and filter."""

    def choose(options: Any, blocks: Any) -> None:
        blocks.set_index_type(rocks.BlockBasedIndexType.two_level_index_search())
        blocks.set_metadata_block_size(200)
        blocks.set_index_block_restart_interval(restart)
        blocks.set_format_version(version)

    return choose


def partitioned_filter(*, restart: int = 1) -> Any:
    def choose(options: Any, blocks: Any) -> None:
        two_levels(restart=restart)(options, blocks)
        blocks.set_bloom_filter(10, False)
        blocks.set_partition_filters(True)

    return choose


def bloom(options: Any, blocks: Any) -> None:
    blocks.set_bloom_filter(10, False)


READ = {
    **{f"checksums {name}": checksum(name) for name in ("crc32c", "xxhash", "xxh3")},
    **{f"packed by {name}": compression(name) for name in ("none", "snappy", "lz4", "lz4hc", "zstd")},
    **{f"version {number}": version(number) for number in (2, 3, 4, 5)},
    "hash beside the index": hashed_index,
    "index of two levels": two_levels(),
    "index of two levels, restarts": two_levels(restart=4),
    "index of two levels, version 2": two_levels(version=2),
    "filter of two levels": partitioned_filter(),
    "filter of two levels, restarts": partitioned_filter(restart=16),
    "bloom filter": bloom,
}
UNREAD = {
    "no checksums": (checksum("no_checksum"), "checksums of type no checksum"),
    "xxHash64": (checksum("xxhash64"), "checksums of type xxHash64"),
    "version 6": (version(6), "of version 6"),
}


@pytest.mark.parametrize("kind", READ)
def test_tables_of_rocksdb_are_read_and_checked_whatever_their_kind(kind: str, tmp_path: Path) -> None:
    data = table(tmp_path, READ[kind])
    entries = [(entry.key, entry.value) for entry in parse_sst(data, "f") if entry.kind != DELETION]
    assert entries == [(b"key-%06d" % i, value(i)) for i in range(ROWS)]
    assert parse_sst(data, "f")[-1] == Entry(b"key-%06d" % ROWS, 0, DELETION, b"")
    assert check_sst(data) > 3
    for at in range(0, len(data) - FOOTER, 97):
        for read in (check_sst, parse_sst):
            with pytest.raises(ChecksumMismatch):
                read(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], "f")


@pytest.mark.parametrize("kind", UNREAD)
def test_tables_of_another_kind_are_not_called_damaged(kind: str, tmp_path: Path) -> None:
    tune, message = UNREAD[kind]
    for read in (check_sst, parse_sst):
        with pytest.raises(UnsupportedVersion, match=message):
            read(table(tmp_path, tune), "f")


def hashed_data(options: Any, blocks: Any) -> None:
    blocks.set_data_block_index_type(rocks.DataBlockIndexType.binary_and_hash())


def test_a_table_whose_entries_are_not_read_is_checked_all_the_same(tmp_path: Path) -> None:
    data = table(tmp_path, hashed_data)
    with pytest.raises(UnsupportedVersion, match="a hash index"):
        parse_sst(data, "f")
    assert check_sst(data) > 3
    with pytest.raises(ChecksumMismatch):
        check_sst(bytes([data[0] ^ 1]) + data[1:], "f")


def test_bytes_that_belong_to_no_block_are_damage_unless_they_are_zeros(tmp_path: Path) -> None:
    data = table(tmp_path)
    end = len(data) - FOOTER
    for read in (check_sst, parse_sst):
        with pytest.raises(UnsupportedVersion, match=f"bytes {end} to {end + 4} unaccounted for"):
            read(data[:end] + bytes(4) + data[end:], "f")
        with pytest.raises(Damaged, match=f"bytes {end} to {end + 4} unaccounted for"):
            read(data[:end] + b"\0\0a\0" + data[end:], "f")


def test_a_footer_whose_blocks_share_bytes_is_damaged(tmp_path: Path) -> None:
    """The index is named where the metaindex should be; it holds handles of blocks that are there."""
    data = table(tmp_path)
    at = len(data) - FOOTER + 1
    middle = read_varint(data, read_varint(data, at)[1])[1]
    end = read_varint(data, read_varint(data, middle)[1])[1]
    handles = data[middle:end] + data[at:middle]
    swapped = data[:at] + handles + data[at + len(handles) :]
    with pytest.raises(Damaged):
        check_sst(swapped)


def test_trailers_are_five_bytes_and_a_block_cannot_reach_into_the_footer(tmp_path: Path) -> None:
    data = table(tmp_path)
    at = len(data) - FOOTER + 1
    middle = read_varint(data, read_varint(data, at)[1])[1]
    offset, size_at = read_varint(data, middle)
    size, end = read_varint(data, size_at)
    assert offset + size + TRAILER <= len(data) - FOOTER
    longer = bytes([(size + 1) & 0x7F | data[size_at] & 0x80]) + data[size_at + 1 : end]
    with pytest.raises(Damaged):
        check_sst(data[:size_at] + longer + data[end:])


def test_snappy_as_java_frames_it_is_whole_or_damaged() -> None:
    block = pa.Codec("snappy").compress(b"a" * 1000, asbytes=True)
    stream = snappy.JAVA_BEGIN + bytes(8) + len(block).to_bytes(4, "big") + block
    assert snappy.unpack_java(stream * 2, "f", 4000) == b"a" * 2000
    for length in (*range(9, 16), *range(17, len(stream)), *range(len(stream) + 9, len(stream) + 16)):
        with pytest.raises(Damaged):
            snappy.unpack_java((stream * 2)[:length], "f", 4000)
    with pytest.raises(Damaged, match="more than"):
        snappy.unpack_java(stream * 2, "f", 1999)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"", "does not say"),
        (b"\x80\x80\x80\x80\x80\x01", "does not say"),
        (b"\xff\xff\xff\xff\x07", "cannot stand for"),
        (b"\x05\x00a", "does not unpack"),
    ],
)
def test_a_block_of_snappy_that_cannot_be_is_damaged(block: bytes, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        snappy.unpack_block(block, "f", "its block", 1 << 31)


def test_numbers_of_variable_length() -> None:
    assert read_varint(b"\x7f", 0) == (127, 1)
    assert read_varint(b"\x00\x80\x01\x05", 1) == (128, 3)
    assert read_varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0, 5) == ((1 << 32) - 1, 5)
    assert [zigzag(n) for n in range(5)] == [0, -1, 1, -2, 2]
    with pytest.raises(ValueError, match="35 bits"):
        read_varint(b"\x80" * 5 + b"\x01", 0, 5)
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)
