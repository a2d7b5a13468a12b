"""Row groups of state files: cut at key groups, named with a digest of their own, and found when they are damaged."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.report.findings import Code
from abscli.stores.native.check import check
from formats.errors import Damaged, UnsafePath
from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import FooterFacts, RowGroupFacts, StateFileFacts, TasksFacts, digest, header, seal
from formats.native.state.row_groups import put_state, spans
from formats.native.state.tables import KEY_GROUP, ROW_GROUP, SHARED_ROW_GROUP, row_group_slices
from formats.native.store import NativeStore
from formats.storage import MemoryStorage
from formats.view import FileFacts
from tests.support.stores.small import FIRST, make_store

STATE = layout.state(1, "seen/0", FIRST)


def file_of(sizes: list[int]) -> tuple[MemoryStorage, StateFileFacts]:
    """A state file with so many keys in each key group."""
    groups = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    storage = MemoryStorage()
    table = pa.table({KEY_GROUP: groups, "k": np.arange(len(groups)), "v": [f"v{i % 7}" for i in range(len(groups))]})
    return storage, put_state(storage, "s.parquet", table, ["k"])


@given(st.lists(st.integers(0, 3) | st.integers(0, 3 * ROW_GROUP), max_size=12))
def test_a_row_group_has_whole_key_groups_or_is_of_one_alone(sizes: list[int]) -> None:
    groups = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    slices = list(row_group_slices(groups))
    assert [row for rows in slices for row in (rows.start, rows.stop)] == sorted(
        row for rows in slices for row in (rows.start, rows.stop)
    )
    assert sum(map(len, slices)) == len(groups)
    for rows in slices:
        inside = np.unique(groups[rows.start : rows.stop])
        assert 0 < len(rows) <= ROW_GROUP
        if len(inside) > 1:
            assert len(rows) <= SHARED_ROW_GROUP
            assert len(rows) == sum(sizes[group] for group in inside.tolist())


def test_small_key_groups_share_row_groups_and_large_ones_are_cut() -> None:
    _, file = file_of([10, 20, 0, 30, SHARED_ROW_GROUP, ROW_GROUP + 1, 5])
    assert [(g.first, g.last, g.rows) for g in file.row_groups] == [
        (0, 3, 60), (4, 4, SHARED_ROW_GROUP), (5, 5, ROW_GROUP), (5, 5, 1), (6, 6, 5),
    ]


def test_row_groups_and_footer_are_the_whole_file_and_each_has_its_digest() -> None:
    storage, file = file_of([SHARED_ROW_GROUP, SHARED_ROW_GROUP, 7])
    data = storage.files["s.parquet"]
    assert file.footer is not None
    ends = [4, *(group.offset + group.bytes for group in file.row_groups)]
    assert [group.offset for group in file.row_groups] + [file.footer.offset] == ends
    assert [digest(data[g.offset : g.offset + g.bytes]) for g in file.row_groups] == [
        group.sha256 for group in file.row_groups
    ]
    assert digest(data[file.footer.offset :]) == file.footer.sha256
    assert [(place.start, len(place)) for place in spans(pq.read_metadata(pa.BufferReader(data)))] == [
        (group.offset, group.bytes) for group in file.row_groups
    ]


def test_a_file_without_rows_has_a_footer_and_no_row_group() -> None:
    _, file = file_of([])
    assert (file.row_groups, file.rows) == ((), 0)
    assert file.footer is not None


def test_a_flipped_byte_in_a_row_group_or_in_the_footer_is_said_to_be_there() -> None:
    build = make_store(MemoryStorage())
    storage = build.storage
    assert isinstance(storage, MemoryStorage)
    whole = storage.files[STATE]
    (file,) = NativeStore(storage).parts(1)[2].state
    assert file.footer is not None
    for at, where in ((file.row_groups[0].offset, "the row group of key groups"), (file.footer.offset, "the footer")):
        storage.files[STATE] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        report = check(storage, 1, quick=False, progress=lambda done, total: None).report
        (message,) = (f.message for f in report.all_findings if f.path == STATE)
        assert f"; {where}" in message


@pytest.mark.parametrize(("change", "code"), [
    ({"sha256": "0" * 64}, Code.DIGEST_MISMATCH), ({"rows": 1}, Code.ROW_MISMATCH), ({"last": 7}, Code.MISPLACED_KEY),
    ({"offset": 5, "bytes": 3}, Code.DIGEST_MISMATCH),
])  # fmt: skip
def test_a_row_group_that_is_not_as_its_facts_say_is_a_finding(change: dict[str, object], code: Code) -> None:
    build = make_store(MemoryStorage())
    damaged(build.storage, lambda group: msgspec.structs.replace(group, **change))
    report = check(build.storage, 1, quick=False, progress=lambda done, total: None).report
    assert code in {f.code for f in report.all_findings if f.path == STATE}


def damaged(storage: object, change: object) -> None:
    """Epoch 1, in which the first row group of `seen/0` is another one by the facts, all of which are sealed again."""
    assert isinstance(storage, MemoryStorage)
    assert callable(change)
    store = NativeStore(storage)
    parts = list(store.parts(1))
    (file,) = parts[2].state
    changed = msgspec.structs.replace(file, row_groups=tuple(map(change, file.row_groups)))
    parts[2] = msgspec.structs.replace(parts[2], state=(changed,))
    data = seal(TasksFacts(epoch=1, parts=tuple(parts), **header(TasksFacts)))
    path = layout.tasks_file(1, FIRST)
    storage.files[path] = data
    named = FileFacts(path, len(data), len(parts), digest(data))
    storage.files[layout.outcome(1)] = seal(msgspec.structs.replace(store.manifest(1), tasks_file=named))


@pytest.mark.parametrize("change", [{"offset": 10**6}, {"bytes": 10**6}, {"first": 9}, {"sha256": "x" * 64}])
def test_row_groups_that_cannot_be_are_refused_with_the_facts(change: dict[str, object]) -> None:
    build = make_store(MemoryStorage())
    damaged(build.storage, lambda group: msgspec.structs.replace(group, **change))
    with pytest.raises((Damaged, UnsafePath), match="row group"):
        NativeStore(build.storage).parts(1)


def test_row_groups_that_overlap_the_footer_or_are_in_another_order_are_refused() -> None:
    _, file = file_of([SHARED_ROW_GROUP, 3])
    part = NativeStore(make_store(MemoryStorage()).storage).parts(1)[2]
    backwards = msgspec.structs.replace(file, row_groups=file.row_groups[::-1])
    for wrong in (backwards, msgspec.structs.replace(file, footer=FooterFacts(file.bytes or 0, "0" * 64))):
        build = make_store(MemoryStorage())
        assert isinstance(build.storage, MemoryStorage)
        build.storage.files[layout.ack(5, "seen/0", FIRST)] = seal(
            msgspec.structs.replace(part, epoch=5, state=(wrong,))
        )
        with pytest.raises(Damaged, match="row group"):
            NativeStore(build.storage).part(5, TaskId("seen", 0))


def test_row_groups_of_facts_are_short() -> None:
    group = RowGroupFacts(0, 1, 2, 3, 4, "0" * 64)
    assert msgspec.json.decode(msgspec.json.encode(group)) == [0, 1, 2, 3, 4, "0" * 64]
