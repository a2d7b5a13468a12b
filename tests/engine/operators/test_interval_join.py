"""A join by key and event time against every pair tried: random rows, batches, barriers, restarts, limits."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.operators.interval_join import IntervalJoin
from abscli.engine.operators.making import in_memory, keyed_by, make_operator
from abscli.engine.operators.runnable import WithLate
from abscli.engine.operators.sorted_runs import SortedRuns
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.model import How, Join, Kind, Operator, Side
from formats.native.state.tables import DUE, decode_state, encode_tables, without_removed
from formats.watermark import END
from tests.tiers import examples

LEFT = pa.schema(
    [("k", pa.string()), ("f", pa.float64()), ("at", pa.timestamp("us")), ("text", pa.string()), ("n", pa.int32())]
)
RIGHT = pa.schema([("k", pa.string()), ("f", pa.float64()), ("paid", pa.timestamp("ns")), ("text", pa.string())])
INPUTS = {Side.LEFT: LEFT, Side.RIGHT: RIGHT}
OUT = ("k", "f", "at", "text", "n", "paid", "text_right")


class Row(NamedTuple):
    """Of either side; number: what tells it from others."""

    side: Side
    key: str | None
    f: float | None
    time: int
    number: int

    @property
    def values(self) -> dict[str, Any]:
        text = None if self.number % 5 == 0 else f"t{self.number}"
        if self.side is Side.LEFT:
            return {"k": self.key, "f": self.f, "at": self.time, "text": text, "n": self.number}
        return {"k": self.key, "f": self.f, "paid": 1000 * self.time, "text": text}

    @property
    def comparable(self) -> tuple[Any, ...] | None:
        """Its key; None where it is equal to nothing."""
        if self.key is None or self.f is None:
            return None
        return self.key, "nan" if math.isnan(self.f) else self.f + 0.0


def batch_of(rows: Iterable[Row], side: Side) -> pa.RecordBatch:
    values = [row.values for row in rows]
    return pa.record_batch(
        [pa.array([row[f.name] for row in values], f.type) for f in INPUTS[side]], schema=INPUTS[side]
    )


def operator_of(how: How, before: int, after: int, lateness: int = 0) -> Operator:
    join = Join("orders", ("at", "paid"), before, after, how, lateness)
    return Operator("j", Kind.JOIN, 1, 16, key=("k", "f"), join=join)


class Run:
    """An operator under a limit of memory (None: none), and all that comes out of it."""

    def __init__(self, operator: Operator, limit: int | None) -> None:
        self.operator = operator
        self.memory = None if limit is None else StateMemory(limit)
        self.epoch = self.complete = 0
        self.out: list[dict[str, Any]] = []
        self.late: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[int, list[bytes]] = {0: []}
        self.cut: dict[int, tuple[int, int, int | None]] = {0: (0, 0, None)}
        self.runnable = self._made()

    def _made(self) -> IntervalJoin:
        memory = self.memory
        make = in_memory if memory is None else lambda op: self._bounded(op, memory)
        runnable = make_operator(self.operator, TaskId("j", 0), "", make, inputs=INPUTS)
        assert isinstance(runnable, IntervalJoin)
        return runnable

    def _bounded(self, op: Operator, memory: StateMemory) -> State:
        key, expires = keyed_by(op)
        return BoundedState(key, op.max_parallelism, memory, 3, expires=expires)

    @property
    def state(self) -> State:
        assert self.runnable.state is not None
        return self.runnable.state

    def rows(self, rows: list[Row]) -> None:
        side = rows[0].side
        result = self.runnable.process(batch_of(rows, side), 1, "orders" if side is Side.LEFT else "payments")
        if isinstance(result, WithLate):
            self.late += [(result.output, row) for row in result.late.to_pylist()]
            result = result.rows
        self.out += result.to_pylist() if result is not None else []

    def barrier(self, watermark: int | None, *, complete: bool = True) -> None:
        for piece in self.runnable.flush(watermark):
            self.out += piece.to_pylist()
        self.epoch += 1
        copy = self.state.copy(self.epoch, self.complete or None)
        base = self.files[self.complete] if self.complete else []
        self.files[self.epoch] = list(base)
        if copy is not None:
            data = encode_tables(copy.tables(), self.state.keyed_by, in_key_order=copy.in_key_order)
            self.files[self.epoch].append(data)
        self.cut[self.epoch] = len(self.out), len(self.late), watermark
        if complete:
            self.complete = self.epoch
            self.state.forget(self.epoch)

    def restart(self) -> None:
        """From the last complete epoch. What came out since is not there."""
        self.state.close()
        out, late, watermark = self.cut[self.complete]
        del self.out[out:], self.late[late:]
        self.runnable = self._made()
        for data in self.files[self.complete]:
            table = decode_state(data, "f")
            self.runnable.resume(table)
            self.state.load(table)
        self.runnable.watermark = watermark


def expected(rows: list[tuple[Row, int | None]], operator: Operator) -> tuple[Counter[str], Counter[str]]:
    """What comes out, and what is late. rows: each with the watermark of the barrier before it."""
    join = operator.join
    assert join
    in_time = [row for row, watermark in rows if watermark is None or row.time >= watermark - join.lateness]
    late = Counter(
        f"{row.side.late} {row.values}" for row, watermark in rows
        if not (watermark is None or row.time >= watermark - join.lateness)
    )  # fmt: skip
    left, right = ([row for row in in_time if row.side is side] for side in Side)
    pairs = [
        (a, b) for a, b in itertools.product(left, right)
        if a.comparable is not None and a.comparable == b.comparable and -join.before <= b.time - a.time <= join.after
    ]  # fmt: skip
    matched = {row for pair in pairs for row in pair}
    out: list[tuple[Row | None, Row | None]] = [*pairs]
    if join.how in (How.LEFT, How.OUTER):
        out += [(row, None) for row in left if row not in matched]
    if join.how is How.OUTER:
        out += [(None, row) for row in right if row not in matched]
    return Counter(_shown(a, b) for a, b in out), late


def _shown(left: Row | None, right: Row | None) -> str:
    key = left or right
    assert key is not None
    a, b = left.values if left else {}, right.values if right else {}
    f = key.f + 0.0 if key.f is not None else None
    return repr((key.key, f, a.get("at"), a.get("text"), a.get("n"), b.get("paid"), b.get("text")))


def shown(row: dict[str, Any]) -> str:
    assert tuple(row) == OUT
    at = row["at"] and round(row["at"].timestamp() * 1_000_000)
    paid = row["paid"] and round(row["paid"].timestamp() * 1_000_000) * 1000
    return repr((row["k"], row["f"], at, row["text"], row["n"], paid, row["text_right"]))


def late_row(output: str, row: dict[str, Any]) -> str:
    for name in ("at", "paid"):
        if name in row:
            row = row | {name: round(row[name].timestamp() * 1_000_000) * (1000 if name == "paid" else 1)}
    return f"{output} {row}"


KEYS = st.sampled_from(["a", "b", "c", None])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
TIMES = st.integers(0, 60)
PLANS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(list(Side)), st.lists(st.tuples(KEYS, FLOATS, TIMES), min_size=1, max_size=12)),
        st.sampled_from(["barrier", "given up", "restart"]),
        st.tuples(st.just("advance"), st.integers(1, 20)),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@settings(max_examples=examples(80))
@given(
    PLANS, st.sampled_from(How), st.integers(0, 8), st.integers(0, 8), st.sampled_from([0, 5]),
    st.sampled_from([None, 1, 30_000]),
)  # fmt: skip
def test_it_is_every_pair_that_matches_whatever_the_batches_barriers_and_restarts(
    plan: list[Any], how: How, before: int, after: int, lateness: int, limit: int | None
) -> None:
    operator = operator_of(how, before, after, lateness)
    run = Run(operator, limit)
    number, watermark = 0, 0
    last: int | None = None
    taken: list[tuple[Row, int | None]] = []
    kept: tuple[int, int | None, int] = 0, None, 0
    for step in plan:
        if step == "restart":
            run.restart()
            del taken[kept[0] :]
            last, watermark = kept[1:]
        elif step in ("barrier", "given up"):
            last = watermark
            run.barrier(watermark, complete=step == "barrier")
            if step == "barrier":
                kept = len(taken), last, watermark
        elif step[0] == "advance":
            watermark += step[1]
        else:
            side, values = step
            rows = [Row(side, key, f, time, number + i) for i, (key, f, time) in enumerate(values)]
            number += len(rows)
            taken += [(row, last) for row in rows]
            run.rows(rows)
    run.barrier(END)
    out, late = expected(taken, operator)
    assert Counter(map(shown, run.out)) == out
    assert Counter(late_row(*row) for row in run.late) == late
    assert run.state.rows == 0


def test_rows_leave_as_soon_as_nothing_can_match_them() -> None:
    run = Run(operator_of(How.INNER, before=5, after=10), None)
    run.rows([Row(Side.LEFT, "a", 1.0, 100, 1), Row(Side.LEFT, "a", 1.0, 101, 2)])
    run.rows([Row(Side.RIGHT, "b", 1.0, 100, 3)])
    run.barrier(105)
    assert run.state.rows == 3, "a left row of 100 may come at 105 yet, and matches a right one of 100"
    run.barrier(106)
    assert run.state.rows == 2
    run.barrier(111)
    assert run.state.rows == 1
    run.barrier(112)
    assert run.state.rows == 0
    tables = [decode_state(data, "f") for data in run.files[run.complete]]
    assert sum(without_removed(table).num_rows for table in tables[-1:]) == 0
    assert tables[-1].column(DUE).null_count == tables[-1].num_rows == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", list(How))
def test_output_and_state_are_the_same_whatever_the_memory(how: How) -> None:
    operator = operator_of(how, 20, 20)
    runs = [Run(operator, limit) for limit in (None, 1, 10**9)]
    for run in runs:
        for number in range(0, 400, 40):
            for side in Side:
                some = range(number, number + 40)
                rows = [Row(side, f"k{i % 37}", 1.0, i, 2 * i + (side is Side.LEFT)) for i in some]
                run.rows(rows)
            run.barrier(max(0, number - 20), complete=number % 80 == 0)
        run.barrier(END)
    first, *others = runs
    for other in others:
        assert list(map(repr, other.out)) == list(map(repr, first.out))
        assert other.files == first.files


def test_a_row_without_event_time_or_with_other_columns_is_named() -> None:
    run = Run(operator_of(How.INNER, 0, 1), None)
    batch = batch_of([Row(Side.LEFT, "a", 1.0, 5, 7)], Side.LEFT)
    without = batch.set_column(2, LEFT.field("at"), pa.nulls(1, pa.timestamp("us")))
    with pytest.raises(JobFailed, match=r"operator j, record 41 .*'n': 7.*: no event time in 'at'"):
        run.runnable.process(without, 41, "orders")
    with pytest.raises(JobFailed, match="no column 'paid' in its input, which has k, f, at, text, n"):
        run.runnable.process(batch, 1, "payments")
    other = batch.set_column(1, "f", pa.array(["x"]))
    with pytest.raises(JobFailed, match="column 'f' of its left side is string, but double is expected"):
        run.runnable.process(other, 1, "orders")


def test_state_of_other_columns_is_refused() -> None:
    run = Run(operator_of(How.LEFT, 0, 1), None)
    run.rows([Row(Side.LEFT, "a", 1.0, 5, 7)])
    run.barrier(1)
    inner = Run(operator_of(How.INNER, 0, 1), None)
    with pytest.raises(JobFailed, match=r"its state has the columns .*join_matched"):
        inner.runnable.resume(decode_state(run.files[1][0], "f"))


def test_columns_that_do_not_go_together_are_refused() -> None:
    operator = operator_of(How.INNER, 0, 1)

    def refusal(left: pa.Schema, right: pa.Schema) -> str:
        with pytest.raises(UsageError) as raised:
            make_operator(operator, TaskId("j", 0), "", in_memory, inputs={Side.LEFT: left, Side.RIGHT: right})
        return raised.value.message

    text = pa.schema([("k", pa.string()), ("f", pa.string()), ("paid", pa.timestamp("us"))])
    assert refusal(LEFT, text) == "operator j: key column 'f' is double on the left side and string on the right"
    assert refusal(LEFT, LEFT) == "operator j: no column 'paid' on its right side"
    twice = LEFT.append(pa.field("text_right", pa.string()))
    assert refusal(twice, RIGHT) == "operator j: two columns of its output are called 'text_right'"


def test_whole_numbers_of_other_widths_are_one_key() -> None:
    schemas = {
        Side.LEFT: pa.schema([("k", pa.int32()), ("at", pa.timestamp("us"))]),
        Side.RIGHT: pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))]),
    }
    operator = Operator("j", Kind.JOIN, 1, 16, key=("k",), join=Join("l", ("at", "at"), 0, 0))
    join = make_operator(operator, TaskId("j", 0), "", in_memory, inputs=schemas)
    rows = {side: pa.record_batch([pa.array([3], s.field(0).type), pa.array([9], s.field(1).type)], schema=s)
            for side, s in schemas.items()}  # fmt: skip
    assert join.process(rows[Side.LEFT], 1, "l") is None
    result = join.process(rows[Side.RIGHT], 1, "r")
    assert isinstance(result, pa.RecordBatch)
    assert result.column("k").to_pylist() == [3]


@settings(max_examples=examples(60))
@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=20), max_size=8), st.data())
def test_runs_give_each_slot_of_a_key_within_an_interval_once(
    pieces: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    import numpy as np

    runs, everything, gone = SortedRuns(), [], set()

    def alive(slots: Any) -> Any:
        return ~np.isin(slots, list(gone))

    for piece in pieces:
        slots = range(len(everything), len(everything) + len(piece))
        columns = [np.array(column) for column in zip(*piece, strict=True)] or [np.array([]), np.array([])]
        runs.add(columns[0].astype(np.uint64), columns[1].astype(np.int64), np.array(slots, dtype=np.int64), alive)
        everything += piece
        if everything:
            gone.add(data.draw(st.integers(0, len(everything) - 1)))
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(-1, 8)), max_size=10))
    hashes, low, length = (np.array([row[i] for row in wanted], dtype=np.int64) for i in range(3))
    places, slots_of = runs.within(hashes.astype(np.uint64), low, low + length, alive)
    brute = {
        (i, slot) for i, (hash, start, more) in enumerate(wanted) for slot, (of, time) in enumerate(everything)
        if of == hash and start <= time <= start + more and slot not in gone
    }  # fmt: skip
    assert sorted(zip(places.tolist(), slots_of.tolist(), strict=True)) == sorted(brute)


def test_the_time_may_be_a_column_of_the_key() -> None:
    """As of rows of windows, which are joined by their ends; also where the rows that wait were restored."""
    schema = pa.schema([("end", pa.timestamp("us")), ("n", pa.int64())])
    join = Join("orders", ("end", "end"), 0, 0, How.OUTER, 0)
    operator = Operator("j", Kind.JOIN, 1, 16, key=("end", "n"), join=join)
    left, right = (
        pa.record_batch([pa.array(ends, pa.timestamp("us")), pa.array([1, 1])], schema=schema)
        for ends in ([10, 20], [20, 30])
    )

    def made() -> IntervalJoin:
        runnable = make_operator(operator, TaskId("j", 0), "", in_memory, inputs=dict.fromkeys(Side, schema))
        assert isinstance(runnable, IntervalJoin)
        assert runnable.state is not None
        return runnable

    first = made()
    assert (output := first.process(left, 0, "orders")) is None or not output.num_rows
    copy = first.state.copy(1, None)
    table = decode_state(encode_tables(copy.tables(), first.state.keyed_by, in_key_order=copy.in_key_order), "f")
    again = made()
    again.resume(table)
    again.state.load(table)
    pairs = again.process(right, 2, "payments")
    assert pairs is not None
    assert pairs["end"].cast(pa.int64()).to_pylist() == [20]
    rest = [end for batch in again.flush(END) for end in batch["end"].cast(pa.int64()).to_pylist()]
    assert sorted(rest) == [10, 30]
