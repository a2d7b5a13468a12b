"""Commits and entries of sources that were exchanged, or lack a key: the log is named, and no sound file is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.report.findings import HARMLESS, Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.storage import LocalStorage
from tests.support.spark.damages import copy, swap
from tests.support.spark.data import copy_of


def check(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def harmful(report: StoreReport) -> set[tuple[Code, str | None]]:
    return {(one.code, one.path) for one in report.all_findings if one.code not in HARMLESS}


@pytest.mark.parametrize(
    ("case", "one", "other"),
    [("ids_v2", 2, 3), ("ids_v2", 0, 4), ("words_ids", 5, 6), ("words_ids", 1, 6), ("wc_rocks_v2", 1, 2)],
)  # fmt: skip
def test_exchanged_commits_of_format_2_are_named(case: str, one: int, other: int, tmp_path: Path) -> None:
    root, to = copy_of(case, tmp_path, sidecars=False), tmp_path / "copy"
    healthy = check(root).restorable
    swap(f"commits/{one}", f"commits/{other}")(root)
    report = check(root)
    assert harmful(report) == {(Code.LOG_MISMATCH, f"commits/{n}") for n in (one, other)}
    assert report.restorable == tuple(batch for batch in healthy if batch not in (one, other))
    plan = str(tmp_path / "plan.json")
    assert main(["plan-recovery", str(root), "--out", plan]) == 0
    assert main(["restore", plan, "--to", str(to)]) == 0
    assert harmful(check(to)) == set()


def test_a_copied_commit_of_format_2_is_named(tmp_path: Path) -> None:
    root = copy_of("words_ids", tmp_path, sidecars=False)
    copy("commits/4", "commits/5")(root)
    report = check(root)
    assert harmful(report) == {(Code.LOG_MISMATCH, "commits/5")}
    assert 5 not in report.restorable
    assert {4, 6} <= set(report.restorable)


@pytest.mark.parametrize(
    ("case", "path", "key", "code", "lost"),
    [
        ("words", "commits/6", "nextBatchWatermarkMs", Code.MANIFEST_UNREADABLE, {6}),
        ("window_append", "commits/6", "nextBatchWatermarkMs", Code.MANIFEST_UNREADABLE, set()),
        ("words_ids", "commits/6", "nextBatchWatermarkMs", Code.MANIFEST_UNREADABLE, {6}),
        ("words", "sources/0/6", "timestamp", Code.UNREADABLE, {6}),
        ("words", "sources/0/6", "batchId", Code.UNREADABLE, {6}),
        ("words", "sources/0/6", "path", Code.UNREADABLE, {6}),
    ],
)
def test_a_renamed_key_is_named(case: str, path: str, key: str, code: Code, lost: set[int], tmp_path: Path) -> None:
    root = copy_of(case, tmp_path, sidecars=False)
    healthy = check(root).restorable
    text = (root / path).read_text()
    assert f'"{key}"' in text
    (root / path).write_text(text.replace(f'"{key}"', f'"{key[:-1]}~"'))
    report = check(root)
    assert harmful(report) == {(code, path)}
    assert report.restorable == tuple(batch for batch in healthy if batch not in lost)
