"""When keys are due is shown as a time, and a join, window or ttl that has other times is told when a job goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.commands import result_of, run_command

JOB = """version: 1
job: timed
operators:
  rows:
    source:
      type: jsonl
      path: in/*.jsonl
      schema: {k: string, at: timestamp}
      event_time: {column: at}
  others: {source: {type: jsonl, path: in/*.jsonl, schema: {k: string, at: timestamp}, event_time: {column: at}}}
  kept: {from: rows, distinct: [k], ttl: {time: at, after: AFTER}}
  sums: {from: rows, reduce: {key: [k], n: {count: "*"}}, window: {time: at, sliding: 10m, every: EVERY}}
  pairs: {from: [rows, others], join: {key: [k], left: rows, time: at, within: {before: 0s, after: WITHIN}}}
  out: {from: kept, sink: {type: jsonl, path: out}}
"""


def write(folder: Path, after: str = "1h", every: str = "5m", within: str = "10m") -> None:
    text = JOB.replace("AFTER", after).replace("EVERY", every).replace("WITHIN", within)
    (folder / "job.yaml").write_text(text)


@pytest.fixture
def job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """One that was stopped at its first epoch, before its end made all keys due."""
    write(tmp_path)
    (tmp_path / "in").mkdir()
    rows = [{"k": k, "at": f"2026-01-01T00:0{minute}:00"} for minute, k in enumerate("abcdefghij")]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    from abscli.engine.job import run_job
    from formats.job.file import parse_topology
    from tests.support.jobs.inline import stop_after
    from tests.support.jobs.small import inline

    if not more:
        callbacks, _ = stop_after(1)
        topology = parse_topology(folder / "job.yaml")
        run_job(topology, str(folder / "store"), inline(folder, interval=0.005, pace=2), **callbacks)  # type: ignore[arg-type]
        return ""
    code, _, err = run_command(
        "run", capsys, folder / "job.yaml", "--store", folder / "store", "--engine", "inline", *more
    )
    assert code == 0, err
    return err


def state(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    return result_of("state", capsys, folder / "store", "kept", *more)


def test_when_a_key_is_due_is_a_time(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(job, capsys)
    answer = state(job, capsys)
    assert {"name": "__due", "type": "timestamp[us, tz=UTC]"} in answer["columns"]
    times = {row["k"]: row["__due"] for row in answer["rows"]}
    assert times["a"] == "2026-01-01T01:00:00+00:00"
    code, out, _ = run_command("state", capsys, job / "store", "kept")
    assert code == 0
    assert "2026-01-01T01:00:00" in out
    state(job, capsys, "--out", str(job / "kept.parquet"))
    (first,) = (row for row in pq.read_table(job / "kept.parquet").to_pylist() if row["k"] == "a")
    assert first["__due"].isoformat() == times["a"]


def test_other_times_are_told_when_a_job_goes_on(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(job, capsys)
    write(job, after="2h", every="2m", within="1h30m")
    dry = run(job, capsys, "--resume", "--dry-run")
    err = run(job, capsys, "--resume")
    for text in (re.sub(r"epoch \d+", "epoch N", shown) for shown in (dry, err)):
        old = "existing state was computed with the old value"
        assert f"operator kept: ttl was 1h in epoch N and is 2h now: {old}" in text
        window = "was sliding 10m every 5m in epoch N and is sliding 10m every 2m now"
        assert f"operator sums: window {window}" in text
        within = "was 0s before to 10m after in epoch N and is 0s before to 1h30m after now"
        assert f"operator pairs: within {within}" in text


def test_the_same_times_are_not_told(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(job, capsys)
    assert " was " not in run(job, capsys, "--resume")
