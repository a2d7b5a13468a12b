"""The operator that calls a function of keys: what a dict does, whatever the batches, barriers, stops and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli import KeyedBatch, KeyedResult, Result, per_key
from abscli.engine.errors import JobFailed
from abscli.engine.operators.keyed_process import AT_THE_END
from formats.job.model import Keeping, Ttl
from formats.native.state.tables import DUE
from formats.watermark import END
from tests.support.jobs.keyed import (
    COLUMNS,
    SCHEMA,
    Model,
    Run,
    Steps,
    batch_of,
    made,
    microseconds,
    moment,
    play,
    steps,
    text,
    track,
)
from tests.tiers import examples


@settings(max_examples=examples(150))
@given(steps(["a", "b", "c", None, "d"], [1, 5, 13]))
def test_it_does_what_a_dict_does_whatever_the_batches_barriers_restarts_and_memory(steps: Steps) -> None:
    model, runs = Model(), [Run(limit) for limit in (None, 1, 20_000)]

    def compare(run: Run) -> None:
        assert {user: {name: row[name] for name, _ in COLUMNS} for user, row in run.rows().items()} == {
            user: {"note": None, **state} for user, (state, _) in model.states.items()
        }

    play(steps, model, runs, compare)
    for run in runs:
        assert text(run.out) == text(model.out)
        assert not run.rows()
    for user in "abcd":  # of one key they come in order
        ours = [row for row in model.out if row["user"] == user]
        assert all([row for row in run.out if row["user"] == user] == ours for run in runs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([1, 13])), max_size=30), st.data())
def test_what_comes_out_does_not_depend_on_where_batches_and_epochs_end(
    rows: list[tuple[str | None, int, int]], data: st.DataObject
) -> None:
    rows = sorted(rows, key=lambda row: row[1])
    outs = []
    for cut in (False, True):
        run = Run(None)
        waiting: list[tuple[str | None, int, int]] = []
        for row in rows:
            waiting.append(row)
            if cut and data.draw(st.booleans()):
                run.take(waiting)
                waiting = []
                if data.draw(st.booleans()):
                    run.barrier(microseconds(row[1]))
        if waiting:
            run.take(waiting)
        run.barrier(END)
        outs.append(text(run.out))
    assert outs[0] == outs[1]


# -- all keys at once --------------------------------------------------------------------------------------------


def summed(batch: KeyedBatch) -> KeyedResult:
    """Rows and their sum by key, with a timer at their latest time; forgotten when it fires."""
    count = batch.keys.num_rows
    if batch.rows is None:
        out = pa.record_batch(
            [batch.keys["user"], batch.state["total"], batch.timers], names=["user", "total", "until"]
        )
        return KeyedResult(rows=out, remove=pa.array([True] * count))
    table = pa.table({"group": batch.groups, "amount": batch.rows["amount"], "at": batch.times})
    by_key = table.group_by("group").aggregate([("amount", "sum"), ("amount", "count"), ("at", "max")]).sort_by("group")
    sums, counts, latest = (
        by_key[name].combine_chunks() for name in ("amount_sum", "amount_count", "at_max")
    )
    state = pa.record_batch(
        [
            pc.add(pc.fill_null(batch.state["count"], 0), counts), pc.add(pc.fill_null(batch.state["total"], 0), sums),
            latest, pa.nulls(count),
        ],
        names=[name for name, _ in COLUMNS],
    )  # fmt: skip
    return KeyedResult(state=state, timers=latest)


def test_a_function_of_all_keys_gets_their_rows_together_and_in_order() -> None:
    seen: list[KeyedBatch] = []

    def noted(batch: KeyedBatch) -> KeyedResult:
        seen.append(batch)
        return summed(batch)

    run = Run(None, noted)
    run.take([("b", 3, 1), ("a", 1, 2), ("b", 2, 3), (None, 4, 4), ("a", 9, 5)])
    run.take([("a", 5, 7)])
    run.barrier(microseconds(4))
    first, second, fired = seen
    assert first.keys.to_pylist() == [{"user": "b"}, {"user": "a"}, {"user": None}]
    assert first.groups.to_pylist() == [0, 0, 1, 1, 2]
    assert first.rows is not None
    assert first.rows["amount"].to_pylist() == [1, 3, 2, 5, 4]
    assert first.times is not None
    assert first.times.to_pylist() == [moment(second) for second in (3, 2, 1, 9, 4)]
    assert first.new.to_pylist() == [True, True, True]
    assert first.watermark is None
    assert second.new.to_pylist() == [False]
    assert second.state.to_pylist() == [{"count": 2, "total": 7, "last_at": moment(9), "note": None}]
    assert second.timers.to_pylist() == [moment(9)]
    assert fired.rows is None
    assert fired.times is None
    assert fired.watermark == pa.scalar(microseconds(4), pa.timestamp("us"))
    assert fired.keys.to_pylist() == [{"user": "b"}, {"user": None}]
    assert fired.timers.to_pylist() == [moment(3), moment(4)]
    assert run.out == [
        {"user": "b", "total": 4, "until": moment(3)}, {"user": None, "total": 4, "until": moment(4)},
    ]  # fmt: skip
    assert run.rows().keys() == {"a"}
    run.barrier(END)
    assert run.out[2:] == [{"user": "a", "total": 14, "until": moment(5)}]


def test_what_is_not_returned_stays_as_it_was() -> None:
    run = Run(None, lambda batch: summed(batch) if batch.new[0].as_py() else KeyedResult())
    run.take([("a", 1, 2)])
    run.barrier(None)
    run.take([("a", 5, 100)])
    before = len(run.files)
    run.barrier(None)
    assert len(run.files) == before, "nothing has changed"
    assert run.rows()["a"]["total"] == 2
    assert run.rows()["a"][DUE] == microseconds(1)


def test_without_event_time_keys_stay_until_they_are_removed() -> None:
    keeping = Keeping((("n", "int64"),))

    def counted(batch: KeyedBatch) -> KeyedResult:
        n = pc.add(pc.fill_null(batch.state["n"], 0), 1)
        return KeyedResult(state=pa.record_batch([n], names=["n"]), remove=pc.equal(n, 3))

    operator = made(counted, keeping=keeping)
    assert operator.state is not None
    for _ in range(2):
        operator.process(batch_of([("a", 1, 1), ("b", 1, 1)]), 1)
        assert list(operator.flush(END)) == []
    assert operator.state.rows == 2
    operator.process(batch_of([("a", 1, 1)]), 1)
    assert operator.state.rows == 1


def test_keys_with_a_time_to_live_are_gone_after_it() -> None:
    function = per_key()(lambda key, row, state, timer: Result({"n": (state or {"n": 0})["n"] + 1}))
    operator = made(function, keeping=Keeping((("n", "int64"),)), ttl=Ttl("at", 5_000_000))
    assert operator.state is not None
    operator.process(batch_of([("a", 1, 1), ("b", 3, 1)]), 1)
    operator.process(batch_of([("a", 2, 1)]), 3)
    list(operator.flush(microseconds(7)))
    assert operator.state.rows == 1
    operator.process(batch_of([("a", 7, 1)]), 4)
    copy = operator.state.copy(1, None)
    assert copy is not None
    rows = [row for table in copy.tables() for row in table.to_pylist()]
    assert {row["user"]: row["n"] for row in rows} == {"a": 1, "b": 1}


# -- what a function may not do --------------------------------------------------------------------------------------


def one(**columns: Any) -> pa.RecordBatch:
    plain: dict[str, Any] = {
        "count": pa.array([1, 1]), "total": pa.array([1, 1]), "last_at": pa.nulls(2), "note": pa.nulls(2),
    }  # fmt: skip
    plain |= columns
    kept = {name: column for name, column in plain.items() if column is not None}
    return pa.record_batch(list(kept.values()), names=list(kept))


def raises_at_b(batch: KeyedBatch) -> KeyedResult:
    if "b" in batch.keys["user"].to_pylist():
        raise ValueError("no b, please")
    return KeyedResult()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises_at_b, r"key {'user': 'b'}: ValueError: no b, please \(test_keyed_process.py, line \d+, in raises_at_b"),
        (lambda batch: None, "key {'user': 'a'}: the function returned NoneType, expected KeyedResult"),
        (lambda batch: KeyedResult(rows=[1]), "its rows are list, expected RecordBatch"),
        (lambda batch: KeyedResult(state={}), "its state is dict, expected RecordBatch"),
        (lambda batch: KeyedResult(state=one(count=pa.array([1.0, 2.0]))),
         "key {'user': 'a'}: column 'count' of its state is double, but the job declares int64"),
        (lambda batch: KeyedResult(state=one(more=pa.nulls(2))),
         "its state has column 'more', but the job declares count, total, last_at, note"),
        (lambda batch: KeyedResult(state=one(note=None)), "its state has no column 'note', which the job declares"),
        (lambda batch: KeyedResult(state=one().slice(1)), "its state: 1 rows for 2 keys; one a key is expected"),
        (lambda batch: KeyedResult(remove=[True]), "remove is list, expected BooleanArray"),
        (lambda batch: KeyedResult(remove=pa.array([True])), "remove: 1 rows for 2 keys"),
        (lambda batch: KeyedResult(timers=pa.array([1, 2])),
         "its timers cannot be: expected a timestamp or a date, got int64"),
        (lambda batch: KeyedResult(timers=[1, 2]), "its timers are list, expected TimestampArray"),
        (lambda batch: KeyedResult(timers=pa.nulls(1)), "its timers: 1 rows for 2 keys"),
    ],
)  # fmt: skip
def test_what_it_raises_or_returns_wrongly_is_said_with_the_key(
    function: Callable[[KeyedBatch], Any], message: str
) -> None:
    with pytest.raises(JobFailed, match=f"^operator track, task track/0, .*{message}") as failed:
        made(function).process(batch_of([("a", 1, 1), ("b", 1, 1)]), 1)
    assert (failed.value.raised_at is not None) == (function is raises_at_b)


def single(function: Callable[..., Any], output: dict[str, str] | None = None) -> Callable[[KeyedBatch], KeyedResult]:
    """Of the second key alone; for others all is well."""
    return per_key(output)(
        lambda key, row, state, timer: function(row, state, timer) if key["user"] == "b" else Result({"count": 1})
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (single(lambda row, state, timer: {}), "returned dict, expected Result"),
        (single(lambda row, state, timer: Result({"counts": 1})),
         "returned a state with column 'counts'; the job names count, total, last_at, note"),
        (single(lambda row, state, timer: Result({"count": "many"})),
         r"column 'count' is int64, and 'many' \(str\) is none"),
        (single(lambda row, state, timer: Result({"count": 2**70})), "column 'count' is int64, and 11805"),
        (single(lambda row, state, timer: Result({}, [{"a": 1}])),
         "emits rows, and does not declare their columns"),
        (single(lambda row, state, timer: Result({}, [{"b": 1}]), {"a": "string"}),
         "puts out a row with column 'b', and per_key names a"),
        (single(lambda row, state, timer: Result({}, [{"a": 1}]), {"a": "string"}),
         r"puts out a row that cannot be: column 'a' is string, and 1 \(int\) is none"),
        (single(lambda row, state, timer: Result(None, timer=row["at"])), "sets a timer for a key whose state is None"),
        (single(lambda row, state, timer: Result({}, timer="soon")), "column 'timer' is timestamp"),
    ],
)  # fmt: skip
def test_so_is_what_a_function_of_one_key_returns_wrongly(
    function: Callable[[KeyedBatch], KeyedResult], message: str
) -> None:
    with pytest.raises(JobFailed, match=f"^operator track, task track/0, key {{'user': 'b'}}: {message}"):
        made(function).process(batch_of([("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]), 1)


def test_a_timer_without_event_time_is_refused() -> None:
    function = per_key()(lambda key, row, state, timer: Result({}, timer=row["at"]))
    with pytest.raises(JobFailed, match=r"key {'user': 'a'}: a timer is set, and the operator has no event time") as no:
        made(function, keeping=Keeping()).process(batch_of([("a", 1, 1)]), 1)
    assert "time: at" in str(no.value.hint)


def test_a_row_without_a_time_is_said() -> None:
    batch = pa.record_batch([["a"], pa.nulls(1, pa.timestamp("us")), [1]], schema=SCHEMA)
    with pytest.raises(JobFailed, match=r"operator track, record 7 .*no event time in 'at'"):
        made(track).process(batch, 7)


def test_rows_of_other_columns_than_before_are_said() -> None:
    kinds = iter([pa.int64(), pa.float64()])
    function = lambda batch: KeyedResult(rows=pa.record_batch([pa.nulls(1, next(kinds))], names=["x"]))  # noqa: E731
    operator = made(function)
    operator.process(batch_of([("a", 1, 1)]), 1)
    changed = "the columns of its output changed from x int64 to x double"
    with pytest.raises(JobFailed, match=rf"key {{'user': 'c'}}: {changed}"):
        operator.process(batch_of([("c", 1, 1)]), 1)


@pytest.mark.parametrize("seconds", [0, -1])
@pytest.mark.parametrize("form", ["one key", "all keys"])
def test_a_timer_that_sets_itself_to_no_later_time_is_refused(seconds: int, form: str) -> None:
    def again(key: Any, row: Any, state: Any, timer: Any) -> Result:
        return Result({}, timer=row["at"] if row else timer + timedelta(seconds=seconds))

    def all_again(batch: KeyedBatch) -> KeyedResult:
        if batch.rows is not None:
            return KeyedResult(timers=batch.rows["at"])
        return KeyedResult(timers=pc.add(batch.timers, pa.scalar(timedelta(seconds=seconds))))

    operator = made(per_key()(again) if form == "one key" else all_again)
    operator.process(batch_of([("a", 1, 1)]), 1)
    with pytest.raises(JobFailed, match=r"key {'user': 'a'}: its timer of 2026-.* fired, .* no later"):
        list(operator.flush(microseconds(1)))


@pytest.mark.integration
def test_a_timer_that_is_set_for_ever_ends_the_job_at_the_end_and_not_before() -> None:
    calls = [0]

    def every_second(batch: KeyedBatch) -> KeyedResult:
        calls[0] += 1
        before = batch.rows["at"] if batch.rows is not None else batch.timers
        return KeyedResult(timers=pc.add(before, pa.scalar(timedelta(seconds=1))))

    operator = made(every_second)
    operator.process(batch_of([("a", 0, 1)]), 1)
    list(operator.flush(microseconds(100)))
    assert calls == [101]
    with pytest.raises(JobFailed, match=f"key {{'user': 'a'}}: its timer has fired {AT_THE_END:,} times at the end"):
        list(operator.flush(END))


def test_timers_fire_in_the_order_of_time_and_put_out_pieces() -> None:
    operator = made(summed)
    users = [f"u{number}" for number in range(70_000)]
    rows = pa.record_batch(
        [users, [moment(70_000 - number) for number in range(70_000)], [1] * 70_000], schema=SCHEMA
    )
    operator.process(rows, 1)
    pieces: Iterator[pa.RecordBatch] = operator.flush(END)
    sizes, users_out = [], []
    for piece in pieces:
        sizes.append(piece.num_rows)
        users_out += piece["user"].to_pylist()
    assert sizes == [65_536, 70_000 - 65_536]
    assert users_out == users[::-1]
