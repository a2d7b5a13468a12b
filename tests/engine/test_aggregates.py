"""What a reduce puts out, against the same in plain Python: every aggregate, every way to emit, through restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.operators.last_out import alike
from abscli.engine.operators.making import make_operator
from abscli.engine.operators.runnable import Runnable
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.list_column import ListColumn
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.model import Aggregate, Aggregation, Emit, Kind, Operator
from formats.native.state.tables import StateKey
from tests.tiers import examples

AGGREGATES = (
    Aggregate("n", Aggregation.COUNT, "*"),
    Aggregate("total", Aggregation.SUM, "v"),
    Aggregate("least", Aggregation.MIN, "v"),
    Aggregate("most", Aggregation.MAX, "s"),
    Aggregate("middle", Aggregation.MEAN, "v"),
    Aggregate("oldest", Aggregation.FIRST, "s"),
    Aggregate("newest", Aggregation.LAST, "v"),
    Aggregate("best", Aggregation.TOP_N, "s", "v", 2),
    Aggregate("largest", Aggregation.TOP_N, "v", None, 3),
    Aggregate("some", Aggregation.COLLECT, "s", None, 4),
)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32()), ("s", pa.string())])
ROW = st.tuples(
    st.sampled_from(["a", "b", "c", None]),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.sampled_from(["x", "y", "z"])),
)
Values = list[Any]
Row = tuple[Any, ...]


def least_first(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if None not in row[1:]), key=lambda row: (-row[1], row[2]))


EXPECTED: dict[str, Callable[[list[Row]], Any]] = {
    "n": len,
    "total": lambda rows: sum(v) if (v := present(rows, 1)) else None,
    "least": lambda rows: min(present(rows, 1), default=None),
    "most": lambda rows: max(present(rows, 2), default=None),
    "middle": lambda rows: sum(v) / len(v) if (v := present(rows, 1)) else None,
    "oldest": lambda rows: next(iter(present(rows, 2)), None),
    "newest": lambda rows: next(reversed(present(rows, 1)), None),
    "best": lambda rows: [{"s": s, "v": v} for _, v, s in least_first(rows)[:2]] or None,
    "largest": lambda rows: sorted(present(rows, 1), reverse=True)[:3] or None,
    "some": lambda rows: present(rows, 2)[:4] or None,
}


def present(rows: list[Row], column: int) -> Values:
    return [row[column] for row in rows if row[column] is not None]


def batch(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def reduce(emit: Emit, aggregates: tuple[Aggregate, ...] = AGGREGATES, memory: StateMemory | None = None) -> Runnable:
    operator = Operator("op", Kind.REDUCE, 1, 16, key=("k",), aggregates=aggregates, emit=emit)
    if memory is None:
        return make_operator(operator, TaskId("op", 0), "")
    return make_operator(
        operator, TaskId("op", 0), "",
        lambda op: BoundedState(StateKey.of(op.key), op.max_parallelism, memory, groups=2),
    )  # fmt: skip


def restarted(operator: Runnable, emit: Emit, memory: StateMemory | None, epoch: int) -> Runnable:
    """Another one with what a copy of the state holds."""
    assert operator.state is not None
    copy = operator.state.copy(epoch, None)
    tables = [] if copy is None else list(copy.tables())
    operator.close()
    again = reduce(emit, memory=memory)
    assert again.state is not None
    for table in tables:
        again.state.load(table)
    return again


@settings(max_examples=examples(80))
@given(
    st.lists(st.one_of(st.lists(ROW, min_size=1, max_size=12), st.sampled_from(["epoch", "restart"])), max_size=10),
    st.sampled_from(list(Emit)),
    st.sampled_from([None, 1, 3_000]),
)
def test_what_is_put_out_is_that_of_all_rows_so_far(steps: list[Any], emit: Emit, limit: int | None) -> None:
    memory = None if limit is None else StateMemory(limit)
    operator, epoch = reduce(emit, memory=memory), 0
    rows: dict[Any, list[Row]] = {}
    shown: dict[Any, dict[str, Any]] = {}
    touched: set[Any] = set()

    def values(key: Any) -> dict[str, Any]:
        return {"k": key, **{name: of(rows[key]) for name, of in EXPECTED.items()}}

    for step in [*steps, "epoch"]:
        if isinstance(step, list):
            expected = []
            for row in step:
                rows.setdefault(row[0], []).append(row)
                expected.append(values(row[0]))
            keys = dict.fromkeys(row[0] for row in step)
            touched |= set(keys)
            out = operator.process(batch(step), 1)
            if emit is Emit.RECORD:
                assert out.to_pylist() == expected
            elif emit is Emit.BATCH:
                assert out.to_pylist() == [values(key) for key in keys]
            else:
                assert out is None
            continue
        epoch += 1
        flushed = [row for piece in operator.flush(None) for row in piece.to_pylist()]
        if emit in (Emit.EPOCH, Emit.CHANGE):
            owed = [key for key in touched if emit is Emit.EPOCH or values(key) != shown.get(key)]
            assert sorted(map(repr, flushed)) == sorted(repr(values(key)) for key in owed)
        shown = {key: values(key) for key in rows}
        touched = set()
        if step == "restart":
            operator = restarted(operator, emit, memory, epoch)
        else:
            assert operator.state is not None
            operator.state.copy(epoch, epoch - 1)
    operator.close()
    assert memory is None or memory.states == 0


def test_of_several_rows_of_equal_rank_the_same_are_listed_whatever_the_order() -> None:
    rows = [("a", 1, name) for name in "zyx"]
    lists = set()
    for order in (rows, rows[::-1]):
        operator = reduce(Emit.EPOCH, (AGGREGATES[7],))
        operator.process(batch(order), 1)
        lists |= {repr(piece.to_pylist()) for piece in operator.flush(None)}
    assert lists == {"[{'k': 'a', 'best': [{'s': 'x', 'v': 1}, {'s': 'y', 'v': 1}]}]"}


def test_floats_that_are_no_numbers_are_least_and_zero_has_one_sign() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.float64())])
    operator = reduce(Emit.CHANGE, (Aggregate("top", Aggregation.TOP_N, "v", None, 3),))
    operator.process(batch([("a", math.nan), ("a", -0.0), ("a", 2.0)], schema), 1)
    (out,) = operator.flush(None)
    assert repr(out.to_pylist()) == "[{'k': 'a', 'top': [2.0, 0.0, nan]}]"
    assert operator.state is not None
    operator.state.copy(1, 0)
    operator.process(batch([("a", math.nan)], schema), 4)
    assert not [piece for piece in operator.flush(None) if piece.num_rows]


def test_a_mean_is_exact_beyond_the_numbers_that_a_float_has() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    operator = reduce(Emit.EPOCH, (Aggregate("m", Aggregation.MEAN, "v"),))
    for value in (2**60 + 1, -(2**60), 2):
        operator.process(batch([("a", value)], schema), 1)
    (out,) = operator.flush(None)
    assert out.to_pylist() == [{"k": "a", "m": 1.0}]
    operator.process(batch([("a", 2**62)], schema), 4)
    operator.process(batch([("a", 2**62 - 4)], schema), 5)
    with pytest.raises(JobFailed, match=r"record 6 .*: the sum overflows 64-bit integers"):
        operator.process(batch([("a", 1)], schema), 6)


@pytest.mark.parametrize("function", [Aggregation.MEAN, Aggregation.TOP_N])
def test_what_cannot_be_added_or_put_in_order_is_refused(function: Aggregation) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.list_(pa.int64()))])
    limit = 3 if function is Aggregation.TOP_N else None
    operator = reduce(Emit.EPOCH, (Aggregate("o", function, "v", None, limit),))
    with pytest.raises(JobFailed, match=r"operator op, output o: cannot .* a column of type list<item: int64>"):
        operator.process(batch([("a", [1])], schema), 1)


@settings(max_examples=examples(60))
@given(st.lists(st.dictionaries(st.integers(0, 40), st.one_of(st.none(), st.lists(st.text(max_size=2), max_size=5)),
                                min_size=1, max_size=30), max_size=20))  # fmt: skip
def test_a_column_of_lists_gives_back_what_was_put_last(puts: list[dict[int, list[str] | None]]) -> None:
    column = ListColumn(pa.list_(pa.string()), room=2)
    expected: dict[int, list[str] | None] = {}
    for put in puts:
        expected |= put
        column.put(np.array(list(put)), pa.array(list(put.values()), column.type))
        slots = np.arange(41)
        assert column.take(slots).to_pylist() == [expected.get(slot) for slot in slots.tolist()]


def test_lists_that_were_put_again_and_again_take_no_more_room() -> None:
    column = ListColumn(pa.list_(pa.int64()), room=16)
    slots = np.arange(10)
    for round in range(500):
        column.put(slots, pa.array([list(range(round % 7, 100))] * 10, column.type))
    assert column.nbytes < 5 * 10 * 100 * 8


NESTED = pa.list_(pa.struct([("name", pa.string()), ("size", pa.float64())]))


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ([1, None, 3, None], [1, None, 4, 0], pa.int64()),
        ([math.nan, 0.0, None, math.nan], [math.nan, -0.0, 1.0, None], pa.float64()),
        ([[1], [], None, [1, 2]], [[1], [], None, [2, 1]], pa.list_(pa.int64())),
        ([[None], None], [[None], []], pa.list_(pa.int64())),
        ([[{"name": "a", "size": math.nan}], [{"name": "a", "size": None}]],
         [[{"name": "a", "size": math.nan}], [{"name": "b", "size": None}]], NESTED),
        ([{"a": 1}, None], [{"a": None}, None], pa.struct([("a", pa.int64())])),
        ([[("a", 1)], [("a", 1)]], [[("a", 1)], [("a", 2)]], pa.map_(pa.string(), pa.int64())),
        ([None, None], [None, None], pa.null()),
    ],
)  # fmt: skip
def test_values_are_alike_as_people_see_them(left: Values, right: Values, kind: pa.DataType) -> None:
    same = alike(pa.array(left, kind), pa.array(right, kind)).tolist()
    zeros = [repr(a).replace("-0.0", "0.0") == repr(b).replace("-0.0", "0.0") for a, b in zip(left, right, strict=True)]
    assert same == zeros
