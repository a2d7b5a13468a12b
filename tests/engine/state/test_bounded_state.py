"""State larger than the memory given: the same output and the same state files as with all of it in memory."""

from __future__ import annotations

import gc
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed
from abscli.engine.operators.making import make_operator
from abscli.engine.operators.runnable import Runnable
from abscli.engine.state import bounded_state, key_table
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.copies import StateCopy
from abscli.engine.state.memory import StateMemory
from formats.ids import TaskId
from formats.job.model import Aggregate, Aggregation, Emit, Kind, Operator
from formats.native.hashing import hash_rows
from formats.native.state.tables import StateKey, decode_state, encode_tables
from tests.tiers import examples

KEY = ("word", "number")
AGGREGATES = (
    Aggregate("n", Aggregation.COUNT, "*"),
    Aggregate("total", Aggregation.SUM, "amount"),
    Aggregate("mean", Aggregation.SUM, "price"),
    Aggregate("least", Aggregation.MIN, "text"),
    Aggregate("middle", Aggregation.MEAN, "amount"),
    Aggregate("oldest", Aggregation.FIRST, "text"),
    Aggregate("newest", Aggregation.LAST, "amount"),
    Aggregate("dearest", Aggregation.TOP_N, "text", "price", 2),
    Aggregate("largest", Aggregation.TOP_N, "amount", None, 3),
    Aggregate("some", Aggregation.COLLECT, "text", None, 4),
)
SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("number", pa.float64()),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("text", pa.string()),
        ("unused", pa.int8()),
    ]
)
ROW = st.tuples(
    st.one_of(st.none(), st.sampled_from([f"w{i}" for i in range(30)]), st.text(max_size=3)),
    st.sampled_from([0.0, -0.0, 1.5, math.nan, None]),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    st.one_of(st.none(), st.text(max_size=4)),
    st.just(1),
)
ROWS = st.lists(ROW, min_size=1, max_size=30)
STEP = st.one_of(
    ROWS,
    st.sampled_from(["epoch", "complete", "whole", "again", "restart"]),
)
LIMITS = (1, 20_000, 60_000, 10**9)


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _encoded(copy: StateCopy) -> bytes:
    return encode_tables(copy.tables(), StateKey.of(KEY), in_key_order=copy.in_key_order)


class Run:
    """An operator under a limit (None: none), and all that comes out of it."""

    def __init__(self, kind: Kind, emit: Emit, limit: int | None, groups: int = 3) -> None:
        aggregates = AGGREGATES if kind is Kind.REDUCE else ()
        self.operator = Operator("op", kind, 1, 32, key=KEY, aggregates=aggregates, emit=emit)
        self.memory = None if limit is None else StateMemory(limit)
        self.groups = groups
        self.epoch = self.complete = self.records = 0
        self.files: dict[int, list[bytes]] = {0: []}
        self.out: list[Any] = []
        self.copies: list[tuple[int, StateCopy | None, list[bytes]]] = []
        self.runnable = self._made()

    def _made(self) -> Runnable:
        if self.memory is None:
            return make_operator(self.operator, TaskId("op", 0), "")
        memory, groups = self.memory, self.groups
        return make_operator(
            self.operator, TaskId("op", 0), "",
            lambda op: BoundedState(StateKey.of(op.key), op.max_parallelism, memory, groups),
        )  # fmt: skip

    @property
    def state(self) -> State:
        assert self.runnable.state is not None
        return self.runnable.state

    def take(self, step: Any) -> None:
        if isinstance(step, list):
            self._note(self.runnable.process(batch_of(step), self.records + 1))
            self.records += len(step)
        elif step == "complete":
            self.write()
            self.complete = max((epoch for epoch in self.files if epoch <= self.epoch), default=0)
            self.state.forget(self.complete)
        elif step == "again":  # a copy of an epoch that was given up, when steps are taken again
            self.epoch += 1
            self._flush()
            self.state.end_interval(self.epoch)
        elif step == "restart":
            self.write()
            self.files = {epoch: files for epoch, files in self.files.items() if epoch <= self.complete}
            self.state.close()
            self.runnable = self._made()
            for data in self.files[self.complete]:
                self.state.load(decode_state(data, "f"))
            self.epoch += 1
        else:
            self.epoch += 1
            self._flush()
            base = [] if step == "whole" else self.files[self.complete]
            copy = self.state.copy(self.epoch, None if step == "whole" else self.complete)
            self.copies.append((self.epoch, copy, base))

    def write(self) -> None:
        """What the background does, at any time after the copy."""
        for epoch, copy, base in self.copies:
            new = [] if copy is None else [_encoded(copy)]
            self.files[epoch] = [*base, *new]
        self.copies = []

    def _flush(self) -> None:
        pieces = list(self.runnable.flush(None))
        self._note(pa.concat_batches(pieces) if pieces else None)

    def _note(self, rows: pa.RecordBatch | None) -> None:
        self.out.append(repr(rows.to_pylist()) if rows is not None and rows.num_rows else None)

    def end(self) -> None:
        self.take("epoch")
        self.write()
        assert self.state.rows == len({str(row) for row in self._keys()})

    def _keys(self) -> Iterator[list[Any]]:
        for data in self.files[self.epoch]:
            yield from decode_state(data, "f").select(KEY).to_pylist()


@pytest.mark.integration
@settings(max_examples=examples(60))
@given(
    st.lists(STEP, max_size=14),
    st.sampled_from([(Kind.DISTINCT, Emit.EPOCH), *((Kind.REDUCE, emit) for emit in Emit)]),
    st.sampled_from([1, 3, 32]),
)
def test_output_and_state_files_are_the_same_whatever_the_limit(
    steps: list[Any], how: tuple[Kind, Emit], groups: int
) -> None:
    runs = [Run(*how, limit, groups) for limit in (None, *LIMITS)]
    for step in [*steps, "end"]:
        for run in runs:
            run.end() if step == "end" else run.take(step)
    for run in runs[1:]:
        assert run.out == runs[0].out
        assert run.files == runs[0].files


def words(numbers: range) -> list[tuple[Any, ...]]:
    return [(f"w{i}", 0.0, i, 0.5, "x", 1) for i in numbers]


@pytest.mark.integration
def test_memory_is_kept_to_and_files_are_gone_with_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = Run(Kind.REDUCE, Emit.EPOCH, 2_000_000, groups=1)
    gc.collect()  # what other tests left
    before = len(os.listdir("/proc/self/fd"))
    for start in range(0, 60_000, 2_000):
        run.take(words(range(start, start + 2_000)))
        assert run.memory is not None
        assert run.memory.fits(0)
    run.take("epoch")
    assert run.state.rows == 60_000
    assert run.memory.gathered == 0
    assert len(os.listdir("/proc/self/fd")) > before
    assert not list(tmp_path.iterdir())  # they have no names
    run.write()
    assert sum(decode_state(data, "f").num_rows for data in run.files[1]) == 60_000
    run.state.close()
    del run
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_copy_stays_as_it_was_while_its_parts_come_and_go() -> None:
    run = Run(Kind.REDUCE, Emit.EPOCH, 1)
    run.take(words(range(500)))
    run.take("epoch")
    run.take(words(range(500)))
    run.take("epoch")
    run.take(words(range(0, 500, 2)))
    run.take("epoch")
    run.write()
    counts = [sum(decode_state(d, "f").column("n").to_pylist()[0] for d in run.files[epoch]) for epoch in (1, 2, 3)]
    assert counts[0] == 1
    assert all(set(decode_state(run.files[epoch][0], "f")["n"].to_pylist()) == {epoch} for epoch in (1, 2))
    assert set(decode_state(run.files[3][0], "f")["n"].to_pylist()) == {2, 3}


def test_keys_whose_hashes_collide_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (key_table, bounded_state):
        monkeypatch.setattr(module, "hash_rows", lambda columns: hash_rows(columns) % np.uint64(5))
    run = Run(Kind.REDUCE, Emit.EPOCH, 1, groups=1)
    for _ in range(3):
        run.take(words(range(40)))
    run.end()
    (data,) = run.files[run.epoch]
    assert decode_state(data, "f")["n"].to_pylist() == [3] * 40


@pytest.mark.parametrize("limit", [None, 1, 10**9])
def test_an_overflow_names_the_record(limit: int | None) -> None:
    run = Run(Kind.REDUCE, Emit.EPOCH, limit)
    rows = [("w", 0.0, 2**62, 0.5, "x", 1), ("v", 0.0, 1, 0.5, "x", 1)]
    run.take(rows)

    def until_the_epoch() -> None:
        run.take(rows)
        run.take("epoch")

    with pytest.raises(JobFailed, match=r"record 3 \{'word': 'w', .*'amount': 4611686018427387904.*overflows"):
        until_the_epoch()


@pytest.mark.parametrize("limit", [None, 1, 10**9])
def test_inputs_may_have_columns_of_two_types(limit: int | None) -> None:
    """Whose rows wait for the same state: of one input the amounts are narrower, and never null."""
    run = Run(Kind.REDUCE, Emit.EPOCH, limit)
    run.operator = Operator("op", Kind.REDUCE, 1, 32, key=KEY, aggregates=AGGREGATES[:2], emit=Emit.EPOCH)
    run.runnable = run._made()
    rows = words(range(40))
    narrow = [pa.field("amount", pa.int32(), nullable=False) if f.name == "amount" else f for f in SCHEMA]
    for batch in (batch_of(rows), batch_of(rows).cast(pa.schema(narrow))) * 2:
        run.runnable.process(batch, 1)
    total = {row["word"]: row["total"] for piece in run.runnable.flush(None) for row in piece.to_pylist()}
    assert total == {f"w{i}": 4 * i for i in range(40)}


@pytest.mark.parametrize("emit", Emit)
@pytest.mark.parametrize("limit", [None, 1, 10**9])
def test_values_are_of_the_type_that_came_first_whatever_comes_of_a_key(limit: int | None, emit: Emit) -> None:
    """Else one task would put out, and keep, columns of two types."""
    run = Run(Kind.REDUCE, emit, limit)
    whole = [pa.field("price", pa.int64()) if f.name == "price" else f for f in SCHEMA]
    numbers = [(*row[:3], 2, *row[4:]) for row in words(range(20, 60))]
    columns = zip(*numbers, strict=True)
    later = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, whole, strict=True)], schema=pa.schema(whole))
    pieces = [run.runnable.process(batch_of(words(range(20))), 1), run.runnable.process(later, 21)]
    pieces += run.runnable.flush(None)
    out = [piece for piece in pieces if piece is not None]
    assert {piece.schema.field("mean").type for piece in out} == {pa.float64()}
    assert sum(row["mean"] for piece in out for row in piece.to_pylist()) == 20 * 0.5 + 40 * 2
    copy = run.state.copy(1, None)
    assert copy is not None
    assert {table.schema.field("mean").type for table in copy.tables()} == {pa.float64()}


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Kind.REDUCE, Emit.EPOCH, 1)

    def many_words() -> None:
        for start in range(0, 9_000, 1_000):
            run.take(words(range(start, start + 1_000)))

    free = r"File too large, [\d,]+ bytes were to be written, [\d,]+ bytes are free"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=free) as caught:
            many_words()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename.endswith("abs-state")
