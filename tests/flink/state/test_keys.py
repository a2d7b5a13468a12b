"""One key of Flink's state: only its key group is read, and the answer is that of reading all."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from formats.flink.metadata.handles import StreamHandle
from formats.flink.state.columns import keyed_batches
from formats.flink.state.key_lookup import groups_of
from formats.flink.state.keyed import read_blocks
from formats.flink.store import FlinkStore
from formats.query.predicate import parse_predicate
from formats.select import Selection, rows
from tests.support.flink.truth import DATA

CASES = ["hashmap-checkpoint", "hashmap-savepoint-canonical", "sql", "sql-global", "state/rocksdb", "unaligned"]


def snapshot(case: str) -> FlinkStore:
    return FlinkStore(str(next(path.parent for path in sorted((DATA / case).rglob("_metadata")))))


def _text(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


def keys_of(store: FlinkStore) -> list[tuple[Any, dict[str, str], int, int]]:
    """Every keyed row's codec and key, as a user would write it, its key group and of how many."""
    (epoch,) = store.epoch_numbers()[-1:]
    found = []
    for operator in store.metadata(epoch).operators:
        for subtask in operator.subtasks:
            if subtask.managed_keyed is None:
                continue
            for block in read_blocks(subtask.managed_keyed, store.streams(epoch), operator.max_parallelism):
                if block.hidden is not None:
                    continue
                for batch in keyed_batches([block]):
                    names = [name for name in batch.schema.names if name.split(".")[0] == "key"]
                    for row in batch.select(names).to_pylist():
                        if None not in row.values():
                            text = {name: _text(value) for name, value in row.items()}
                            found.append((block.table.key, text, block.group, operator.max_parallelism))
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_keys_text_leads_to_the_key_group_where_flink_put_it(case: str) -> None:
    if "rocksdb" in case:
        pytest.importorskip("rocksdict")
    found = keys_of(snapshot(case))
    told = [(groups_of([key], codec, most), [group]) for codec, key, group, most in found]
    assert all(groups in (None, due) for groups, due in told)
    assert any(groups == due for groups, due in told)


def test_keys_that_may_equal_others_of_another_hash_are_looked_for_everywhere() -> None:
    from formats.flink.types.values import fixed

    real = fixed("double", "d", "float64")
    assert groups_of([{"key": "0.0"}], real, 128) is None
    assert groups_of([{"key": "1"}], fixed("long", "q", "int64"), 128) is not None
    assert groups_of([{"key": "one"}], fixed("long", "q", "int64"), 128) is None
    assert groups_of([{"other": "1"}], fixed("long", "q", "int64"), 128) is None


def test_types_whose_binary_form_is_not_known_are_looked_for_everywhere() -> None:
    from formats.flink.state.key_lookup import binary_row_of
    from formats.flink.types.logical_types import LogicalType

    assert binary_row_of([LogicalType("DATE")], [date(2024, 1, 1)]) is None
    assert binary_row_of([LogicalType("DECIMAL", True, 4, 2)], [Decimal("1.00")]) is None
    row = binary_row_of([LogicalType("VARCHAR"), LogicalType("INTEGER")], ["ä longer text", 7])
    assert row is not None
    assert len(row) == 8 + 16 + 16


class Counting:
    """Streams that count what is read of them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.bytes = 0

    def read(self, handle: StreamHandle, offset: int = 0, length: int | None = None) -> bytes:
        data: bytes = self.inner.read(handle, offset, length)
        self.bytes += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("case", ["hashmap-checkpoint", "hashmap-savepoint-canonical"])
def test_one_key_reads_one_key_group_and_finds_what_reading_all_finds(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = snapshot(case)
    (epoch,) = store.epoch_numbers()[-1:]
    state = max(
        (s for s in store.counted_states(epoch) if s.key == ("key",) and s.rows and not s.opaque),
        key=lambda s: s.bytes or 0,
    )
    everything = [row for batch in store.state(epoch, state.operator, state.name) for row in batch.to_pylist()]
    key = everything[len(everything) // 2]["key"]
    counting = Counting(store.streams(epoch))
    monkeypatch.setattr(store, "streams", lambda _: counting)
    list(rows(store, epoch, state, Selection(where=None)))
    whole, counting.bytes = counting.bytes, 0
    asked = Selection(where=parse_predicate(f"key = '{key}'"))
    found = [row for batch in rows(store, epoch, state, asked) for row in batch.to_pylist()]
    assert found == [row for row in everything if row["key"] == key]
    assert counting.bytes < whole
