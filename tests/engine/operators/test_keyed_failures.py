"""A keyed `process` that goes on without the records and timers on which its function raises."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli import Job, KeyedBatch, KeyedResult, Result, dead_letter, per_key, try_job
from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from abscli.engine.job import run_job
from abscli.engine.sources.files import line_files
from abscli.engine.state.bounded_state import BoundedState
from abscli.engine.state.contract import State
from abscli.engine.state.memory import StateMemory
from abscli.jobs.streams import Marks
from formats.ids import TaskId
from formats.job.file import parse_topology
from formats.job.model import DeadLetter, Keeping, Ttl
from formats.native.state.tables import DUE, StateKey
from formats.watermark import END
from tests.support.jobs.inline import STORE, stop_after
from tests.support.jobs.keyed import (
    Model,
    Run,
    Steps,
    batch_of,
    made,
    microseconds,
    moment,
    plain_track,
    play,
    steps,
    text,
)
from tests.support.jobs.small import inline
from tests.tiers import examples

POISON = 7


class Letters:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    @property
    def failed(self) -> Counter[tuple[Any, datetime, int | None]]:
        """As `Model` has them."""
        records = [json.loads(row["record"]) for row in self.rows]
        return Counter(
            (record["user"], datetime.fromisoformat(record.get("at") or record[DUE]), record.get("amount"))
            for record in records
        )


def fails_now_and_then(key: Any, row: Any, state: Any, timer: Any) -> Result:
    """For rows of an amount, and for timers of those who had two rows."""
    if row is not None and row["amount"] == POISON:
        raise ValueError("poison")
    if row is None and state["count"] == 2:
        raise ValueError("two are unlucky")
    return plain_track(key, row, state, timer)


failing = per_key({"user": "string", "what": "string", "count": "int64", "at": "timestamp"})(fails_now_and_then)


@settings(max_examples=examples(150))
@given(steps(["a", "b", None, "d"], [1, 5, POISON, 13]))
def test_what_raises_is_left_out_alone_whatever_the_batches_barriers_restarts_and_memory(steps: Steps) -> None:
    letters = [Letters() for _ in range(3)]
    runs = [
        Run(limit, failing, Failures(TaskId("track", 0), kept))
        for limit, kept in zip((None, 1, 20_000), letters, strict=True)
    ]
    model = Model(fails_now_and_then)

    def compare(run: Run) -> None:
        assert run.rows().keys() == model.states.keys()

    play(steps, model, runs, compare)
    for run, kept in zip(runs, letters, strict=True):
        assert text(run.out) == text(model.out)
        assert kept.failed == Counter(model.failed)
        assert run.failures is not None
        assert run.failures.count == len(model.failed)


def summed(batch: KeyedBatch) -> KeyedResult:
    """The sum of each key, all at once; none can be made of an odd amount."""
    assert batch.rows is not None
    amounts = batch.rows["amount"]
    if pc.any(pc.equal(pc.bit_wise_and(amounts, 1), 1)).as_py():
        raise ValueError("an odd amount")
    sums = pa.table({"g": batch.groups, "v": amounts}).group_by("g").aggregate([("v", "sum")]).sort_by("g")
    total = pc.add(pc.fill_null(batch.state["total"], 0), sums["v_sum"].combine_chunks())
    return KeyedResult(state=pa.record_batch([total], names=["total"]))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 5)), max_size=40), st.integers(1, 9)
)
def test_a_function_of_all_keys_gets_the_others(rows: list[tuple[str | None, int, int]], size: int) -> None:
    letters = Letters()
    failures = Failures(TaskId("track", 0), letters)
    operator = made(summed, keeping=Keeping((("total", "int64"),)), failures=failures)
    assert operator.state is not None
    for start in range(0, len(rows), size):
        with failures.during(1):
            operator.process(batch_of(rows[start : start + size]), start + 1)
    assert Counter(row["number"] for row in letters.rows) == Counter(
        number for number, (_, _, amount) in enumerate(rows, 1) if amount % 2
    )
    sums = Counter[str | None]()
    for user, _, amount in rows:
        if not amount % 2:
            sums[user] += amount
    copy = operator.state.copy(1, None)
    tables = list(copy.tables()) if copy is not None else []
    kept = {row["user"]: row["total"] for table in tables for row in table.to_pylist() if row[DUE] is not None}
    assert kept == {user: sums[user] for user in {user for user, _, amount in rows if not amount % 2}}


def test_a_record_without_a_time_is_a_dead_letter() -> None:
    letters = Letters()
    failures = Failures(TaskId("track", 0), letters)
    operator = made(failing, failures=failures)
    rows = pa.record_batch(
        {"user": ["a", "a"], "at": pa.array([None, moment(3)], pa.timestamp("us")), "amount": pa.array([1, 1])}
    )
    with failures.during(4, "rows/0->track/0"):
        operator.process(rows, 11)
    (letter,) = letters.rows
    assert (letter["number"], letter["error"], letter["epoch"]) == (11, "NoTime", 4)
    assert operator.state is not None
    assert operator.state.rows == 1


def test_a_record_that_fails_does_not_keep_its_key_alive() -> None:
    failures = Failures(TaskId("track", 0), None)
    ttl, keeping = Ttl("at", 10_000_000), Keeping((("total", "int64"),))
    operator = made(summed, keeping=keeping, ttl=ttl, failures=failures)
    operator.process(batch_of([("a", 1, 2), ("b", 1, 2)]), 1)
    operator.process(batch_of([("a", 9, 3), ("b", 9, 2)]), 3)
    list(operator.flush(microseconds(15)))
    assert failures.count == 1
    assert operator.state is not None
    (table,) = operator.state.changed_now(lambda state, rows: None)
    assert {row["user"] for row in table.to_pylist() if row["total"] is not None} == {"b"}


@per_key({"user": "string", "n": "int64"})
def counted(key: Any, row: Any, state: Any, timer: Any) -> Result:
    if row["amount"] == POISON:
        raise ValueError("poison")
    n = 1 if state is None else state["n"] + 1
    return Result({"n": n}, [{**key, "n": n}])


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([1, 1, POISON])), max_size=25),
    st.lists(st.integers(1, 9), max_size=9),
    st.sampled_from([None, 1]),
)
def test_a_key_is_forgotten_at_the_same_row_whenever_batches_end(
    rows: list[tuple[str | None, int, int]], sizes: list[int], limit: int | None
) -> None:
    kept: dict[str | None, tuple[int, int]] = {}
    wanted = []
    for user, second, amount in rows:
        if amount == POISON:
            continue
        if user in kept and kept[user][1] + 10 <= second:
            del kept[user]
        n, latest = kept.get(user, (0, second))
        kept[user] = n + 1, max(latest, second)
        wanted.append({"user": user, "n": n + 1})
    state: State | None = None
    if limit is not None:
        state = BoundedState(StateKey.of(("user",)), 32, StateMemory(limit), 3, expires=True)
    failures = Failures(TaskId("track", 0), None)
    operator = made(counted, state, Keeping((("n", "int64"),)), Ttl("at", 10_000_000), failures)
    out, first = [], 0
    for size in [*sizes, len(rows)]:
        if rows[first : first + size]:
            shown = operator.process(batch_of(rows[first : first + size]), first + 1)
            out += shown.to_pylist() if shown is not None else []
        first += size
        list(operator.flush(0))
    for user in "ab":  # of one key they come in order
        assert [row for row in out if row["user"] == user] == [row for row in wanted if row["user"] == user]
    assert failures.count == sum(amount == POISON for _, _, amount in rows)
    assert operator.state is not None
    assert operator.state.rows == len(kept)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: None, "returned NoneType, expected KeyedResult"),
        (per_key()(lambda key, row, state, timer: None), "returned NoneType, expected Result"),  # type: ignore[arg-type, return-value]
        (per_key()(lambda key, row, state, timer: Result({"other": 1})), "state with column 'other'"),
        (per_key()(lambda key, row, state, timer: Result({}, timer=timer or row["at"])), "which is no later"),
    ],
    ids=["no-result", "no-result-of-one", "other-column", "timer"],
)
def test_a_function_that_breaks_its_contract_ends_the_run_all_the_same(function: Any, message: str) -> None:
    run = Run(None, function, Failures(TaskId("track", 0), None))


    def work() -> None:
        run.take([("a", 1, 1), ("b", 2, 2)])
        run.barrier(END)

    with pytest.raises(JobFailed, match=message):
        work()


def test_a_value_that_its_column_cannot_hold_is_of_the_record() -> None:
    letters = Letters()

    @per_key()
    def grown(key: Any, row: Any, state: Any, timer: Any) -> Result:
        return Result({"total": (state or {"total": 1})["total"] * row["amount"]})

    failures = Failures(TaskId("track", 0), letters)
    operator = made(grown, keeping=Keeping((("total", "int64"),)), failures=failures)
    with failures.during(1):
        operator.process(batch_of([("a", 1, 2**40), ("b", 1, 3), ("a", 2, 2**30), ("a", 3, 2)]), 1)
    assert [(row["number"], row["error"]) for row in letters.rows] == [(3, "BadValue")]


def test_a_timer_that_fails_inside_of_a_call_is_told_as_ever_where_it_ends_the_run() -> None:
    run = Run(None, failing)
    run.take([("a", 1, 1), ("a", 2, 1)])
    with pytest.raises(JobFailed, match=r"key .*'a'.*: ValueError: two are unlucky \(test_keyed_failures.py, line \d+"):
        run.take([("a", 60, 1)])


@per_key()
def plain(key: Any, row: Any, state: Any, timer: Any) -> Result:
    return Result({"n": 1})


# -- in a job ----------------------------------------------------------------------------------------------------

FUNCTIONS = """
from datetime import timedelta
from abscli import Result, per_key

@per_key({"k": "string", "n": "int64"})
def counted(key, row, state, timer):
    if row is None:
        if state["n"] % 2:
            raise ValueError("an odd number of rows")
        return Result(None, [{**key, "n": state["n"]}])
    if row["v"] == 7:
        raise ValueError("poison")
    n = state["n"] + 1 if state else 1
    return Result({"n": n}, timer=row["at"] + timedelta(minutes=9))
"""
JOB = """version: 1
job: unlucky
operators:
  rows:
    source:
      type: jsonl
      path: rows/*.jsonl
      schema: {k: string, at: timestamp, v: int64}
      event_time: {column: at}
  counted:
    from: rows
    process: {key: [k], function: "counting:counted", state: {n: int64}, time: at}
    on_error: {dead_letter: dead}
  out: {from: counted, sink: {type: jsonl, path: out}}
"""
ROWS = [
    {"k": f"k{n // 5}", "at": f"2026-01-01T{n // 60:02}:{n % 60:02}:00", "v": 7 if n % 11 == 0 else 1}
    for n in range(300)
]
OF_KEY = {f"k{k}": sum(row["v"] == 1 for row in ROWS if row["k"] == f"k{k}") for k in range(60)}


def write(folder: Path) -> Any:
    (folder / "counting.py").write_text(FUNCTIONS)
    (folder / "job.yaml").write_text(JOB)
    (folder / "rows").mkdir()
    (folder / "rows" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return parse_topology(folder / "job.yaml")


def shown(folder: Path) -> list[dict[str, Any]]:
    lines = [line for part in sorted(folder.glob("part-*.jsonl")) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def check(out: list[dict[str, Any]], dead: list[dict[str, Any]]) -> None:
    assert {row["k"]: row["n"] for row in out} == {k: n for k, n in OF_KEY.items() if n % 2 == 0}
    of_rows = [row for row in dead if row["number"] is not None]
    assert Counter(json.loads(row["record"])["at"] for row in of_rows) == Counter(
        row["at"] for row in ROWS if row["v"] == 7
    )
    timers = [json.loads(row["record"]) for row in dead if row["number"] is None]
    assert Counter(row["k"] for row in timers) == Counter(k for k, n in OF_KEY.items() if n % 2)
    assert all(row.keys() == {"k", DUE} for row in timers)


def test_rows_and_timers_are_dead_letters_once_however_the_job_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 256)
    topology = write(tmp_path)
    callbacks, _ = stop_after(3)
    first = run_job(topology, str(tmp_path / STORE), inline(tmp_path, interval=0.005, pace=20), **callbacks)
    second = run_job(topology, str(tmp_path / STORE), inline(tmp_path, from_epoch=first.epoch))
    check(shown(tmp_path / "out"), shown(tmp_path / "dead"))
    assert first.skipped["counted"] + second.skipped["counted"] == len(shown(tmp_path / "dead"))
    assert 0 < first.skipped["counted"] < second.skipped["counted"] + first.skipped["counted"]


def test_a_trial_kills_the_job_and_compares_its_dead_letters(tmp_path: Path) -> None:
    write(tmp_path)
    trial = try_job(tmp_path / "job.yaml", {"rows": ROWS[:100]}, kills=3)
    of_key = Counter(row["k"] for row in ROWS[:100] if row["v"] == 1)
    assert {row["k"]: row["n"] for row in trial["out"]} == {k: n for k, n in of_key.items() if n % 2 == 0}
    assert len(trial["counted"]) == sum(row["v"] == 7 for row in ROWS[:100]) + sum(n % 2 for n in of_key.values())


def test_python_says_it_as_well() -> None:
    job = Job("unlucky")
    schema = {"user": "string", "at": "timestamp", "amount": "int64"}
    rows = job.jsonl("rows/*.jsonl", schema=schema, event_time="at")
    marks: Marks = {"id": "counted", "on_error": dead_letter("dead")}
    rows.group_by("user").process(plain, state={"n": "int64"}, time="at", **marks).to_jsonl("out")
    assert job.topology.operator("counted").on_error == DeadLetter("dead")
