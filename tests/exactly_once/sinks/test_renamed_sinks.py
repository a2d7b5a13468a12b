"""A sink that goes on under another id (`moved`) has one target, of whatever kind: each row once."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.errors import UsageError
from abscli.engine.sinks.outputs import Outputs
from abscli.report.findings import Code
from formats.job.changes import Changes, Move
from formats.native import layout
from tests.support.jobs.kinds import Kinds, cases
from tests.support.jobs.lines import (
    Lines,
    in_a_process,
    killed,
    wait_until_stopped,
    write_lines,
)

RENAMED = Changes((Move("out", "shown"),))
KILLS = {"jsonl": "reveal", "bucket": "reveal", "delta": "committed", "iceberg": "committed", "stdout": "printed",
         "kafka": "finished", "postgres": "commit", "upsert": "shown"}  # fmt: skip
"""Where a sink's rows are in its target, or about to be, and the job does not know."""


@pytest.fixture(params=cases(KILLS))
def lines(tmp_path: Path, kinds: Kinds, request: pytest.FixtureRequest) -> Lines:
    write_lines(tmp_path, 6)
    return kinds.lines(request.param, tmp_path)


@pytest.mark.cell("G", "exact")
def test_what_was_written_under_the_old_id_is_not_written_again(lines: Lines) -> None:
    lines.run(epochs=3)
    renamed = replace(lines, id="shown")
    renamed.resume(epochs=1, changes=RENAMED)
    renamed.resume(changes=RENAMED)
    assert lines.wrong() == {}
    report = lines.validated()
    every = [*report.findings, *(finding for epoch in report.epochs for finding in epoch.findings)]
    assert [finding for finding in every if finding.code not in (Code.MISSING_ACK, Code.UNREFERENCED_FILE)] == []


@pytest.mark.sample(2)
def test_what_a_kill_left_to_be_written_is_written_once(lines: Lines) -> None:
    killed(lines, KILLS[lines.type], 2)
    renamed = replace(lines, id="shown")
    renamed.resume(changes=RENAMED)
    if lines.type != "stdout":
        assert lines.wrong() == {}
        return
    rows = {row["id"]: row["line"] for row in lines.printed()}  # what was printed twice has one id
    assert len(set(rows.values())) == len(rows)


@pytest.mark.parametrize("lines", ["delta", pytest.param("iceberg", marks=pytest.mark.integration)], indirect=True)
def test_rows_that_the_driver_with_the_old_id_commits_late_are_in_the_table_once(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old driver is stopped right before its commit and loses the lock of the store. It continues after the new
    driver has examined the table, before the new driver claims it."""
    stale = in_a_process(lines, "writing", 2, signal.SIGSTOP)
    plain, errors = Outputs.take, list[str]()

    def take(*arguments: Any) -> None:
        monkeypatch.setattr(Outputs, "take", plain)
        before = lines.shown().total()
        stale.send_signal(signal.SIGCONT)
        errors.append(stale.communicate(timeout=300)[1])
        assert lines.shown().total() > before
        plain(*arguments)

    try:
        wait_until_stopped(stale)
        lock = lines.folder / "a" / layout.LOCK
        lock.rename(lock.with_name("lock-of-old"))
        monkeypatch.setattr(Outputs, "take", take)
        replace(lines, id="shown").resume(changes=RENAMED)
    finally:
        stale.kill()
        stale.wait()
    assert "took the store over" in errors[0]
    assert lines.wrong() == {}


def test_going_back_behind_what_the_old_id_has_written_is_refused(lines: Lines) -> None:
    if lines.type == "jsonl":
        pytest.skip("parts of files are set aside")
    lines.run(epochs=4)
    renamed = replace(lines, id="shown")
    with pytest.raises(UsageError, match="not part of the history being resumed"):
        renamed.run(from_epoch=lines.complete()[0], changes=RENAMED)
