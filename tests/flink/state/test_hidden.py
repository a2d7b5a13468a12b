"""What a serializer that nobody knows hides, and what is found behind it all the same."""

from __future__ import annotations

import pytest

from formats.flink.bytes import Reader
from formats.flink.metadata.handles import (
    InlineHandle,
    KeyGroupsHandle,
    OperatorState,
    Subtask,
)
from formats.flink.state.keyed import read_blocks
from formats.flink.state.meta import read_keyed_meta
from formats.flink.state.rows import summaries
from tests.support.flink.streams import Inline, held_keyed, plain_heap
from tests.support.flink.truth import folder, opened


def test_states_behind_a_value_of_unknown_length_are_found_again_and_say_so() -> None:
    found, handle = plain_heap("hashmap-inline.chk-2", "totals")
    blocks = list(read_blocks(handle, Inline(), found.max_parallelism))
    hidden = [block for block in blocks if block.hidden is not None]
    assert {block.table.name for block in hidden} == {"opaque"}
    assert all(block.hidden is not None and block.hidden.resumed for block in hidden)
    behind = {block.table.name for block in blocks if block.keys}
    assert {"count", "last-order", "sum", "note-ttl", "per-item"} <= behind


def test_states_are_not_found_again_where_their_keys_would_lie_elsewhere() -> None:
    """The proof is the hash of the keys: for another number of key groups it fails, and all stays hidden."""
    found, handle = plain_heap("hashmap-inline.chk-2", "totals")
    blocks = list(read_blocks(handle, Inline(), found.max_parallelism * 8))
    hidden = [block.hidden for block in blocks if block.hidden is not None]
    assert any(part.states for part in hidden)
    assert not any(part.resumed for part in hidden if part.states)


def test_the_search_behind_hidden_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found, handle = plain_heap("hashmap-inline.chk-2", "totals")
    monkeypatch.setattr("formats.flink.state.keyed_heap._PATIENCE", -(1 << 40))
    blocks = list(read_blocks(handle, Inline(), found.max_parallelism))
    assert not any(block.hidden.resumed for block in blocks if block.hidden is not None)


def test_a_savepoint_hides_nothing_but_the_value_itself() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    batch = next(store.state(epoch, "totals", "opaque"))
    row = batch.to_pylist()[0]
    assert row["key"].startswith("user-")
    assert row["value"]["class"] == "Orders$Opaque (KryoSerializer)"
    assert row["value"]["length"] == len(row["value"]["bytes"]) > 0


def with_unknown(handle: KeyGroupsHandle, old: str, new: str) -> KeyGroupsHandle:
    """The handle with one serializer's class under another name of the same length."""
    assert isinstance(handle.stream, InlineHandle)
    assert len(old) == len(new)
    data = handle.stream.data
    assert old.encode() in data
    return KeyGroupsHandle(
        handle.tag, handle.first, handle.offsets, InlineHandle("s", data.replace(old.encode(), new.encode()))
    )


def test_names_of_states_behind_an_unknown_serializer_are_found() -> None:
    store, epoch = opened(folder("hashmap-savepoint-canonical"))
    totals = store.find_operator(epoch, "totals")
    handle = totals.subtasks[0].managed_keyed
    assert isinstance(handle, KeyGroupsHandle)
    held = held_keyed(handle, store.streams(epoch))
    lost = with_unknown(held, "kryo.KryoSerializerSnapshot", "kryo.MineSerializerSnapshot")
    known = {row.name: row.kind for row in summaries(totals, store.streams(epoch))}
    mine = OperatorState(
        totals.id, "totals", "totals", 1, totals.max_parallelism, None, (Subtask(0, managed_keyed=lost),)
    )
    rows = {row.name: row for row in summaries(mine, Inline(), count=True)}
    assert {name: row.kind for name, row in rows.items()} == known
    assert rows["opaque"].opaque is not None
    assert "MineSerializer" in rows["opaque"].opaque
    assert rows["count"].rows is not None
    assert rows["count"].rows > 0


def test_an_unknown_key_serializer_hides_the_rows_and_not_the_names() -> None:
    found, handle = plain_heap("hashmap-inline.chk-2", "totals")
    lost = with_unknown(handle, "base.StringSerializer$String", "base.MyOwnsSerializer$MyOwns")
    assert isinstance(lost.stream, InlineHandle)
    meta = read_keyed_meta(Reader(lost.stream.data, "s", 0, min(lost.offsets)))
    assert meta.unknown_key is not None
    assert {"count", "opaque", "per-item"} <= {info.name for info in meta.states}
    blocks = list(read_blocks(lost, Inline(), found.max_parallelism))
    assert blocks
    assert not any(block.keys for block in blocks)
