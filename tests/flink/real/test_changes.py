"""A real Flink starts from a copy in which a file has changed all that it can, and has just the rows that it says.

Of one layout; of the others: `python -m tests.bench.flink.bench_flink_changes`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from formats.flink.store import FlinkStore
from tests.support.commands import result_of
from tests.support.flink.cases import content
from tests.support.flink.changes import changed_job, changes_for, options_to_start, wanted, without_own
from tests.support.flink.releases import run, unpack
from tests.support.flink.venv import VERSION

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]


def test_flink_has_just_the_rows_that_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = unpack()[VERSION]
    changes, copy = tmp_path / "changes.yaml", tmp_path / "copy"
    changes.write_text(changes_for(source))
    done = result_of("rewrite", capsys, source, "--changes", changes, "--to", copy)
    assert [change["line"] for change in done["changes"] if change["no_effect"] is not None] == []
    after = wanted(content(FlinkStore(str(source))))
    assert content(FlinkStore(str(copy))) == after
    again = result_of("rewrite", capsys, copy, "--changes", changes, "--to", tmp_path / "again")
    assert content(FlinkStore(str(tmp_path / "again"))) == after, "the file does for its own copy"
    assert {change["no_effect"] is None for change in again["changes"] if change["action"] != "set"} == {False}

    class_path = changed_job(tmp_path / "classes")
    for backend in ("rocksdb", "hashmap"):
        folder = tmp_path / backend
        taken, log = run(class_path, folder, "UpgradeJob", folder, "CANONICAL", *options_to_start(copy, backend))
        assert taken is not None, [line for line in log.splitlines() if "Caused by" in line or "Exception:" in line]
        assert without_own(content(FlinkStore(str(taken)))) == without_own(after)
