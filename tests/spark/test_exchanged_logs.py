"""A batch that read nothing only removes rows: one that writes rows has the delta of another batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from abscli.report.findings import Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.storage import LocalStorage
from tests.support.spark.damages import copy, swap
from tests.support.spark.data import copy_of

SESSIONS = "incidents/two_deltas_swapped"


def check(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def test_two_exchanged_deltas_of_a_session_window_are_named(tmp_path: Path) -> None:
    """Real ones: Spark goes on with 15 rows in place of 9."""
    root = copy_of(SESSIONS, tmp_path)
    report = check(root)
    assert report.restorable == (0, 1, 2, 3, 4)
    found = {(one.code, one.path) for one in report.all_findings}
    assert found == {(Code.ROW_MISMATCH, f"state/0/1/{version}.delta") for version in (6, 7)}


def test_the_deltas_as_they_were_are_exact(tmp_path: Path) -> None:
    root = copy_of(SESSIONS, tmp_path)
    swap("state/0/1/6.delta", "state/0/1/7.delta")(root)
    assert check(root).all_findings == ()


@pytest.mark.parametrize(
    ("case", "one", "other"),
    [
        (SESSIONS, "state/0/0/5.delta", "state/0/0/4.delta"), (SESSIONS, "state/0/0/3.delta", "state/0/0/7.delta"),
        ("windows", "state/0/0/2.delta", "state/0/0/6.delta"), ("windows", "state/0/1/7.delta", "state/0/1/6.delta"),
        ("window_append", "state/0/1/3.delta", "state/0/1/6.delta"),
        ("window_append", "state/0/1/1.delta", "state/0/1/4.delta"),
        ("dedup_wm", "state/0/0/5.delta", "state/0/0/6.delta"), ("dedup_wm", "state/0/1/1.delta", "state/0/1/6.delta"),
    ],
)  # fmt: skip
def test_no_batch_that_builds_on_exchanged_deltas_is_restorable(
    case: str, one: str, other: str, tmp_path: Path
) -> None:
    root = copy_of(case, tmp_path, sidecars=False)
    if case == SESSIONS:
        swap("state/0/1/6.delta", "state/0/1/7.delta")(root)
    for path in root.glob("state/*/*/*.snapshot"):
        path.unlink()
    assert not check(root).damaged
    swap(one, other)(root)
    report = check(root)
    first = min(int(Path(path).name.partition(".")[0]) for path in (one, other)) - 1
    assert all(batch < first for batch in report.restorable), (report.restorable, report.all_findings)
    assert {one, other} <= {finding.path for finding in report.all_findings}


def test_a_copied_delta_is_named(tmp_path: Path) -> None:
    root = copy_of("windows", tmp_path, sidecars=False)
    copy("state/0/1/4.delta", "state/0/1/6.delta")(root)
    for path in root.glob("state/*/*/*.snapshot"):
        path.unlink()
    assert "state/0/1/6.delta" in {finding.path for finding in check(root).all_findings}
