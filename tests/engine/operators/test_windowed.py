"""Windows of event time and keys that expire: against a model, whatever batches, memory and restarts."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.operators.making import keyed_by, make_operator
from abscli.engine.operators.runnable import Runnable, WithLate
from abscli.engine.operators.sessions import Sessions
from abscli.engine.operators.windowed import Windowed
from abscli.engine.operators.windows import windows_of
from abscli.engine.state import keyed_state
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.model import Aggregate, Aggregation, Kind, Operator, Ttl, Window, WindowKind
from formats.native.state.live_rows import latest
from formats.native.state.tables import DUE, decode_state, encode_tables, without_removed
from formats.watermark import END
from tests.tiers import examples

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us")), ("v", pa.int64())])
Row = tuple[str, int, int]
COUNTED = (Aggregate("n", Aggregation.COUNT, "*"), Aggregate("most", Aggregation.MAX, "v"))


def reduce_of(window: Window | None = None, ttl: Ttl | None = None, kind: Kind = Kind.REDUCE) -> Operator:
    return Operator(
        "op", kind, 1, 16, key=("k",), aggregates=COUNTED if kind is Kind.REDUCE else (), emit="epoch",
        window=window or msgspec.UNSET, ttl=ttl or msgspec.UNSET,
    )  # fmt: skip


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


class Model:
    """What a `reduce` with windows puts out, row by row."""

    def __init__(self, window: Window) -> None:
        self.window, self.watermark = window, -(2**62)
        self.open: dict[tuple[str, int], list[int]] = {}
        self.due: set[tuple[str, int]] = set()

    def take(self, rows: list[Row]) -> list[Row]:
        """The rows that are late."""
        late = []
        size, every = self.window.size, self.window.every or self.window.size
        for key, at, value in rows:
            first = (at - size) // every * every + every
            starts = [s for s in range(first, at + 1, every) if s + size + self.window.lateness > self.watermark]
            for start in starts:
                self.open.setdefault((key, start), []).append(value)
                self.due.add((key, start))
            if not starts:
                late.append((key, at, value))
        return late

    def barrier(self, watermark: int) -> Counter[tuple[Any, ...]]:
        self.watermark = watermark
        size, out = self.window.size, Counter[tuple[Any, ...]]()
        for key, start in [one for one in self.open if one[1] + size <= watermark]:
            values = self.open[key, start]
            if (key, start) in self.due:
                out[key, start, start + size, len(values), max(values)] += 1
                self.due.discard((key, start))
            if start + size + self.window.lateness <= watermark:
                del self.open[key, start]
        return out


class SessionModel(Model):
    """As `Model`, of sessions: `open` has by key and start how far each reaches, beside its values."""

    def take(self, rows: list[Row]) -> list[Row]:
        late = []
        for key, at, value in rows:
            if at + self.window.size + self.window.lateness <= self.watermark:
                late.append((key, at, value))
                continue
            start, end, values = at, at + self.window.size, [value]
            for other, (reach, *older) in [(s, v) for (k, s), v in self.open.items() if k == key]:
                if other <= end and start <= reach:
                    del self.open[key, other]
                    self.due.discard((key, other))
                    start, end, values = min(start, other), max(end, reach), values + older
            self.open[key, start] = [end, *values]
            self.due.add((key, start))
        return late

    def barrier(self, watermark: int) -> Counter[tuple[Any, ...]]:
        self.watermark, out = watermark, Counter[tuple[Any, ...]]()
        for (key, start), (end, *values) in list(self.open.items()):
            if end <= watermark and (key, start) in self.due:
                out[key, start, end, len(values), max(values)] += 1
                self.due.discard((key, start))
            if end + self.window.lateness <= watermark:
                del self.open[key, start]
        return out


class Driven:
    """An operator, its files, and how it starts again from them."""

    def __init__(self, operator: Operator, limit: int | None) -> None:
        self.operator = operator
        self.memory = None if limit is None else StateMemory(limit)
        self.epoch = self.complete = self.records = 0
        self.files: dict[int, list[bytes]] = {0: []}
        self.watermarks: dict[int, int | None] = {0: None}
        self.runnable = self.made()

    def made(self) -> Runnable:
        memory = self.memory
        if memory is None:
            return make_operator(self.operator, TaskId("op", 0), "")

        def bounded(op: Operator) -> State:
            key, expires = keyed_by(op)
            return BoundedState(key, op.max_parallelism, memory, groups=3, expires=expires)

        return make_operator(self.operator, TaskId("op", 0), "", bounded)

    @property
    def state(self) -> State:
        assert self.runnable.state is not None
        return self.runnable.state

    def take(self, rows: list[Row]) -> tuple[list[dict[str, Any]], list[Row]]:
        """What it puts out for rows, and those that are late."""
        out = self.runnable.process(batch_of(rows), self.records + 1)
        self.records += len(rows)
        late: list[Row] = []
        if isinstance(out, WithLate):
            numbers = out.late.column("at").cast(pa.int64()).to_pylist()
            late = list(zip(out.late.column("k").to_pylist(), numbers, out.late.column("v").to_pylist(), strict=True))
            out = out.rows
        return out.to_pylist() if out is not None else [], late

    def barrier(self, watermark: int, *, whole: bool) -> list[dict[str, Any]]:
        """What it puts out with the next epoch, of which a copy is made."""
        self.epoch += 1
        out = [row for batch in self.runnable.flush(watermark) for row in batch.to_pylist()]
        made = self.state.copy(self.epoch, None if whole else self.complete)
        base = [] if whole else self.files[self.complete]
        key, _ = keyed_by(self.operator)
        new = [] if made is None else [encode_tables(made.tables(), key, in_key_order=made.in_key_order)]
        self.files[self.epoch], self.watermarks[self.epoch] = [*base, *new], watermark
        return out

    def completed(self, behind: int = 0) -> None:
        """The newest epoch is complete, or one before it."""
        self.complete = max(self.complete, self.epoch - behind)  # what was given up at a restart lies below
        self.state.forget(self.complete)

    def restart(self) -> None:
        """From the newest epoch that is complete."""
        self.state.close()
        self.runnable = self.made()
        for data in self.files[self.complete]:
            self.state.load(decode_state(data, "f"))
        if isinstance(self.runnable, Windowed | Sessions):
            self.runnable.watermark = self.watermarks[self.complete]
        self.epoch += 1
        self.files[self.epoch], self.watermarks[self.epoch] = (
            self.files[self.complete], self.watermarks[self.complete],
        )  # fmt: skip
        self.complete = self.epoch

    def live(self) -> pa.Table | None:
        """The rows of the newest copy's files, as a reader has them."""
        tables = [decode_state(data, "f") for data in self.files[self.epoch]]
        return without_removed(latest(tables, keyed_by(self.operator)[0].columns)) if tables else None


ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=25)
BARRIER = st.tuples(
    st.integers(0, 12), st.booleans(), st.sampled_from([None, 0, 0, 1, 2]), st.sampled_from([False, False, True])
)
"""By how much the watermark rises, whether the copy is whole, how far behind the epoch is that is complete now, and
whether all starts again from that."""
STEPS = st.lists(st.one_of(ROWS, BARRIER, BARRIER), min_size=3, max_size=24)
WINDOWS = st.sampled_from(
    [
        Window("at", WindowKind.TUMBLING, 10), Window("at", WindowKind.TUMBLING, 7, lateness=5),
        Window("at", WindowKind.SLIDING, 10, 4), Window("at", WindowKind.SLIDING, 9, 3, lateness=20),
        Window("at", WindowKind.SESSION, 4), Window("at", WindowKind.SESSION, 3, lateness=8),
    ]
)  # fmt: skip


@settings(max_examples=examples(200))
@given(STEPS, WINDOWS, st.sampled_from([None, 1, 20_000]), st.integers(1, 30), st.sampled_from([0, 16]))
def test_windows_are_those_of_the_model(
    steps: list[Any], window: Window, limit: int | None, few: int, scan: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_state, "FEW", few)  # so that slots are numbered anew
        patch.setattr(keyed_state, "SCAN", scan)  # so that lists of what changed are used, or not
        made = SessionModel if window.kind is WindowKind.SESSION else Model
        model, driven = made(window), Driven(reduce_of(window), limit)
        models = {0: copy.deepcopy(model)}
        for step in [*steps, (200, False, None, False)]:
            if isinstance(step, list):
                out, late = driven.take(step)
                assert not out
                assert late == model.take(step)
                continue
            more, whole, behind, restart = step
            watermark = max(model.watermark, 0) + more
            shown = driven.barrier(watermark, whole=whole)
            start, end = (pa.array([row[f"window_{name}"] for row in shown], pa.timestamp("us")).cast(pa.int64())
                          for name in ("start", "end"))  # fmt: skip
            rows = zip([row["k"] for row in shown], start.to_pylist(), end.to_pylist(),
                       [row["n"] for row in shown], [row["most"] for row in shown], strict=True)  # fmt: skip
            assert Counter(rows) == model.barrier(watermark)
            assert driven.state.rows == len(model.open)
            live = driven.live()
            assert (0 if live is None else live.num_rows) == len(model.open)
            models[driven.epoch] = copy.deepcopy(model)
            if behind is not None:
                driven.completed(behind)
            if restart:
                model = copy.deepcopy(models[driven.complete])
                driven.restart()
                models[driven.epoch] = copy.deepcopy(model)
        assert not model.open


@settings(max_examples=examples(60))
@given(ROWS, st.lists(st.integers(1, 24), max_size=3), WINDOWS)
def test_it_does_not_matter_where_batches_end(rows: list[Row], cuts: list[int], window: Window) -> None:
    runs = []
    for places in ([], sorted(cuts)):
        driven, late = Driven(reduce_of(window), None), list[Row]()
        driven.barrier(15, whole=False)
        for start, stop in zip([0, *places], [*places, len(rows)], strict=True):
            if rows[start:stop]:
                late += driven.take(rows[start:stop])[1]
        runs.append((late, driven.barrier(END, whole=False)))
    assert runs[0] == runs[1]


@settings(max_examples=examples(100))
@given(STEPS, st.sampled_from([Kind.REDUCE, Kind.DISTINCT]), st.sampled_from([None, 1]))
def test_a_key_is_kept_for_as_long_as_is_said_behind_its_latest_row(
    steps: list[Any], kind: Kind, limit: int | None
) -> None:
    driven, watermark = Driven(reduce_of(ttl=Ttl("at", 10), kind=kind), limit), 0
    kept: dict[str, tuple[int, int]] = {}  # how many rows, and when it is due
    before = {0: (0, dict(kept))}
    for step in steps:
        if isinstance(step, list):
            out, _ = driven.take(step)
            passed = []
            for key, at, value in step:
                if key in kept and kept[key][1] <= at:
                    del kept[key]  # whether or not an epoch has ended since
                passed += [(key, at, value)] if key not in kept else []
                count, due = kept.get(key, (0, at + 10))
                kept[key] = count + 1, max(due, at + 10)
            if kind is Kind.DISTINCT:
                assert [(row["k"], row["at"].microsecond, row["v"]) for row in out] == passed
            continue
        more, whole, behind, restart = step
        watermark += more
        shown = driven.barrier(watermark, whole=whole)
        if kind is Kind.REDUCE:
            assert {row["k"]: row["n"] for row in shown}.items() <= {k: n for k, (n, _) in kept.items()}.items()
        kept = {key: (count, due) for key, (count, due) in kept.items() if due > watermark}
        assert driven.state.rows == len(kept)
        live = driven.live()
        assert sorted([] if live is None else live.column("k").to_pylist()) == sorted(kept)
        if live is not None and kind is Kind.REDUCE:
            assert dict(zip(live.column("k").to_pylist(), live.column("n").to_pylist(), strict=True)) == {
                key: count for key, (count, _) in kept.items()
            }
        before[driven.epoch] = watermark, dict(kept)
        if behind is not None:
            driven.completed(behind)
        if restart:
            watermark, kept = before[driven.complete][0], dict(before[driven.complete][1])
            driven.restart()
            before[driven.epoch] = watermark, dict(kept)


@settings(max_examples=examples(60))
@given(
    st.permutations(range(0, 60, 3)), st.lists(st.integers(1, 19), max_size=3),
    st.sampled_from([Kind.REDUCE, Kind.DISTINCT]), st.sampled_from([None, 1]), st.sampled_from(["epoch", "record"]),
)  # fmt: skip
def test_when_a_key_is_forgotten_does_not_depend_on_where_batches_end(
    times: list[int], cuts: list[int], kind: Kind, limit: int | None, emit: str
) -> None:
    operator = msgspec.structs.replace(reduce_of(ttl=Ttl("at", 10), kind=kind), emit=emit)
    rows = [("ab"[at % 2], at, number) for number, at in enumerate(times)]
    runs = []
    for places in ([], sorted(cuts)):
        driven, out = Driven(operator, limit), []
        for start, stop in zip([0, *places], [*places, len(rows)], strict=True):
            if rows[start:stop]:
                out += driven.take(rows[start:stop])[0]
        runs.append((out, driven.barrier(0, whole=False)))
    assert runs[0] == runs[1]


@given(st.lists(st.integers(-50, 50), max_size=8), st.integers(1, 20), st.integers(1, 20))
def test_a_row_is_in_every_window_around_it(times: list[int], size: int, every: int) -> None:
    every = min(size, every)
    rows, starts = windows_of(np.array(times, dtype=np.int64), size, every)
    pairs = {(row, start) for row, at in enumerate(times)
             for start in range(-100, 100) if start % every == 0 and start <= at < start + size}  # fmt: skip
    assert sorted(zip(rows.tolist(), starts.tolist(), strict=True)) == sorted(pairs)


def test_removed_keys_leave_memory_when_a_complete_epoch_says_that_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_state, "FEW", 16)
    driven = Driven(reduce_of(Window("at", WindowKind.TUMBLING, 10)), None)
    sizes = []
    for minute in range(30):
        driven.take([(f"k{i}", minute * 100 + i % 10, 1) for i in range(200)])
        driven.barrier(minute * 100 + 50, whole=False)
        driven.completed()
        state = driven.state
        assert isinstance(state, keyed_state.KeyedState)
        sizes.append(state.index.count)
    assert driven.state.rows == 0
    assert max(sizes) <= 600, sizes


def test_a_row_without_event_time_is_told() -> None:
    driven = Driven(reduce_of(Window("at", WindowKind.TUMBLING, 10)), None)
    batch = pa.record_batch([["a", "b"], pa.array([1, None], pa.timestamp("us")), [1, 2]], names=SCHEMA.names)
    with pytest.raises(JobFailed, match=r"operator op, record 8 .*'b'.*no event time in 'at'"):
        driven.runnable.process(batch, 7)


def test_files_say_which_keys_are_removed() -> None:
    driven = Driven(reduce_of(Window("at", WindowKind.TUMBLING, 10)), None)
    driven.take([("a", 1, 1), ("b", 31, 1)])
    driven.barrier(0, whole=False)
    driven.completed()
    driven.barrier(20, whole=False)
    first, second = (set(decode_state(data, "f").column(DUE).to_pylist()) for data in driven.files[2])
    assert first == {10, 40}
    assert second == {None}


def test_what_has_changed_is_known_by_its_new_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are numbered anew while a later epoch is under way."""
    monkeypatch.setattr(keyed_state, "FEW", 4)
    monkeypatch.setattr(keyed_state, "SCAN", 0)
    driven = Driven(reduce_of(Window("at", WindowKind.TUMBLING, 10)), None)
    driven.take([(f"k{i}", 1, 1) for i in range(40)])
    driven.barrier(20, whole=False)
    driven.take([("late in the day", 31, 1)])
    driven.barrier(21, whole=False)
    driven.completed(behind=1)
    assert isinstance(driven.state, keyed_state.KeyedState)
    assert driven.state.index.count == 1
    driven.barrier(22, whole=False)
    live = driven.live()
    assert live is not None
    assert live.column("k").to_pylist() == ["late in the day"]


ALL = (
    Aggregate("n", Aggregation.COUNT, "v"), Aggregate("total", Aggregation.SUM, "v"),
    Aggregate("mean", Aggregation.MEAN, "v"), Aggregate("least", Aggregation.MIN, "v"),
    Aggregate("first", Aggregation.FIRST, "v"), Aggregate("last", Aggregation.LAST, "v"),
    Aggregate("top", Aggregation.TOP_N, "v", limit=2),
)  # fmt: skip


@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 9)), min_size=1,
             unique_by=lambda row: row[1]),
    st.integers(1, 4), st.randoms(use_true_random=False),
)  # fmt: skip
def test_a_session_is_the_same_in_whatever_order_its_parts_come(rows: list[Row], size: int, rng: Any) -> None:
    operator = msgspec.structs.replace(reduce_of(Window("at", WindowKind.SESSION, 5)), aggregates=ALL)
    whole, parted = Driven(operator, None), Driven(operator, None)
    ordered = sorted(rows, key=lambda row: row[1])
    whole.take(ordered)
    pieces = [ordered[at : at + size] for at in range(0, len(rows), size)]
    rng.shuffle(pieces)
    for piece in pieces:
        parted.take(piece)
        if rng.random() < 0.3:
            parted.barrier(0, whole=False)
    assert whole.barrier(END, whole=False) == parted.barrier(END, whole=False)


def test_a_sum_that_overflows_when_parts_are_joined_is_told() -> None:
    operator = msgspec.structs.replace(reduce_of(Window("at", WindowKind.SESSION, 5)), aggregates=ALL[1:2])
    driven = Driven(operator, None)
    for at in (1, 3):
        driven.take([("a", at, 2**62)])
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        driven.barrier(2, whole=False)
