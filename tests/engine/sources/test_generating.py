"""Rows that expressions make of their numbers: what Python makes of them, the same in every task, each once."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli import Job
from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.job import JobOptions, run_job
from abscli.engine.runnable import all_faults
from abscli.engine.sources.made import generated
from abscli.engine.sources.made.expressions import rows_maker, rows_schema
from abscli.engine.sources.making import make_source
from abscli.jobs.attempts import Attempts, Order
from formats.job.expressions import parse_expression
from formats.job.file import parse_job_bytes
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.user_file.mistakes import BadFile
from tests.engine.sources.test_files import everything
from tests.support.jobs.small import operator

COLUMNS = {
    "id": "row", "user": "text('user-', row % 7)", "price": "random(10000) / 100", "cheap": "price < 50",
    "kind": "choice('a', 'b', 'c')", "share": "uniform()", "at": "at('2026-01-01T00:00:00Z', row // 3)",
    "late": "at('2026-01-01T01:00:00+01:00', row / 4)", "n": 5,
}  # fmt: skip
TYPES = {"id": "int64", "user": "string", "price": "double", "cheap": "bool", "kind": "string", "share": "double",
         "at": "timestamp[us]", "late": "timestamp[us]", "n": "int64"}  # fmt: skip


def source(tasks: int = 1, **options: Any) -> Operator:
    connector = {"type": "generate", "columns": COLUMNS, "rows": 100, **options}
    return operator("rows", Kind.SOURCE, tasks, connector=connector)


def rows(op: Operator, task: int = 0, lines: int | None = None) -> list[dict[str, Any]]:
    made = make_source(op, task, "", None, None)
    return [row for batch in everything(made, lines) for row in batch.to_pylist()]


def test_types_follow_and_values_are_those_of_the_expressions() -> None:
    assert {field.name: str(field.type) for field in rows_schema(COLUMNS, "x")} == TYPES
    made = rows(source())
    assert len(made) == 100
    for number, row in enumerate(made):
        assert (row["id"], row["user"], row["n"]) == (number, f"user-{number % 7}", 5)
        assert 0 <= row["price"] < 100
        assert row["cheap"] == (row["price"] < 50)
        assert (row["at"] - made[0]["at"]).total_seconds() == number // 3
        assert (row["late"] - made[0]["at"]).total_seconds() == number / 4
    assert {row["kind"] for row in made} == {"a", "b", "c"}
    assert len({row["share"] for row in made}) == 100
    assert rows(source(seed=7)) == rows(source(seed=7)) != made


@given(tasks=st.integers(1, 4), batch=st.integers(1, 30), stop=st.integers(1, 9))
def test_a_row_is_the_same_whoever_makes_it_and_whenever(tasks: int, batch: int, stop: int) -> None:
    expected = rows(source())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "ROWS", batch)
        got = []
        for task in range(tasks):
            op = source(tasks)
            made = make_source(op, task, "", None, None)
            while not made.finished:  # after each read another goes on
                made.stop_at(lines=stop)
                read = made.read()
                assert read is not None
                got += read.to_pylist()
                made = make_source(op, task, "", made.positions, None)
    assert sorted(got, key=lambda row: row["id"]) == expected


NUMBERS = st.one_of(st.integers(-50, 50), st.just("row"), st.sampled_from([0.5, 2.25, -3.75]))
EXPRESSIONS = st.recursive(
    NUMBERS.map(lambda one: f"({one})"),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda three: f"({' '.join(three)})"
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.sampled_from(["", "<", ">=", "=="]), EXPRESSIONS)
def test_numbers_are_pythons(left: str, comparison: str, right: str) -> None:
    expression = f"{left} {comparison} {right}" if comparison else left
    try:
        expected = [eval(expression, {"row": row}) for row in range(5)]
        made = rows_maker({"x": expression}, 0, "rows")(pa.array(range(5)).to_numpy()).column(0).to_pylist()
    except (ZeroDivisionError, JobFailed, UsageError):
        with pytest.raises((JobFailed, UsageError), match="division by zero"):
            rows_maker({"x": expression}, 0, "rows")(pa.array(range(5)).to_numpy())
        return
    assert made == pytest.approx(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("rwo", "names 'rwo', which is none of row"),
        ("row +", "is not an expression"),
        ("__import__('os')", "cannot stand in an expression"),
        ("row.real", "cannot stand in an expression"),
        ("[row for row in (1,)]", "cannot stand"),
        ("2 ** 9", "cannot stand"),
        ("random()", "random has 1 arguments, not 0"),
        ("at(row, 1)", "at begins with a time"),
        ("choice(row)", "among numbers or texts"),
        ("(" * 300 + "row" + ")" * 300, "is not an expression"),
        ("row" + " + 1" * 400, "longer than"),
    ],
)
def test_what_is_no_expression_is_a_mistake_in_the_job_file(expression: str, message: str) -> None:
    job = Job("made")
    job.generate({"x": expression}).to_jsonl("out")
    with pytest.raises(BadFile, match=message):
        job.read()


@pytest.mark.parametrize("expression", ["'a' + 1", "row + 'a'", "choice('a', 1)", "random(0.5)", "row < 'a'", "1 // 0"])
def test_what_has_no_type_is_refused_before_it_runs(expression: str) -> None:
    sink = operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"})
    job = Topology("made", (source(columns={"x": expression}), sink), (Edge("rows", "out", Partition.FORWARD),))
    (fault, *_) = all_faults(job, "", from_start=True)
    assert (fault.operator, fault.keys) == ("rows", ("source", "columns"))
    assert f"invalid expression {expression!r} for column 'x': " in fault.message


def test_a_row_without_a_value_ends_the_job() -> None:
    with pytest.raises(JobFailed, match="column 'x' has no value in one of rows 0 to 99: division by zero"):
        rows(source(columns={"x": "1 // (row - 50)"}))
    with pytest.raises(JobFailed, match="overflow"):
        rows(source(columns={"x": "row * 9000000000000000000"}))


def test_python_says_what_its_yaml_says() -> None:
    job = Job("made")
    job.generate(COLUMNS, rows=10, rate=5, seed=3).to_jsonl("out")
    assert job.topology.operators[0].connector == {
        "type": "generate", "columns": COLUMNS, "rows": 10, "rate": 5, "seed": 3,
    }  # fmt: skip
    assert parse_job_bytes(job.yaml().encode(), "job.yaml") == job.read()


def test_what_is_read_again_is_so_many_rows_whatever_the_rate() -> None:
    op = source(rate=1)
    again = make_source(op, 0, "", None, None).read_again(0, 40)
    assert again is not None
    assert again.to_pylist() == rows(source())[:40]


@pytest.mark.minutes
def test_every_row_is_shown_once_through_a_real_kill_after_every_epoch(tmp_path: Path) -> None:
    sink = operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"})
    job = Topology("made", (source(2), sink), (Edge("rows", "out", Partition.FORWARD),))
    epoch, kills = 0, 0
    with Attempts() as attempts:
        while True:
            after = 1 if kills < 5 else None
            order = Order(job, str(tmp_path), str(tmp_path / "store"), str(tmp_path / "shown"), epoch, 9, after)
            answer = attempts.run(order, 120)
            assert answer.failure is None, answer.failure
            if not answer.killed:
                break
            epoch, kills = answer.epoch, kills + 1
    assert kills >= 4
    shown = "".join(path.read_text() for path in (tmp_path / "shown" / "out").glob("part-*"))
    once = tmp_path / "once"
    options = JobOptions(str(once), "job.yaml", engine="inline", workers=1, sinks_in=str(once / "shown"))
    once.mkdir()
    run_job(job, str(once / "store"), options)
    expected = "".join(path.read_text() for path in (once / "shown" / "out").glob("part-*"))
    assert sorted(shown.splitlines()) == sorted(expected.splitlines())
    assert len(shown.splitlines()) == 100


class Slow:
    """What the collector takes away lets another thread go on."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def hasty_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(5)
    yield
    gc.set_threshold(*before)


def test_tasks_of_one_process_understand_their_columns_at_the_same_time(hasty_collector: None) -> None:
    def understand(_: int) -> None:
        for _ in range(500):
            Slow()
            parse_expression("row * 37 % 1000 + (row // 7) * 3", ["row"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(understand, range(4)))
