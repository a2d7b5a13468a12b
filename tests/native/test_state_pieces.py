"""State files that are written piece by piece: the same bytes, the same facts, and nothing where that did not end."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import Damaged
from formats.native.state import row_groups, tables
from formats.native.state.row_groups import described, proved_rows, put_encoded, put_tables
from formats.native.state.tables import KEY_GROUP, StateKey, encode_state, encode_tables, encoded_pieces
from formats.storage import LocalStorage, MemoryStorage, pieces
from tests.tiers import examples

SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60)), min_size=1, max_size=6)


def of_groups(sizes: list[tuple[int, int]]) -> list[pa.Table]:
    """A table for each (key groups, rows of each), with keys in no order."""
    made, group = [], 0
    for groups, rows in sizes:
        numbers = [group + i for i in range(groups) for _ in range(rows)]
        keys = [f"k{(i * 7919) % 10007:05d}.{i}" for i in range(len(numbers))]
        values = [None if i % 5 == 0 else i for i in range(len(numbers))]
        columns = [pa.array(numbers, pa.int32()), pa.array(keys, pa.string()), pa.array(values, pa.int64())]
        made.append(pa.table(columns, names=[KEY_GROUP, "k", "n"]))
        group += groups
    return made


@settings(max_examples=examples(60))
@given(SIZES, st.sampled_from([0, 1 << 30]))
def test_facts_and_bytes_are_those_of_the_whole_file(sizes: list[tuple[int, int]], whole: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "ROW_GROUP", 40)
        patch.setattr(tables, "SHARED_ROW_GROUP", 25)
        patch.setattr(pieces, "WHOLE", whole)
        parts = of_groups(sizes)
        storage, other = MemoryStorage(), MemoryStorage()
        facts = put_tables(storage, "s.parquet", parts, StateKey.of(["k"]))
        assert facts == put_encoded(other, "s.parquet", encode_state(pa.concat_tables(parts), ["k"]))
        assert storage.files == other.files
        assert (facts.row_groups, facts.footer) == described(storage.files["s.parquet"])


def test_pieces_are_no_larger_than_a_row_group() -> None:
    parts = of_groups([(8, 20_000)] * 4)
    sizes = [(piece.rows, len(piece.data)) for piece in encoded_pieces(iter(parts), StateKey.of(["k"]))]
    assert sum(rows for rows, _ in sizes) == 4 * 8 * 20_000
    assert max(rows for rows, _ in sizes) <= tables.ROW_GROUP
    assert sum(size for _, size in sizes) == len(encode_tables(parts, StateKey.of(["k"])))


def test_a_large_file_is_never_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what Python has; each table is let go of before the next is made."""
    monkeypatch.setattr(pieces, "WHOLE", 1 << 16)
    storage = LocalStorage(tmp_path)

    def some() -> Iterator[pa.Table]:
        for group in range(120):
            keys = pa.array([os.urandom(100) for _ in range(1500)])
            yield pa.table({KEY_GROUP: pa.array([group] * 1500, pa.int32()), "k": keys})

    tracemalloc.start()
    try:
        facts = put_tables(storage, "e/s.parquet", some(), StateKey.of(["k"]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert facts.bytes is not None
    assert facts.bytes == storage.size("e/s.parquet")
    assert facts.bytes > 16_000_000
    assert peak < facts.bytes / 2


@pytest.mark.parametrize("whole", [0, 1 << 30])
def test_nothing_is_there_if_the_rows_cannot_all_be_had(
    tmp_path: Path, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WHOLE", whole)

    def broken() -> Iterator[pa.Table]:
        yield from of_groups([(2, tables.SHARED_ROW_GROUP)])
        raise ValueError("no more")

    storage = LocalStorage(tmp_path)
    with pytest.raises(ValueError, match="no more"):
        put_tables(storage, "e/s.parquet", broken(), StateKey.of(["k"]))
    assert storage.inventory() == []


def test_a_disk_that_is_full_in_the_middle_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WHOLE", 0)
    storage = LocalStorage(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(OSError, match=r"File too large.* bytes are free") as caught:
            put_tables(storage, "e/s.parquet", of_groups([(4, 20_000)]), StateKey.of(["k"]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "e" / "s.parquet")
    assert storage.inventory() == []


def test_a_large_file_is_read_row_group_by_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is damaged in it is found in the row group that has it, and nothing of it has been given out."""
    storage = MemoryStorage()
    facts = put_tables(storage, "s.parquet", of_groups([(6, 20_000)]), StateKey.of(["k"]))
    whole = pa.concat_tables(proved_rows(storage, facts))
    asked: list[int] = []
    read = MemoryStorage.read

    def counting(self: MemoryStorage, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = read(self, path, offset, length)
        asked.append(len(data))
        return data

    monkeypatch.setattr(row_groups, "WHOLE", 0)
    monkeypatch.setattr(MemoryStorage, "read", counting)
    parts = list(proved_rows(storage, facts))
    assert pa.concat_tables(parts).equals(whole)
    assert len(parts) == len(facts.row_groups) == len(asked) - 1
    assert facts.bytes is not None
    assert max(asked) < facts.bytes / 3
    third = facts.row_groups[2]
    damaged = bytearray(storage.files["s.parquet"])
    damaged[third.offset + third.bytes // 2] ^= 1
    storage.files["s.parquet"] = bytes(damaged)
    rows = proved_rows(storage, facts)
    assert [next(rows).num_rows for _ in range(2)] == [group.rows for group in facts.row_groups[:2]]
    with pytest.raises(Damaged, match=f"its row group of key groups {third.first} to {third.last} has SHA-256"):
        next(rows)
