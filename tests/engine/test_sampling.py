"""`run --dry-run --sample`: rows that each operator makes of the first records, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abscli.engine import sampling
from abscli.engine.errors import JobFailed
from abscli.engine.sampling import Sampled, sample_of
from abscli.text.cells import cells
from abscli.text.sample import sample_text
from formats.job.file import parse_topology
from formats.job.model import Topology
from tests.engine.test_on_error import JOB, write
from tests.support.commands import answer_of, run_command
from tests.support.jobs.small import countdown, reach, word_count, write_countdown, write_graph, write_words


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def by_id(topology: Topology, folder: Path, most: int = 5) -> dict[str, Sampled]:
    return {one.operator: one for one in sample_of(topology, str(folder), most).operators}


def test_each_operator_shows_its_first_rows_and_nothing_is_written(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    before = names(tmp_path)
    shown = by_id(word_count(parallelism=2), tmp_path, 3)
    assert names(tmp_path) == before
    assert [sum(batch.num_rows for batch in one.batches) for one in shown.values()] == [3] * len(shown)
    words = [row["word"] for batch in shown["words"].batches for row in batch.to_pylist()]
    assert set(words) <= set(counts)


def test_all_of_a_small_input_comes_out_as_in_a_run(tmp_path: Path) -> None:
    counts = write_words(tmp_path, lines=30)
    sample = sample_of(word_count(), str(tmp_path), 10_000)
    assert sample.ended
    rows = [row for batch in sample.operators[-1].batches for row in batch.to_pylist()]
    assert {row["word"]: row["n"] for row in rows} == counts


def test_a_loop_comes_to_its_rest(tmp_path: Path) -> None:
    pairs = write_graph(tmp_path)
    sample = sample_of(reach(), str(tmp_path), 100_000)
    assert sample.ended
    rows = [row for batch in sample.operators[-1].batches for row in batch.to_pylist()]
    assert {(row["start"], row["node"]) for row in rows} == pairs


def test_a_loop_that_goes_on_for_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS", 50)
    write_countdown(tmp_path)
    assert not sample_of(countdown(), str(tmp_path), 100_000).ended


def test_no_more_is_read_than_is_needed_and_never_more_than_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = write(tmp_path, rows=3_000)
    assert sample_of(topology, str(tmp_path), 5).records <= sampling.ROUND
    monkeypatch.setattr(sampling, "MOST_READ", 700)
    sample = sample_of(topology, str(tmp_path), 100_000)
    assert 600 <= sample.records <= 700
    assert not sample.ended


def test_records_that_are_left_out_are_shown(tmp_path: Path) -> None:
    shown = by_id(write(tmp_path, rows=50), tmp_path)
    assert (shown["rows"].skipped, shown["halve"].skipped) == (4, 7)
    assert shown["halve"].failure is not None
    assert shown["halve"].failure["record"] == '{"id":7,"v":0}'
    assert not (tmp_path / "dead").exists()


@pytest.mark.parametrize(
    ("files", "told"),
    [(1, "event time has come to 2026-01-01T02:46:30.000Z in what was read: what it waits for is later"),
     (2, "no event time yet: it begins when every file of a source has")],
)  # fmt: skip
def test_a_window_without_a_row_says_how_far_event_time_has_come(
    tmp_path: Path, files: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MOST_READ", 1000)
    for number in range(files):
        times = (f"2026-01-01T{row // 360:02}:{row // 6 % 60:02}:{row % 6 * 10:02}" for row in range(2000))
        (tmp_path / f"{number}.csv").write_text("at\n" + "".join(f"{time}\n" for time in times))
    (tmp_path / "job.yaml").write_text(
        "version: 1\njob: windows\noperators:\n"
        "  rows: {source: {type: csv, path: '*.csv', schema: {at: timestamp}, event_time: {column: at}}}\n"
        "  busy: {from: rows, window: {time: at, tumbling: 24h}, reduce: {key: [at], n: {count: '*'}}}\n"
        "  out: {from: busy, sink: {type: jsonl, path: out}}\n"
    )
    text = sample_text(sample_of(parse_topology(tmp_path / "job.yaml"), str(tmp_path), 5), width=100)
    assert f"busy (reduce): emitted 0 rows\n    {told}" in text


def test_an_error_is_shown_where_it_came_and_ends_the_command_as_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = write(tmp_path, on_error="fail")
    sample = sample_of(topology, str(tmp_path), 5)
    assert isinstance(sample.error, JobFailed)
    assert sample.operators[0].emitted
    code, out, err = run_command("run", capsys, tmp_path / "job.yaml", "--dry-run", "--sample", 2)
    assert code == 7
    assert "halve (map): emitted 0 rows\n  error: operator halve, task halve/0, record 7" in out
    assert "record 7" in err
    ended = answer_of("run", capsys, tmp_path / "job.yaml", "--dry-run", "--sample", 2, code=7)
    assert [one["error"] is None for one in ended["sample"]["operators"]] == [True, False, True]


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_the_width(
    tmp_path: Path, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {f"column_{i}": f"{i} " * 30 for i in range(12)}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(f"{json.dumps(row)}\n" * 3)
    (tmp_path / "job.yaml").write_text(JOB.replace("halving:halve", "identity").replace(
        ", schema: {id: int64, v: int64}", "").replace("ON_ERROR", "skip"))  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run_command("run", capsys, tmp_path / "job.yaml", "--dry-run", "--sample", 2)
    assert code == 0
    assert max(map(cells, out.splitlines()[:-1])) <= width
    shown = result_of_sample(tmp_path / "job.yaml", capsys)
    assert [one["rows"] for one in shown["operators"]] == [[row, row]] * 3


def result_of_sample(job: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    sample: dict[str, Any] = answer_of("run", capsys, job, "--dry-run", "--sample", 2)["sample"]
    return sample


def test_python_and_a_store_and_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    job = parse_topology(tmp_path / "job.yaml")
    (tmp_path / "job.py").write_text(
        "from abscli import Job, dead_letter\nfrom halving import halve\njob = Job('poison')\n"
        "rows = job.jsonl('in/*.jsonl', schema={'id': 'int64', 'v': 'int64'}, id='rows', "
        "on_error=dead_letter('unread'))\n"
        "rows.map(halve, on_error=dead_letter('dead')).to_jsonl('out', id='out')\n"
    )
    alone = answer_of("run", capsys, tmp_path / "job.py", "--dry-run", "--sample", 4)
    assert (alone["store"], alone["sample"]["operators"][1]["id"]) == (None, job.operators[1].id)
    beside = answer_of("run", capsys, tmp_path / "job.yaml", "--store", tmp_path / "s", "--dry-run", "--sample", 4)
    assert beside["store"] == str(tmp_path / "s")
    assert beside["sample"] == alone["sample"]
    assert not (tmp_path / "s").exists()
    for options in ((), ("--sample", 3), ("--dry-run", "--resume")):
        code, _, err = run_command("run", capsys, tmp_path / "job.yaml", *options)
        assert (code, "--s" in err) == (2, True)
