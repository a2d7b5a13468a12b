"""Hashes, key tables, accumulators and copies: against plain Python, with collisions forced."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.state import key_table as keyed
from abscli.engine.state.aggregates import Overflow, ValueColumn, merged, result_type, running
from abscli.engine.state.key_table import KeyIndex
from abscli.engine.state.keyed_state import KeyedState
from formats.native.hashing import hash_rows, key_groups
from formats.native.state.live_rows import latest
from formats.native.state.tables import KEY_GROUP, StateKey, decode_state, encode_tables

TEXT = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(["a", "b", "a" * 8, "a" * 9, "\0", ""]))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]), st.floats())
INTS = st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


# -- hashes -----------------------------------------------------------------------------------------------


def test_the_hash_is_part_of_the_format() -> None:
    """These values must never change within a major version: keys would move to other tasks."""
    found = {
        "strings": hash_rows([pa.array(["", "a", "barrier", "snapshot", "snapshots!", None, "日本"])]),
        "integers": hash_rows([pa.array([0, 1, -1, 2**62, None])]),
        "floats": hash_rows([pa.array([0.0, 1.0, -1.5, None])]),
        "pair": hash_rows([pa.array(["a"]), pa.array([1])]),
    }
    assert {name: [f"{h:016x}" for h in hashes.tolist()] for name, hashes in found.items()} == GOLDEN


GOLDEN: dict[str, list[str]] = {
    "strings": [
        "cdb83e89e3006109",
        "10e4913b96e4b837",
        "31401a786ae7a98b",
        "70d80386b783f490",
        "fd19b21fbfb14aca",
        "83f33b7c4a625887",
        "129e5b8feeb12164",
    ],
    "integers": [
        "cdb83e89e3006109",
        "1299faef5464141d",
        "84d8eb146b56e114",
        "677f968974f46b08",
        "83f33b7c4a625887",
    ],
    "floats": [
        "cdb83e89e3006109",
        "17ce6c10139d8de7",
        "a13816f4b78dec6f",
        "83f33b7c4a625887",
    ],
    "pair": [
        "dbb3a7498b15b080",
    ],
}


@given(st.lists(TEXT, min_size=1, max_size=40), st.integers(0, 5), st.integers(1, 9))
def test_a_hash_depends_on_the_value_alone(values: list[str | None], cut: int, repeat: int) -> None:
    whole = pa.array(values * repeat, pa.string())
    hashes = hash_rows([whole]).tolist()
    assert hash_rows([whole.slice(cut)]).tolist() == hashes[cut:]
    assert hash_rows([whole.cast(pa.large_string())]).tolist() == hashes
    assert hash_rows([whole.dictionary_encode()]).tolist() == hashes
    assert hash_rows([pa.concat_arrays([whole] * 400)]).tolist() == hashes * 400


def test_equal_numbers_hash_alike_whatever_their_width() -> None:
    kinds = (pa.int8(), pa.int32(), pa.int64(), pa.uint64())
    by_type = [hash_rows([pa.array([1, 2, None], kind)]).tolist() for kind in kinds]
    assert all(hashes == by_type[0] for hashes in by_type)
    zero = hash_rows([pa.array([0.0, -0.0])])
    assert zero[0] == zero[1]
    nan = hash_rows([pa.array([math.nan, float("-nan")])])
    assert nan[0] == nan[1]


def test_other_types_hash_by_value() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    for array in (
        pa.array([date(2026, 1, 1), None]),
        pa.array([when, None]),
        pa.array([True, None]),
        pa.array([b"x", None]),
        pa.array([None, None]),
        pa.array([1, None], pa.decimal128(9, 2)),
    ):
        assert hash_rows([array]).tolist() == hash_rows([pa.concat_arrays([array, array])]).tolist()[:2]


def test_keys_spread_over_key_groups() -> None:
    groups = key_groups([pa.array([f"key{i}" for i in range(20_000)])], 128)
    counts = np.bincount(groups, minlength=128)
    assert counts.min() > 80
    assert counts.max() < 240


# -- the key table ----------------------------------------------------------------------------------------


def weak(buckets: int) -> Callable[[Any], Any]:
    return lambda columns: hash_rows(columns) % np.uint64(buckets)


@given(
    st.lists(st.lists(st.tuples(TEXT, FLOATS), min_size=1, max_size=30), max_size=6),
    st.sampled_from([1, 2, 5, 2**40]),
)
def test_every_key_has_one_slot_for_good_however_hashes_collide(
    batches: list[list[tuple[str | None, float | None]]], buckets: int
) -> None:
    known: dict[Any, int] = {}
    index = KeyIndex()
    original = keyed.hash_rows
    keyed.hash_rows = weak(buckets)
    try:
        for batch in batches:
            columns = [pa.array([t for t, _ in batch], pa.string()), pa.array([f for _, f in batch], pa.float64())]
            found = index.locate(columns)
            seen_before = set(known)
            first_rows: dict[Any, int] = {}
            for row, (text, number) in enumerate(batch):
                key = (text, "nan" if number is not None and math.isnan(number) else number)
                slot = int(found.slots[found.groups[row]])
                assert known.setdefault(key, slot) == slot
                first_rows.setdefault(key, row)
            for place, row in enumerate(found.first.tolist()):
                text, number = batch[row]
                key = (text, "nan" if number is not None and math.isnan(number) else number)
                assert first_rows[key] == row
                assert bool(found.new[place]) == (key not in seen_before)
    finally:
        keyed.hash_rows = original
    assert sorted(known.values()) == list(range(index.count))
    if known:
        slots = np.arange(index.count)
        texts, numbers = index.keys(slots)
        pairs = zip(texts.to_pylist(), numbers.to_pylist(), strict=True)
        again = [(t, "nan" if f is not None and math.isnan(f) else f) for t, f in pairs]
        assert {key: i for i, key in enumerate(again)} == known


# -- accumulators -----------------------------------------------------------------------------------------


def python_aggregate(function: str, values: list[Any]) -> Any:
    real = [v for v in values if v is not None]
    if function == "count":
        return len(real)
    if not real:
        return None
    return {"sum": sum, "min": min, "max": max}[function](real)


@pytest.mark.parametrize("slot", [1023, 1024, 1025, 5000])
def test_a_column_of_values_has_room_for_any_slot(slot: int) -> None:
    column = ValueColumn(pa.int64())
    column.put(np.array([slot]), pa.array([7]))
    assert column.take(np.array([0, slot, slot + 1])).to_pylist() == [None, 7, None]


@given(
    st.sampled_from(["count", "sum", "min", "max"]),
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-9, 9))), max_size=20), max_size=4),
)
def test_aggregates_agree_with_python_after_every_row(
    function: str, batches: list[list[tuple[int, int | None]]]
) -> None:
    kind = result_type(function, pa.int64())
    column, by_row = ValueColumn(kind), ValueColumn(kind)
    history: dict[int, list[int | None]] = {}
    for batch in batches:
        if not batch:
            continue
        encoded = pa.array([k for k, _ in batch]).dictionary_encode()
        slots = encoded.dictionary.to_numpy().astype(np.int64)
        groups = encoded.indices.to_numpy().astype(np.int64)
        values = pa.array([v for _, v in batch], pa.int64())

        def before(c: ValueColumn, slots: Any = slots) -> pa.Array:
            taken = c.take(slots)
            return taken.fill_null(0) if function == "count" else taken

        rows = running(function, values, groups, before(by_row)).to_pylist()
        for (key, value), now in zip(batch, rows, strict=True):
            history.setdefault(key, []).append(value)
            assert now == python_aggregate(function, history[key])
        last = np.zeros(len(slots), dtype=np.int64)
        last[groups] = np.arange(len(groups))
        by_row.put(slots, pa.array(rows, kind).take(pa.array(last)))
        column.put(slots, merged(function, values, groups, before(column)))
        assert column.take(slots).to_pylist() == [python_aggregate(function, history[int(s)]) for s in slots]


@pytest.mark.parametrize("function", ["min", "max"])
def test_minima_and_maxima_of_strings(function: str) -> None:
    column = ValueColumn(result_type(function, pa.string()))
    values = pa.array(["b", None, "a", "c"])
    column.put(np.array([0]), merged(function, values, np.zeros(4, dtype=np.int64), column.take(np.array([0]))))
    assert column.take(np.array([0])).to_pylist() == [{"min": "a", "max": "c"}[function]]


@given(st.lists(st.sampled_from([2**62, -(2**62), 1, -1, 2**63 - 1]), min_size=1, max_size=8))
def test_a_sum_overflows_at_the_first_row_at_which_python_leaves_64_bits(values: list[int]) -> None:
    total, expected = 0, None
    for row, value in enumerate(values):
        total += value
        if not -(2**63) <= total < 2**63:
            expected = row
            break
    array, groups = pa.array(values), np.zeros(len(values), dtype=np.int64)
    if expected is None:
        assert merged("sum", array, groups, pa.nulls(1, pa.int64())).to_pylist() == [total]
    else:
        with pytest.raises(Overflow) as caught:
            merged("sum", array, groups, pa.nulls(1, pa.int64()))
        assert caught.value.row == expected


# -- copies -----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99)), max_size=8), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_the_files_of_complete_epochs_hold_the_state_also_when_epochs_between_are_aborted(
    steps: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    state = KeyedState(StateKey.of(("k",)), 16)
    state.values["v"] = ValueColumn(pa.int64())
    truth: dict[int, int] = {}
    complete, files = 0, []
    for epoch, (updates, completes) in enumerate(steps, start=1):
        for key, value in updates:
            found = state.locate([pa.array([key])])
            state.touch(found.slots)
            state.values["v"].put(found.slots, pa.array([value]))
            truth[key] = value
        copy = state.copy(epoch, complete)
        for key, value in updates[:1]:  # the job goes on before the copy is written
            found = state.locate([pa.array([key])])
            state.touch(found.slots)
            state.values["v"].put(found.slots, pa.array([value]))
        if completes:
            if copy is not None:
                files.append(decode_state(encode_tables(copy.tables(), StateKey.of(["k"])), "f"))
            complete = epoch
            state.forget(epoch)
            if files:
                rows = latest(files, ("k",))
                assert dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)) | truth == truth
                assert sorted(rows["k"].to_pylist()) == sorted(truth)
                again = KeyedState(StateKey.of(("k",)), 16)
                for file in files:
                    again.load(file)
                assert again.rows == len(truth)
                restored = again.table(np.arange(again.rows))
                assert sorted(restored.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)


def test_a_copy_is_not_touched_by_what_comes_after() -> None:
    state = KeyedState(StateKey.of(("k",)), 16)
    state.values["v"] = ValueColumn(pa.int64())
    found = state.locate([pa.array([1, 2])])
    state.values["v"].put(found.slots, pa.array([10, 20]))
    copy = state.copy(1, 0)
    state.values["v"].put(found.slots, pa.array([11, 21]))
    assert copy is not None
    (table,) = copy.tables()
    assert table["v"].to_pylist() == [10, 20]


def test_state_files_are_sorted_and_read_by_key_group() -> None:
    state = KeyedState(StateKey.of(("k",)), 8)
    state.locate([pa.array([f"k{i}" for i in range(500)])])
    copy = state.copy(1, None)
    assert copy is not None
    data = encode_tables(copy.tables(), StateKey.of(["k"]))
    groups = decode_state(data, "f")[KEY_GROUP].to_pylist()
    assert groups == sorted(groups)
    some = decode_state(data, "f", range(2, 5))
    assert set(some[KEY_GROUP].to_pylist()) == {2, 3, 4}
    assert some.num_rows == sum(2 <= g < 5 for g in groups)


def seconds_to_insert(keys: pa.Array) -> float:
    """CPU time of the best of three."""
    times = []
    for _ in range(3):
        index, begun = KeyIndex(), time.process_time()
        for start in range(0, len(keys), 10_000):
            index.locate([keys.slice(start, 10_000)])
        times.append(time.process_time() - begun)
    return min(times)


def test_the_keys_of_one_key_group_are_found_as_fast_as_any() -> None:
    numbers = pa.array(np.arange(8_000_000))
    alike = numbers.filter(pa.array(key_groups([numbers], 256) == 7)).slice(0, 30_000)
    assert seconds_to_insert(alike) < 3 * seconds_to_insert(numbers.slice(0, len(alike)))
