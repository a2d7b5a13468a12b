"""A sink on stdout: every row at least once, and once by its id; in order, after the manifest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from abscli.engine.errors import EngineStopped, UsageError
from abscli.report.findings import Code
from tests.support.jobs.lines import ROOT, Gate, Lines, killed, write_lines

JOB = """
version: 1
job: printed
operators:
  lines: {source: {type: text, path: in/*.txt}}
  out: {from: lines, sink: {type: stdout}}
"""


@pytest.fixture
def lines(tmp_path: Path, gate: Gate) -> Lines:
    write_lines(tmp_path, 5)
    return Lines(tmp_path, gate, "stdout", "stdout")


def by_id(lines: Lines) -> Counter[str]:
    """The lines of those rows that a reader keeps who drops what comes again."""
    return Counter({row["id"]: row["line"] for row in lines.printed()}.values())


@pytest.mark.cell("A", "at least once", "stdout")
@pytest.mark.sample(3)
@pytest.mark.parametrize("where", ["staged", "manifest", "reveal", "printed", "marked"])
def test_killed_at_any_step_a_row_is_there_once_by_its_id(lines: Lines, where: str) -> None:
    killed(lines, where, 3)
    lines.go_on()
    assert set(by_id(lines).values()) == {1}
    assert by_id(lines).keys() == lines.shown().keys()
    wrong = lines.wrong()
    assert set(wrong.values()) == ({1} if where == "printed" else set())


def test_nothing_is_printed_before_the_manifest(lines: Lines) -> None:
    killed(lines, "reveal", 1)
    assert lines.complete()
    assert lines.printed() == []
    report = lines.validated()
    assert {finding.code for finding in report.findings} >= {Code.SINK_PART_PENDING}
    lines.resume()
    assert lines.wrong() == {}
    report = lines.validated()
    assert not {finding.code for finding in report.findings} & {Code.SINK_PART_PENDING, Code.UNREFERENCED_FILE}


@pytest.mark.cell("J", "refused", "stdout")
def test_going_back_behind_what_is_printed_is_refused_and_then_a_choice(lines: Lines) -> None:
    lines.run(epochs=3)
    first = lines.complete()[0]
    with pytest.raises(UsageError, match="stdout has committed rows up to epoch"):
        lines.run(from_epoch=first)
    lines.run(from_epoch=first, epochs=1, take_ownership=True)
    lines.resume()
    assert set(lines.wrong().values()) == {1}


def closed(data: bytes) -> None:
    """Fail as a write to a pipe whose reader has left."""
    raise BrokenPipeError(32, "Broken pipe")


def test_an_attempt_that_took_ownership_and_printed_nothing_is_resumed_without_the_option(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines.run(epochs=3)
    first = lines.complete()[0]
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "note_printed", lambda self, data: closed(data))
        with pytest.raises(EngineStopped, match="cannot be written to stdout"):
            lines.run(from_epoch=first, take_ownership=True)
    lines.resume()
    assert set(lines.wrong().values()) == {1}  # printed by both attempts: the rows after the first epoch


def test_a_reader_that_has_left_stops_the_job_and_the_rows_wait(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "note_printed", lambda self, data: closed(data))
    with pytest.raises(EngineStopped, match="cannot be written to stdout: Broken pipe"):
        lines.run()
    monkeypatch.undo()
    lines.gate.install(monkeypatch.setattr)
    lines.resume()
    assert lines.wrong() == {}


def test_rows_go_to_stdout_and_what_is_said_to_stderr(tmp_path: Path) -> None:
    write_lines(tmp_path, 2)
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = Counter(json.loads(line)["line"] for line in done.stdout.splitlines())
    assert rows == Counter(line for file in (tmp_path / "in").iterdir() for line in file.read_text().splitlines())
    assert "printed: finished at epoch" in done.stderr
    assert "output at-least-once" in done.stderr


def test_a_pipe_that_is_closed_is_exit_code_6(tmp_path: Path) -> None:
    write_lines(tmp_path, 2)
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "abscli", "run", "job.yaml", "--store", "store", "--engine", "inline"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        message = process.stderr.read()
    assert process.returncode == 6, message
    assert "cannot be written to stdout" in message


def test_rows_that_meet_a_closed_stdout_wait_for_the_next_run(tmp_path: Path) -> None:
    """As under a service manager that starts `abs run job.yaml >&-`."""
    write_lines(tmp_path, 2)
    (tmp_path / "job.yaml").write_text(JOB)
    command = f"{sys.executable} -m abscli run job.yaml --store store --engine inline"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    closed = subprocess.run(
        ["sh", "-c", f"{command} >&-"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert closed.returncode == 6, closed.stderr
    assert "cannot be written to stdout: Bad file descriptor" in closed.stderr
    resumed = subprocess.run(
        [*command.split(), "--resume"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    rows = Counter(json.loads(line)["line"] for line in resumed.stdout.splitlines())
    assert rows == Counter(line for file in (tmp_path / "in").iterdir() for line in file.read_text().splitlines())


def test_a_run_of_the_harness_that_a_signal_ended_is_not_taken_for_a_whole_one(lines: Lines) -> None:
    with pytest.raises(AssertionError, match="got signal 15"):
        lines.run(at=lambda epochs: os.kill(os.getpid(), signal.SIGTERM) if epochs == 3 else None)
    assert set(lines.wrong().values()) == {-1}
    lines.resume()
    assert lines.wrong() == {}
