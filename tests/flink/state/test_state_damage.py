"""State streams cut short or with a flipped bit: an error of the formats, or an answer; never anything else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.codec import snappy
from formats.codec.crc32c import crc32c, masked
from formats.errors import Damaged, FormatError
from formats.flink.metadata.handles import (
    ChangelogHandle,
    InlineHandle,
    InMemoryChange,
    InMemoryChangelogHandle,
    KeyGroupsHandle,
    OperatorStateHandle,
)
from formats.flink.state.keyed import read_blocks
from formats.flink.state.operator import read_operator_state
from formats.flink.store import FlinkStore
from tests.support.flink.streams import Inline, held_keyed, held_operator
from tests.support.flink.truth import DATA

PLACES = 80
"""Flips and cuts tried in each stream, the same every time."""


def snapshot(case: str) -> FlinkStore:
    return FlinkStore(str(next(path.parent for path in sorted((DATA / case).rglob("_metadata")))))


def keyed(case: str, most: int = 40_000) -> list[tuple[str, int, KeyGroupsHandle]]:
    """One handle of each operator, if its stream is not large."""
    store = snapshot(case)
    epoch = store.epoch_numbers()[-1]
    found = []
    for operator in store.metadata(epoch).operators:
        for subtask in operator.subtasks[:1]:
            handle = subtask.managed_keyed
            if isinstance(handle, KeyGroupsHandle) and handle.size <= most:
                held = held_keyed(handle, store.streams(epoch))
                found.append((operator.uid or operator.id, operator.max_parallelism, held))
    return found


CASES = [
    pytest.param(limit, handle, id=f"{case}-{name}")
    for case in ("hashmap-inline", "hashmap-savepoint-canonical", "hashmap-plain", "sql", "state/heap-compressed")
    for name, limit, handle in keyed(case)
]


def damaged(data: bytes, seed: str) -> Iterator[bytes]:
    dice = random.Random(seed)
    for at in dice.sample(range(len(data)), min(len(data), PLACES)):
        yield data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
    for at in dice.sample(range(len(data)), min(len(data), PLACES // 5)):
        yield data[:at]


def consume(handle: KeyGroupsHandle, limit: int) -> tuple[int, int]:
    """Rows read and problems met; the error of a stream that cannot be read at all counts as one."""
    rows = problems = 0
    try:
        for block in read_blocks(handle, Inline(), limit):
            assert len(block.keys) == len(block.namespaces) == len(block.values)
            rows += len(block.keys)
            problems += block.problem is not None
    except FormatError:
        problems += 1
    return rows, problems


@pytest.mark.parametrize(("limit", "handle"), CASES)
def test_a_damaged_keyed_stream_is_an_error_or_an_answer(limit: int, handle: KeyGroupsHandle) -> None:
    assert isinstance(handle.stream, InlineHandle)
    whole = handle.stream.data
    rows, problems = consume(handle, limit)
    assert problems == 0
    found = 0
    for data in damaged(whole, str(len(whole))):
        broken = KeyGroupsHandle(handle.tag, handle.first, handle.offsets, InlineHandle("s", data))
        some, lost = consume(broken, limit)
        found += lost > 0
        assert some <= 2 * rows + 16
    assert found > 0


@pytest.mark.parametrize(("limit", "handle"), [case for case in CASES if "compressed" in (case.id or "")])
def test_a_flipped_bit_in_a_compressed_stream_is_always_found(limit: int, handle: KeyGroupsHandle) -> None:
    """Every chunk has a checksum; only the numbers of key groups stand outside, and they are known."""
    assert isinstance(handle.stream, InlineHandle)
    whole = handle.stream.data
    first = min(offset for offset in handle.offsets if offset)
    dice = random.Random(first)
    for at in dice.sample(range(first, len(whole)), 150):
        data = whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :]
        broken = KeyGroupsHandle(handle.tag, handle.first, handle.offsets, InlineHandle("s", data))
        assert consume(broken, limit)[1] > 0, at


def test_offsets_that_lead_anywhere_are_an_error_or_an_answer() -> None:
    dice = random.Random(7)
    for case in CASES:
        limit, handle = case.values
        assert isinstance(handle, KeyGroupsHandle)
        assert isinstance(limit, int)
        for _ in range(20):
            offsets = list(handle.offsets)
            offsets[dice.randrange(len(offsets))] = dice.choice((0, 1, -1, 2**40, dice.randrange(handle.size)))
            consume(KeyGroupsHandle(handle.tag, handle.first, tuple(offsets), handle.stream), limit)


def test_damaged_operator_state_is_an_error_or_an_answer() -> None:
    store = snapshot("hashmap-inline")
    epoch = store.epoch_numbers()[-1]
    tried = 0
    for operator in store.metadata(epoch).operators:
        handle = operator.subtasks[0].managed_operator if operator.subtasks else None
        if handle is None or not handle.states or handle.stream is None:
            continue
        held = held_operator(handle, store.streams(epoch))
        assert isinstance(held.stream, InlineHandle)
        for data in damaged(held.stream.data, operator.id):
            tried += 1
            broken = OperatorStateHandle(held.states, InlineHandle("s", data))
            try:
                for rows in read_operator_state(broken, Inline()):
                    assert rows.keys is None or len(rows.keys) == len(rows.values)
            except FormatError:
                pass
    assert tried > 100


def test_a_damaged_changelog_is_an_error_or_an_answer() -> None:
    store = snapshot("changelog")
    epoch = store.epoch_numbers()[-1]
    operator = next(o for o in store.metadata(epoch).operators if any(s.managed_keyed for s in o.subtasks))
    handle = operator.subtasks[0].managed_keyed
    assert isinstance(handle, ChangelogHandle)
    (changes,) = handle.changes
    assert isinstance(changes, InMemoryChangelogHandle)
    dice = random.Random(3)
    for _ in range(60):
        i = dice.randrange(len(changes.changes))
        data = bytearray(changes.changes[i].data)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        some = list(changes.changes)
        length = dice.choice((len(data), dice.randrange(len(data)))) or 1
        some[i] = InMemoryChange(some[i].key_group, bytes(data[:length]))
        broken = InMemoryChangelogHandle(
            changes.first, changes.count, changes.start, changes.end, tuple(some), changes.id
        )
        try:
            for block in read_blocks(broken, Inline(), operator.max_parallelism):
                assert len(block.keys) == len(block.values)
        except FormatError:
            pass


# -- snappy -----------------------------------------------------------------------------------------------


def framed(*plain: bytes) -> bytes:
    import pyarrow as pa

    out = snappy.BEGIN
    for part in plain:
        body = pa.Codec("snappy").compress(part, asbytes=True)
        crc = masked(crc32c(part))
        out += b"\0" + (len(body) + 4).to_bytes(3, "little") + crc.to_bytes(4, "little") + body
    return out


def test_the_checksum_is_the_castagnoli_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    assert crc32c(b"") == 0
    for size in (255, 256, 1023, 1024, 1025, 5000, 65536):
        data = random.Random(size).randbytes(size)
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        assert crc32c(data) == crc ^ 0xFFFFFFFF


def test_streams_are_told_apart_by_their_beginnings() -> None:
    first, second = framed(b"a" * 1000, b"b"), framed(b"")
    assert list(snappy.streams(first + second, None)) == [(0, b"a" * 1000 + b"b"), (len(first), b"")]
    assert snappy.pieces(first[len(snappy.BEGIN) :], None) == b"a" * 1000 + b"b"


def test_every_flipped_bit_of_a_chunk_is_found() -> None:
    data = framed(b"some text, some text, some more text")
    for at in range(len(data)):
        for bit in range(8):
            broken = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            if 0x80 <= broken[len(snappy.BEGIN)] < 0xFF:
                continue  # a chunk that readers are told to skip
            with pytest.raises(Damaged):
                list(snappy.streams(broken, "f"))


def test_a_chunk_that_promises_much_costs_nothing() -> None:
    with pytest.raises(Damaged, match="plain bytes"):
        list(snappy.streams(snappy.BEGIN + b"\0\x09\0\0" + b"\0" * 4 + b"\xff\xff\xff\xff\x07", "f"))


def test_a_file_of_changes_is_read_with_and_without_compression(tmp_path: Path) -> None:
    from formats.flink.metadata.handles import ChangeStream, FileChangelogHandle
    from formats.flink.state.changes import changes

    def number(n: int) -> bytes:
        return n.to_bytes(4, "big", signed=True)

    one = number(2) + number(1) + number(-1) + number(3) + b"abc" + number(1) + number(7) + number(2) + b"de"
    two = number(1) + number(2) + number(0) + number(1) + b"x" + number(0)
    for data in (b"\0" + one + two, b"\1" + framed(one[:10], one[10:] + two)):
        stream = InlineHandle("s", data)
        parts = (ChangeStream(0, stream), ChangeStream(len(one), stream))
        handle = FileChangelogHandle(13, 0, 16, parts, len(data), len(data), "id")
        assert [(c.group, c.data) for c in changes(handle, Inline())] == [(-1, b"abc"), (7, b"de"), (0, b"x"), (0, b"")]
    with pytest.raises(Damaged):
        list(changes(FileChangelogHandle(13, 0, 16, (ChangeStream(0, InlineHandle("s", b"\2")),), 1, 1, "i"), Inline()))
