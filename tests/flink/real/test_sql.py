"""The verdict of `validate --for --topology` on a SQL job, compared with a start in that release of Flink."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run_command
from tests.support.flink.java import SOURCES, java_job
from tests.support.flink.releases import compiled_for
from tests.support.flink.venv import VERSION
from tests.support.schemas import checked
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

TABLES = ("flink-table-api-java-bridge", "flink-table-planner-loader", "flink-table-runtime", "flink-connector-datagen")
"""Artifacts of SQL that the distribution of a release contains, and a source of rows."""
KEYS = 4
SOURCE = f"""
CREATE TABLE orders (
  id BIGINT, k AS MOD(id, {KEYS}), v AS id * 2, t AS TO_TIMESTAMP_LTZ(id * 1000, 3), p AS PROCTIME(),
  WATERMARK FOR t AS t
) WITH ('connector' = 'datagen', 'rows-per-second' = '50', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0',
  'fields.id.end' = '100000');
"""
QUERIES = {
    "grouped": ("k BIGINT, n BIGINT, s BIGINT", "SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k"),
    "distinct": ("k BIGINT, n BIGINT", "SELECT k, COUNT(DISTINCT MOD(id, 7)) FROM orders GROUP BY k"),
    "joined": ("id BIGINT, v BIGINT", "SELECT a.id, b.v FROM orders a JOIN orders b ON a.id = b.id"),
    "top": ("k BIGINT, v BIGINT", """SELECT k, v FROM (SELECT k, v,
        ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM orders) WHERE n <= 2"""),
    "latest": ("k BIGINT, v BIGINT", """SELECT k, v FROM (SELECT k, v,
        ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) AS n FROM orders) WHERE n = 1"""),
    "running": ("id BIGINT, s BIGINT", """SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY p
        ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM orders"""),
    "windowed": ("w TIMESTAMP(3), n BIGINT", """SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders,
        DESCRIPTOR(t), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"""),
}  # fmt: skip
"""Columns and query of each table that the job writes."""


def statements(*more: str) -> str:
    """Return the statements of the job. more: further queries that count."""
    queries = QUERIES | {f"more{i}": ("n BIGINT", query) for i, query in enumerate(more)}
    sinks = "".join(
        f"CREATE TABLE out_{name} ({columns}) WITH ('connector' = 'print', 'print-identifier' = '{name}');\n"
        for name, (columns, _) in queries.items()
    )
    return SOURCE + sinks + "".join(f"INSERT INTO out_{name} {query};\n" for name, (_, query) in queries.items())


class Running:
    """A job that runs, asked over its REST interface."""

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        port = re.findall(r"Rest endpoint listening at \S+?:(\d+)", self.text)[-1]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    @property
    def job(self) -> str:
        return str(self.ask("/jobs")["jobs"][0]["id"])

    def rows(self, sink: str) -> list[str]:
        """Return the changes that a sink has printed."""
        return re.findall(rf"^{sink}(?::\d)?> (\S+\[.*\])$", self.text, re.MULTILINE)

    def savepoint(self, folder: Path) -> Path:
        trigger = self.ask(f"/jobs/{self.job}/savepoints", {"target-directory": str(folder)})["request-id"]
        until = time.monotonic() + 120
        while True:
            found = self.ask(f"/jobs/{self.job}/savepoints/{trigger}")
            if found["status"]["id"] == "COMPLETED":
                return Path(re.sub("^file:/*", "/", found["operation"]["location"]))
            assert time.monotonic() < until, found
            time.sleep(0.1)


@contextmanager
def running(class_path: str, folder: Path, sql: str, *options: str) -> Iterator[Running]:
    """A job while it runs, from when all of its tasks do, or after it has ended because it cannot start."""
    folder.mkdir()
    (folder / "job.sql").write_text(sql)
    with java_job(class_path, folder / "log", "SqlJob", folder / "job.sql", *options) as process:
        job = Running(folder / "log")
        wait_for(lambda: job.rows("windowed") or process.poll() is not None, None, lambda: job.text[-3000:])
        yield job


@pytest.mark.parametrize(("written", "restored"), [("1.18.1", "1.20.3"), ("1.20.3", VERSION), ("2.0.0", VERSION)])
def test_a_sql_job_with_the_same_plan_starts_in_another_release_as_it_is_said(
    written: str, restored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SOURCES / "SqlJob.java").read_text()
    before = compiled_for(written, tmp_path / "before", *TABLES, SqlJob=source)
    after = compiled_for(restored, tmp_path / "after", *TABLES, SqlJob=source)
    with running(before, tmp_path / "first", statements()) as job:
        wait_for(lambda: len(job.rows("grouped")) > 8 * KEYS)
        savepoint = job.savepoint(tmp_path / "savepoints")

    def verdict(*options: object) -> tuple[int, dict[str, set[str]]]:
        code, out, _ = run_command("validate", capsys, savepoint, "--for", f"flink:{restored}", *options, "-o", "json")
        states = [state for state in checked(out)["states"] if state["state"]]
        return code, {name: {s["state"] for s in states if s["verdict"] == name} for name in ("restores", "unknown")}

    code, found = verdict()
    assert (code, len(found["unknown"]) > 6) == (3, True), "without the plan nothing is known"
    plans = {}
    more = "SELECT COUNT(*) FROM orders WHERE id > 3"
    for name, sql in (("same", statements()), ("other", statements(more))):
        with running(after, tmp_path / name, sql) as job:
            plans[name] = tmp_path / f"{name}.json"
            plans[name].write_text(json.dumps(job.ask(f"/jobs/{job.job}/plan")))
    code, found = verdict("--topology", plans["same"])
    assert (code, found["unknown"]) == (0, set())
    options = [f"execution.{name}.path=file://{savepoint}" for name in ("savepoint", "state-recovery")]
    with running(after, tmp_path / "again", statements(), *options) as job:
        assert job.rows("windowed"), job.text[-3000:]
        assert not [row for row in job.rows("grouped") if row.startswith("+I")], "all keys have their counts"
    code, found = verdict("--topology", plans["other"])
    assert (code, found["unknown"] != set()) == (3, True)
    with running(after, tmp_path / "changed", statements(more), *options) as job:
        assert "Failed to rollback to checkpoint/savepoint" in job.text or "Cannot map" in job.text
