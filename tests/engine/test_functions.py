"""Built-in functions, and how user functions are loaded and blamed."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.errors import JobFailed, UsageError
from abscli.engine.functions import call, identity, load, words
from formats.ids import TaskId

LINES = st.lists(st.text(st.sampled_from("ab_1 .\t(ß漢é"), max_size=12), max_size=12)
ASCII_LINES = st.lists(st.text(st.sampled_from("ab_1 .\t("), max_size=12), max_size=12)


@given(st.one_of(LINES, ASCII_LINES), st.integers(0, 3))
def test_words_are_the_maximal_runs_of_each_line(lines: list[str], offset: int) -> None:
    batch = pa.record_batch([pa.array(lines, pa.string())], names=["line"]).slice(offset)
    expected = [word for line in lines[offset:] for word in re.findall(r"\w+", line)]
    assert words(batch).column("word").to_pylist() == expected


def test_a_built_in_is_named_without_a_module() -> None:
    assert load("identity", "/nowhere") is identity
    with pytest.raises(UsageError, match="no built-in function 'nope'"):
        load("nope", "/nowhere")


def test_functions_are_found_beside_the_job_file_also_after_another_job_of_that_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "samename.py").write_text(f"def f(batch):\n    return {name!r}\n")
    assert [load("samename:f", str(tmp_path / name))(None) for name in ("one", "two", "one")] == ["one", "two", "one"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def f(:", "SyntaxError"),
        ("import does_not_exist", "does_not_exist"),
        ("x = 1", "has no attribute 'f'"),
        ("f = 3", "expected a function, got int"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_a_usage_error(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "broken_module.py").write_text(body)
    with pytest.raises(UsageError, match=message):
        load("broken_module:f", str(tmp_path))


@given(st.integers(1, 40), st.data())
def test_the_first_failing_row_is_blamed(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), min_size=1))
    batch = pa.record_batch([pa.array(range(rows))], names=["x"])

    def function(part: pa.RecordBatch) -> pa.RecordBatch:
        if bad & set(part.column("x").to_pylist()):
            raise ValueError("no")
        return part

    with pytest.raises(JobFailed, match=rf"task t/0, record {100 + min(bad)} .*'x': {min(bad)}"):
        call(function, batch, pa.RecordBatch, operator="t", task=TaskId("t", 0), first=100)


def test_workers_in_one_process_load_their_functions_at_once(tmp_path: Path) -> None:
    """A module of an earlier job has this name: each of them forgets it, and none what another has begun to load."""
    name = "loaded_at_once"
    roots = [tmp_path / str(number) for number in range(40)]
    for root in roots:
        root.mkdir()
        (root / f"{name}.py").write_text(f"import time\ntime.sleep(0.001)\ndef root(batch): return {str(root)!r}\n")
    with ThreadPoolExecutor(4) as pool:
        for root in roots:
            found = [pool.submit(load, f"{name}:root", str(root)) for _ in range(4)]
            assert [one.result()(pa.record_batch({})) for one in found] == [str(root)] * 4
    del sys.modules[name]


ASKS = {
    "indexes": 'batch["lnie"]',
    "selects": 'batch.select(["lnie"])',
    "filters": 'batch.filter(pc.field("lnie") > 1)',
    "of the schema": 'batch.schema.field("lnie")',
    "drops": 'batch.drop_columns(["lnie"])',
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_column_that_is_not_there_is_said_with_those_that_are(tmp_path: Path, asks: str) -> None:
    name = f"asks_{asks.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(f"import pyarrow.compute as pc\n\ndef f(batch):\n    return {ASKS[asks]}\n")
    function = load(f"{name}:f", str(tmp_path))
    batch = pa.record_batch([pa.array(["a b"]), pa.array([1])], names=["line", "n"])
    with pytest.raises(JobFailed) as failed:
        call(function, batch, pa.RecordBatch, operator="split", task=TaskId("split", 0), first=1)
    text = str(failed.value)
    assert text.endswith(f"({name}.py, line 4, in f)"), text
    assert "pxi" not in text
    assert "\n" not in text
    assert failed.value.hint == (
        "did you mean 'line'? operator split gets the columns line, n: name one of these in its function"
    )


def test_another_table_of_a_function_has_columns_of_its_own() -> None:
    def looks_up(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.table({"other": [1]})["line"]

    batch = pa.record_batch([pa.array(["a b"])], names=["line"])
    with pytest.raises(JobFailed) as failed:
        call(looks_up, batch, pa.RecordBatch, operator="split", task=TaskId("split", 0), first=1)
    assert "gets the columns" not in str(failed.value.hint)
