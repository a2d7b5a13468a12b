"""Copies of snapshots that `abs rewrite` changes, for the tests of what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.flink.cases import HASHMAP, content
from tests.support.flink.matrix import CASES, Case, needs, opened
from tests.support.schemas import checked

SQL = next((HASHMAP.parents[1] / "sql").iterdir())
STATES = HASHMAP.parents[1] / "state"
"""Keys and namespaces that are both text, timers, time to live (tests/flink_java/StateJob.java)."""

NEWEST = [case for case in CASES if case.version == "2.3" and "changelog" not in case.name]


def rewritten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, store: Path, changes: str, *options: object, code: int = 0
) -> dict[str, Any]:
    """What `abs rewrite` says of a file of changes; with code 0 the copy is at tmp_path / copy."""
    file = tmp_path / "changes.yaml"
    file.write_text("version: 1\n" + changes)
    done = main([*map(str, ["rewrite", store, "--changes", file, "--to", tmp_path / "copy", *options]), "-o", "json"])
    out, err = capsys.readouterr()
    assert done == code, err
    if code:
        assert not (tmp_path / "copy").exists()
    return checked(out) if code == 0 else checked(err.splitlines()[-1])


def keyed(matrix: Path, case: Case) -> tuple[dict[tuple[str, str | None], list[str]], str]:
    """What a snapshot of the matrix has, and the id of the operator that keeps it."""
    needs(case)
    store, _ = opened(matrix, case)
    before = content(store)
    (owner,) = {id for id, name in before if name == "list"}
    return before, owner
