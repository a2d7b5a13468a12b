"""A sink that goes on under another id (`moved`) has one target, of whatever kind: each row once."""

from __future__ import annotations

import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abscli.engine.errors import UsageError
from abscli.engine.sinks.delivered.deliveries import Deliveries
from abscli.report.findings import Code
from formats.job.changes import Changes, Move
from formats.native import layout
from tests.support.jobs.lines import (
    Gate,
    Lines,
    in_a_process,
    killed,
    make_table,
    wait_until_stopped,
    write_lines,
)
from tests.support.kafka import Broker
from tests.support.postgres import Postgres

RENAMED = Changes((Move("out", "shown"),))
KILLS = {"jsonl": "reveal", "delta": "committed", "iceberg": "committed", "stdout": "printed", "kafka": "finished",
         "postgres": "commit", "upsert": "shown"}  # fmt: skip
"""Where a sink's rows are in its target, or about to be, and the job does not know."""
SERVED = ("kafka", "postgres", "upsert")
"""Sinks that need a server."""


@pytest.fixture(
    params=[pytest.param(type, marks=pytest.mark.integration) if type in SERVED else type for type in KILLS]
)
def lines(
    tmp_path: Path, gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Lines:
    type, out = request.param, "out"
    write_lines(tmp_path, 6)
    if type in ("postgres", "upsert"):
        server: Postgres = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("LINES_DATABASE", server.url)
        out = f"renamed_{type}"
        make_table(server.url, out, type)
    if type == "kafka":
        broker: Broker = request.getfixturevalue("broker")
        monkeypatch.setenv("LINES_BROKER", broker.address)
        out = f"renamed-{uuid.uuid4()}"
        broker.make(out)
    return Lines(tmp_path, gate, out, type)


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
    plain, errors = Deliveries.take, list[str]()

    def take(*arguments: Any) -> None:
        monkeypatch.setattr(Deliveries, "take", plain)
        before = lines.shown().total()
        stale.send_signal(signal.SIGCONT)
        errors.append(stale.communicate(timeout=300)[1])
        assert lines.shown().total() > before
        plain(*arguments)

    try:
        wait_until_stopped(stale)
        lock = lines.folder / "a" / layout.LOCK
        lock.rename(lock.with_name("lock-of-old"))
        monkeypatch.setattr(Deliveries, "take", take)
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
