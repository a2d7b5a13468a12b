"""Spark purges old batches of a running query: their missing files are no damage, unless newer batches need them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.report.findings import Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.folders import Listing
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.spark import cases
from tests.support.spark.data import copy_of
from tests.support.spark.words import CONFS, add_files, counts, go_on

Purge = Callable[[Path], None]
"""Removes files of a checkpoint that has batches 0 to 6, or 2 to 4."""
RETAIN = "spark.sql.streaming.minBatchesToRetain"


def check(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def without(*patterns: str) -> Purge:
    def purge(root: Path) -> None:
        for pattern in patterns:
            paths = list(root.glob(pattern))
            assert paths, pattern
            for path in paths:
                path.unlink()

    return purge


def older(batch: int) -> Purge:
    """Purge the logs of all batches before one."""

    def purge(root: Path) -> None:
        for folder in ("offsets", "commits"):
            without(*(f"{folder}/{number}" for number in range(batch)))(root)

    return purge


def both(*purges: Purge) -> Purge:
    def purge(root: Path) -> None:
        for one in purges:
            one(root)

    return purge


PURGED: dict[str, tuple[str, Purge, str]] = {
    "snapshots of two of four partitions": (
        "incidents/purge_half_done", without(), "2 of 4 partitions no longer have it (state/0/0/3.zip)"),
    "the SST files of a snapshot that is still there": (
        "incidents/purge_half_done", without("state/0/2/SSTs/000008*"),
        "3 of 4 partitions no longer have it (state/0/0/3.zip)"),
    "deltas of one partition": (
        "words", both(older(2), without(*(f"state/0/1/{n}.delta" for n in (1, 2, 3)))),
        "1 of 3 partitions no longer have it (state/0/1/3.delta)"),
    "changelogs in no order": (
        "words_ids", both(older(1), without("state/0/1/2_*.changelog")),
        "1 of 3 partitions no longer have it (state/0/1/2_"),
}  # fmt: skip
"""By what Spark has removed already: the checkpoint, and what the report has on the oldest batch."""


@pytest.mark.parametrize("name", PURGED)
def test_a_batch_is_being_purged_if_some_partitions_no_longer_have_it(name: str, tmp_path: Path) -> None:
    case, purge, expected = PURGED[name]
    root = copy_of(case, tmp_path, sidecars=False)
    before = check(root)
    purge(root)
    report = check(root)
    oldest = report.epochs[0]
    assert not report.damaged, report.all_findings
    assert (oldest.verdict, oldest.findings) == (Status.COMPLETE, ())
    assert (oldest.reason or "").startswith(f"its state is being purged: {expected}")
    assert oldest.epoch not in report.restorable
    assert report.latest_restorable == before.latest_restorable
    facts = SparkStore(LocalStorage(root)).epochs()
    assert facts[0].status is Status.COMPLETE
    assert (facts[0].reason or "").startswith("its state is being purged")


def test_commits_without_offsets_are_being_purged_if_no_older_offsets_are_left(tmp_path: Path) -> None:
    """Spark removes old offsets before old commits, and may be killed between."""
    root = copy_of("words", tmp_path, sidecars=False)
    without(*(f"offsets/{number}" for number in range(3)))(root)
    report = check(root)
    assert not report.damaged, report.all_findings
    assert [one.verdict for one in report.epochs] == [Status.COMPLETE] * 7
    assert [(one.reason or "").partition(":")[0] for one in report.epochs[:3]] == ["its logs are being purged"] * 3
    assert report.restorable == (4, 5, 6)
    assert [one.status for one in SparkStore(LocalStorage(root)).epochs()] == [Status.COMPLETE] * 7


@pytest.mark.parametrize("keep", [2, 3])
def test_offsets_are_lost_and_not_purged_if_fewer_are_left_than_spark_keeps(keep: int, tmp_path: Path) -> None:
    """Spark keeps the offsets of two batches at least. A loss that leaves more looks like a purge."""
    root = copy_of("words", tmp_path, sidecars=False)
    without(*(f"{folder}/{n}" for n in range(keep, 7) for folder in ("offsets", "commits")), "offsets/0")(root)
    report = check(root)
    assert report.damaged == (keep == 2)
    assert [one.path for epoch in report.epochs for one in epoch.findings] == ["offsets/0"] * (keep == 2)
    assert SparkStore(LocalStorage(root)).epochs()[0].status is (Status.DAMAGED if keep == 2 else Status.COMPLETE)


LOST: dict[str, tuple[str, Purge, str, list[int]]] = {
    "the newest snapshot": ("incidents/purge_half_done", without("state/0/2/4.zip"), "state/0/2/4.zip", [3]),
    "a file that the newest snapshot needs": (
        "incidents/purge_half_done", without("state/0/2/SSTs/000010*", "state/0/2/SSTs/000012*"),
        "state/0/2/SSTs/000012-1e5f1e93-687d-4616-8170-7a8b142c3e97.sst", [2, 3]),
    "a delta, and nothing was ever purged": (
        "words", without("state/0/1/3.delta"), "state/0/1/3.delta", [2]),
    "a delta, long after the logs began": (
        "words", both(older(1), without("state/0/1/5.delta")), "state/0/1/5.delta", [4, 5, 6]),
    "offsets between others": ("words", without("offsets/2"), "offsets/2", [2]),
}  # fmt: skip
"""By what was lost: the checkpoint, the file that is named, and the damaged batches."""


@pytest.mark.parametrize("name", LOST)
def test_what_newer_batches_need_is_lost_and_not_purged(name: str, tmp_path: Path) -> None:
    case, remove, path, batches = LOST[name]
    root = copy_of(case, tmp_path, sidecars=False)
    remove(root)
    report = check(root)
    assert report.damaged
    assert path in {one.path for one in report.all_findings if one.code is Code.MISSING_FILE}, report.all_findings
    assert [one.epoch for one in report.epochs if one.verdict is Status.DAMAGED] == batches


@pytest.mark.parametrize(
    ("listed", "purge"),
    [("offsets", without("offsets/2", "offsets/3", "commits/2")),
     ("state/0/1", without(*(f"state/0/1/{n}.delta" for n in (1, 2, 3, 4))))],
)  # fmt: skip
def test_files_may_go_between_their_listing_and_their_reading(listed: str, purge: Purge, tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    older(2)(root)
    report = listed_before(root, listed, purge)
    assert not report.damaged, report.all_findings
    assert report.latest_restorable == 6


def test_state_may_be_purged_that_was_the_newest_when_the_logs_were_listed(tmp_path: Path) -> None:
    whole, root = (copy_of("wc_rocks", tmp_path / name, sidecars=False) for name in ("whole", "root"))
    without(*(f"{folder}/{n}" for folder in ("offsets", "commits") for n in (2, 3)))(root)

    def purge(root: Path) -> None:
        for folder in ("offsets", "commits"):
            for number in (2, 3):
                shutil.copy(whole / folder / str(number), root / folder)
        without(*(f"state/0/*/{n}.zip" for n in range(1, 4)))(root)
        older(2)(root)

    assert check(root).latest_restorable == 1
    report = listed_before(root, "state/0/0", purge)
    assert not report.damaged, report.all_findings
    assert report.latest_restorable == 3


def test_sst_files_of_a_snapshot_that_arrived_since_the_listing_are_not_unreferenced(tmp_path: Path) -> None:
    """Spark uploads the SST files of a snapshot before the snapshot, which may be there when SST files are listed."""
    root = copy_of("words_ids", tmp_path, sidecars=False)
    snapshot = max(root.glob("state/0/0/*.zip"), key=lambda path: int(path.stem.split("_")[0]))
    aside = Path(shutil.move(snapshot, tmp_path))
    assert [finding.code for finding in check(root).all_findings] == [Code.UNREFERENCED_FILE]
    report = listed_before(root, "state/0/0", lambda _: shutil.move(aside, snapshot))
    assert report.all_findings == ()


def listed_before(root: Path, folder: str, purge: Purge) -> StoreReport:
    """Check a checkpoint that changes just after a folder was listed."""
    checkpoint = Checkpoint(LocalStorage(root))
    listing, once = checkpoint._place.listing, [purge]

    def changing(path: str) -> Listing:
        found = listing(path)
        if path == folder and once:
            once.pop()(root)
        return found

    checkpoint._place.listing = changing  # type: ignore[method-assign,assignment]
    report = check_spark(gather(checkpoint))
    assert not once
    return report


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession(spark)
    session.conf.set(RETAIN, "2")
    yield session
    for key in (*cases.BASE, cases.PROVIDER, cases.CHANGELOG, cases.IDS, RETAIN):
        session.conf.unset(key)


@pytest.mark.minutes
@pytest.mark.parametrize("name", ["rocks", *(pytest.param(n, marks=pytest.mark.soak) for n in CONFS if n != "rocks")])
def test_a_running_query_that_purges_is_never_damaged(name: str, session: Any, tmp_path: Path) -> None:
    add_files(tmp_path / "input", range(12))
    cases.set_conf(session, CONFS[name])
    words: list[dict[str, int]] = []
    query = threading.Thread(target=lambda: words.append(go_on(session, tmp_path / "input", tmp_path / "checkpoint")))
    query.start()
    polls, reasons = 0, set()
    while query.is_alive():
        if (tmp_path / "checkpoint/commits/1").exists() or polls:
            report = check(tmp_path / "checkpoint")
            polls += 1
            reasons |= {one.reason for one in report.epochs}
            assert not report.damaged, [(one.epoch, one.findings) for one in report.epochs]
            assert report.latest_restorable is not None, [(one.epoch, one.verdict, one.reason) for one in report.epochs]
        else:
            query.join(0.02)
    assert words == [counts(tmp_path / "input")]
    assert polls > 3
    assert check(tmp_path / "checkpoint").epochs[0].epoch > 2, "nothing was purged"
