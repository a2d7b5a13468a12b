"""RocksDB's table files: a flipped byte shows, wherever it is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from formats.codec.crc32c import crc32c, masked
from formats.codec.sst import FOOTER, check_sst
from formats.errors import Damaged, FormatError, UnsupportedVersion
from formats.flink.checks import TableCheck
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import IncrementalHandle, InlineHandle, LocalFile, OperatorState, Subtask
from formats.ids import TaskId
from tests.support.flink.truth import DATA

SMALL = (DATA / "sst" / "small.sst").read_bytes()
LARGE = (DATA / "sst" / "large.sst").read_bytes()


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_every_block_of_a_real_file_has_the_checksum_that_was_written(data: bytes) -> None:
    assert check_sst(data) >= 3


def test_a_flipped_byte_before_the_footer_is_found_in_its_block() -> None:
    for i in range(len(SMALL) - FOOTER):
        with pytest.raises(Damaged, match="checksum"):
            check_sst(SMALL[:i] + bytes([SMALL[i] ^ 0x10]) + SMALL[i + 1 :])


def test_a_flipped_byte_of_the_footer_is_an_error_or_pads() -> None:
    start = len(SMALL) - FOOTER
    for i in range(start, len(SMALL)):
        damaged = SMALL[:i] + bytes([SMALL[i] ^ 0x10]) + SMALL[i + 1 :]
        if any(SMALL[i : i + 1]):
            with pytest.raises(FormatError):
                check_sst(damaged)


@pytest.mark.parametrize("length", [0, 1, 52, 53, 100, len(SMALL) - 1])
def test_a_file_cut_short_is_damaged(length: int) -> None:
    with pytest.raises(Damaged):
        check_sst(SMALL[:length])


@given(st.binary(max_size=300))
def test_any_bytes_before_a_footer_are_an_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        check_sst(data + SMALL[-FOOTER:])


def test_old_tables_with_crc32c_are_checked_and_other_checksums_are_said_to_be_unknown() -> None:
    """Built here by the rules of the format: one entry in the index, uncompressed, as RocksDB 6 of Flink 1.x has it."""

    def sealed(content: bytes) -> bytes:
        return content + b"\0" + struct.pack("<I", masked(crc32c(content + b"\0")))

    def handle(offset: int, size: int) -> bytes:
        assert offset < 128
        assert size < 128
        return bytes([offset, size])

    data = sealed(b"a block of data")
    meta = sealed(struct.pack("<II", 0, 1))
    entry = b"\0\1k" + handle(0, len(data) - 5)
    index = sealed(entry + struct.pack("<II", 0, 1))
    handles = handle(len(data), len(meta) - 5) + handle(len(data) + len(meta), len(index) - 5)

    def table(kind: int) -> bytes:
        footer = bytes([kind]) + handles.ljust(40, b"\0") + struct.pack("<IQ", 5, 0x88E241B785F4CFF7)
        return data + meta + index + footer

    assert check_sst(table(1)) == 3
    with pytest.raises(Damaged, match="block at 0"):
        check_sst(b"A" + table(1)[1:])
    with pytest.raises(UnsupportedVersion, match="xxHash64"):
        check_sst(table(3))


class Inline:
    """Streams that are all inline."""

    def read(self, handle: InlineHandle, offset: int = 0, length: int | None = None) -> bytes:
        return handle.data

    def name(self, handle: InlineHandle) -> str:
        return handle.name


def incremental(*files: tuple[str, bytes]) -> IncrementalHandle:
    local = tuple(LocalFile(name, InlineHandle(f"chk-1/{name}", data)) for name, data in files)
    return IncrementalHandle(11, 1, "b", 0, 8, 0, None, local, (), "i")


def test_a_damaged_table_is_named_with_its_file_and_its_task() -> None:
    damaged = bytes([SMALL[0] ^ 1]) + SMALL[1:]
    handle = incremental(("000007.sst", damaged), ("CURRENT", b"MANIFEST-000005"), ("000008.sst", SMALL))
    operator = OperatorState("0" * 32, None, None, 1, 8, None, ())
    streams: Streams = Inline()  # type: ignore[assignment]
    check = TableCheck()
    (problem,) = check(TaskId("totals", 0), operator, Subtask(0), "managed_keyed", handle, streams).problems
    assert (problem.code, problem.task, problem.path) == ("digest-mismatch", TaskId("totals", 0), "chk-1/000007.sst")
    assert check(TaskId("totals", 0), operator, Subtask(0), "managed_keyed", handle, streams).problems == ()
    over = TableCheck(budget=10)("totals/0", operator, Subtask(0), "managed_keyed", handle, streams)
    assert over.problems == ()
    assert over.unchecked


@pytest.mark.parametrize(
    ("length", "value"),
    [(0, 0x2D06800538D394C2), (1, 0xC44BDFF4074EECDB)],
)
def test_xxh3_of_published_vectors(length: int, value: int) -> None:
    assert xxh3_64_intdigest(bytes(length)) == value
