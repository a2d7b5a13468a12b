"""The cases of Flink's checkpoints that tests look at, change and copy, and what the checks say of them."""

from __future__ import annotations

from pathlib import Path

from abscli.report.findings import Code
from abscli.stores.flink.verdict import FlinkReport, check_store
from formats.flink.evidence import gather
from formats.flink.store import FlinkStore
from tests.support.flink_truth import DATA

HASHMAP = next((DATA / "hashmap-checkpoint").iterdir())
UNALIGNED = next((DATA / "unaligned").iterdir())
MERGED = next((DATA / "file-merging").iterdir())
OPEN = next((DATA / "in-progress").iterdir())
OLD = next((DATA / "old-1.20-hashmap-checkpoint").iterdir())
CHANGELOG = next((DATA / "changelog").iterdir())
CANONICAL = next((DATA / "hashmap-savepoint-canonical").iterdir())
ALL = [HASHMAP, UNALIGNED, MERGED, OPEN, OLD, CHANGELOG, CANONICAL]


def check(store: FlinkStore) -> FlinkReport:
    return check_store((gather(store, n) for n in store.epoch_numbers()), store.listing())


def codes(report: FlinkReport) -> list[Code]:
    return [finding.code for finding in report.report.all_findings]


def largest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size)
