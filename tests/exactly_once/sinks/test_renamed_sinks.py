"""A sink that goes on under another id (`moved`) has one target, of whatever kind: each row once."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from abscli.engine.errors import UsageError
from abscli.report.findings import Code
from formats.job.changes import Changes, Move
from tests.support.jobs.lines import Gate, Lines, killed, make_table, write_lines
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


def test_going_back_behind_what_the_old_id_has_written_is_refused(lines: Lines) -> None:
    if lines.type == "jsonl":
        pytest.skip("parts of files are set aside")
    lines.run(epochs=4)
    renamed = replace(lines, id="shown")
    with pytest.raises(UsageError, match="not part of the history being resumed"):
        renamed.run(from_epoch=lines.complete()[0], changes=RENAMED)
