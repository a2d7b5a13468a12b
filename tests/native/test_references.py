"""State that tasks share by key group: what they read of a file, what proves it, and references that lead nowhere."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import Damaged, UnsafePath
from formats.native import layout
from formats.native.facts import StateFileFacts, seal
from formats.native.state.live_rows import TaskRows
from formats.native.state.references import reach, referred
from formats.native.state.row_groups import proved_rows, put_state
from formats.native.state.tables import KEY_GROUP, SHARED_ROW_GROUP
from formats.native.store import NativeStore
from formats.storage import MemoryStorage
from tests.support.stores.small import FIRST, make_store

GROUPS = range(12)
SIZE = SHARED_ROW_GROUP // 4


class Watched(MemoryStorage):
    """Notes which bytes are read."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[tuple[int, int]] = []

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.slices.append((offset, len(data)))
        return data


def stored() -> tuple[Watched, StateFileFacts]:
    """A file with as many rows in each of twelve key groups."""
    storage = Watched()
    groups = np.repeat(np.array(GROUPS, np.int32), SIZE)
    table = pa.table({KEY_GROUP: groups, "k": [f"k{i}" for i in range(len(groups))], "n": np.arange(len(groups))})
    return storage, put_state(storage, "s.parquet", table, ["k"])


STORAGE, FILE = stored()


def rows(file: StateFileFacts) -> list[tuple[int, str, int]]:
    tables = pa.concat_tables(proved_rows(STORAGE, file)) if file.row_groups else pa.table({})
    return sorted(zip(*(tables[name].to_pylist() for name in tables.column_names), strict=True))


@settings(max_examples=15)
@given(st.sets(st.integers(1, 11)))
def test_tasks_that_share_a_file_have_all_of_it_together_and_each_its_own_key_groups(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    everything = rows(FILE)
    together = []
    for start, stop in itertools.pairwise(edges):
        own = range(start, stop)
        part = referred(FILE, GROUPS, own)
        assert part is not None
        assert reach(part, own) == own
        mine = rows(part)
        assert {group for group, _, _ in mine} == set(own)
        assert [row for row in everything if row[0] in own] == mine
        read = TaskRows(STORAGE, [part], own).read(own)
        assert sorted(read["k"].to_pylist()) == sorted(key for _, key, _ in mine)
        together += mine
    assert sorted(together) == everything


def test_a_task_reads_the_footer_and_its_own_row_groups_and_no_other_byte() -> None:
    part = referred(FILE, GROUPS, range(4, 8))
    assert part is not None
    assert FILE.footer is not None
    assert len(part.row_groups) < len(FILE.row_groups)
    STORAGE.slices.clear()
    rows(part)
    assert sorted(STORAGE.slices) == sorted(
        [(FILE.footer.offset, (FILE.bytes or 0) - FILE.footer.offset), *((g.offset, g.bytes) for g in part.row_groups)]
    )


def test_what_a_file_holds_of_key_groups_that_another_task_has_by_now_is_not_read() -> None:
    part = referred(FILE, GROUPS, range(6))
    assert part is not None
    narrower = referred(part, range(6), range(3, 12))
    assert narrower is not None
    assert narrower.key_groups == (3, 5)
    assert {group for group, _, _ in rows(narrower)} == {3, 4, 5}
    assert {KEY_GROUP: {3, 4, 5}} == {
        KEY_GROUP: set(TaskRows(STORAGE, [narrower], range(3, 12)).read(range(12))[KEY_GROUP].to_pylist())
    }


@pytest.mark.parametrize("at", ["row group", "footer"])
def test_a_flipped_byte_in_what_is_read_is_damage_and_elsewhere_is_not_seen(at: str) -> None:
    part = referred(FILE, GROUPS, range(4, 8))
    assert part is not None
    assert FILE.footer is not None
    whole = STORAGE.files["s.parquet"]
    wanted = rows(part)
    place = part.row_groups[0].offset + 50 if at == "row group" else FILE.footer.offset + 5
    try:
        STORAGE.files["s.parquet"] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        with pytest.raises(Damaged, match=f"its {at}"):
            rows(part)
        elsewhere = FILE.row_groups[0].offset + 50
        STORAGE.files["s.parquet"] = whole[:elsewhere] + bytes([whole[elsewhere] ^ 1]) + whole[elsewhere + 1 :]
        assert rows(part) == wanted
    finally:
        STORAGE.files["s.parquet"] = whole


def test_a_row_group_that_the_footer_does_not_have_is_damage() -> None:
    (first, *_) = FILE.row_groups
    for change in ({"offset": first.offset + 1, "bytes": first.bytes - 1}, {"bytes": first.bytes - 1}):
        wrong = msgspec.structs.replace(FILE, key_groups=(0, 1), row_groups=(msgspec.structs.replace(first, **change),))
        with pytest.raises(Damaged, match="has no row group from byte"):
            rows(wrong)


def test_a_shorter_file_than_its_facts_say_is_damage() -> None:
    part = referred(FILE, GROUPS, range(6))
    assert part is not None
    short = MemoryStorage()
    short.files["s.parquet"] = STORAGE.files["s.parquet"][:-1]
    with pytest.raises(Damaged, match="its footer"):
        list(proved_rows(short, part))


@pytest.mark.parametrize("change", [
    {"path": "../../etc/passwd"}, {"path": "/etc/passwd"}, {"path": "epochs/../../x"}, {"key_groups": (5, 2)},
    {"sha256": "../x"}, {"bytes": 3},
])  # fmt: skip
def test_references_that_cannot_be_are_refused_with_the_facts(change: dict[str, object]) -> None:
    build = make_store(MemoryStorage())
    assert isinstance(build.storage, MemoryStorage)
    part = NativeStore(build.storage).parts(1)[2]
    (file,) = part.state
    evil = msgspec.structs.replace(file, **{"key_groups": (0, 3), **change})
    path = layout.ack(5, "seen/0", FIRST)
    build.storage.files[path] = seal(msgspec.structs.replace(part, epoch=5, state=(evil,)))
    with pytest.raises((Damaged, UnsafePath)):
        NativeStore(build.storage).part(5, part.task)
