"""Verdicts on real Spark checkpoints: the healthy are clean; what is damaged is named by file, batch and partition."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.report.findings import HARMLESS, Code, StoreReport
from abscli.stores.spark.verdict import check_spark
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.state.blocks import unpack as unpack_blocks
from formats.spark.store import SparkStore
from formats.storage import LocalStorage, open_storage
from formats.view import Status
from tests.support.spark.data import CASES, Case, copy_of, copy_of_running, unpack


def check(path: Path, *, quick: bool = False) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(path)), quick=quick))


@pytest.mark.sample(30)
@pytest.mark.parametrize("quick", [False, True], ids=["whole", "quick"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.damaged], ids=str)
def test_a_healthy_or_killed_checkpoint_is_clean(case: Case, quick: bool) -> None:
    path = unpack(case)
    report = check(path, quick=quick)
    assert [finding for finding in report.all_findings if finding.code not in HARMLESS] == []
    assert report.latest_restorable == SparkStore(LocalStorage(path)).latest()
    verdicts = {epoch.verdict for epoch in report.epochs}
    assert verdicts <= {Status.COMPLETE, Status.IN_PROGRESS, Status.ABORTED}
    assert (Status.ABORTED in verdicts) == (case.name == "tws_repartitioned")
    assert (Status.IN_PROGRESS in verdicts) == case.name.startswith("killed")


def flip(data: bytes, at: int = -1, bit: int = 0) -> bytes:
    at = len(data) // 2 if at < 0 else at
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def edit(path: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        target = root / path
        target.write_bytes(change(target.read_bytes()))

    return damage


def remove(*paths: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        for path in paths:
            (root / path).unlink()

    return damage


def swap(one: str, other: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        first, second = (root / one).read_bytes(), (root / other).read_bytes()
        (root / one).write_bytes(second)
        (root / other).write_bytes(first)

    return damage


def flip_sst(root: Path) -> None:
    target = sorted((root / "state/0/1/SSTs").glob("*.sst"))[-1]
    target.write_bytes(flip(target.read_bytes(), 40))


def drop_sst(root: Path) -> None:
    sorted((root / "state/0/1/SSTs").glob("*.sst"))[-1].unlink()


Damage = Callable[[Path], None]
# base, sidecars, damage, code, task, path, damaged batches, latest restorable
DAMAGES: dict[str, tuple[str, bool, Damage, Code, str | None, str, list[int], int]] = {
    "delta missing after the last snapshot": (
        *("wc_hdfs", False, remove("state/0/1/6.delta")),
        *(Code.MISSING_FILE, "0/1", "state/0/1/6.delta", [5, 6], 4),
    ),
    "delta missing before a snapshot": (
        *("wc_hdfs", False, remove("state/0/0/2.delta")),
        *(Code.MISSING_FILE, "0/0", "state/0/0/2.delta", [1, 2], 6),
    ),
    "snapshot corrupt, deltas kept": (
        *("wc_hdfs", False, edit("state/0/0/4.snapshot", flip)),
        *(Code.DIGEST_MISMATCH, "0/0", "state/0/0/4.snapshot", [3], 6),
    ),
    "bit flip in an lz4 delta": (
        *("wc_hdfs", False, edit("state/0/1/7.delta", lambda data: flip(data, 60))),
        *(Code.DIGEST_MISMATCH, "0/1", "state/0/1/7.delta", [6], 5),
    ),
    "the same, with Hadoop's checksum": (
        *("wc_hdfs", True, edit("state/0/1/7.delta", lambda data: flip(data, 8))),
        *(Code.DIGEST_MISMATCH, "0/1", "state/0/1/7.delta", [6], 5),
    ),
    "bit flip under Spark's own checksum": (
        *("wc_rocks_v2", True, lambda root: edit(changelog(root, 6), flip)(root)),
        *(Code.DIGEST_MISMATCH, "0/0", ".changelog", [5], 5),
    ),
    "truncated delta": (
        *("wc_hdfs", False, edit("state/0/0/6.delta", lambda data: data[:-20])),
        *(Code.UNREADABLE, "0/0", "state/0/0/6.delta", [5, 6], 4),
    ),
    "deltas of two partitions swapped": (
        *("wc_hdfs", False, swap("state/0/0/6.delta", "state/0/1/6.delta")),
        *(Code.MISPLACED_KEY, "0/0", "state/0/0/6.delta", [5, 6], 4),
    ),
    "snapshots of two partitions swapped": (
        *("wc_hdfs", False, swap("state/0/0/4.snapshot", "state/0/1/4.snapshot")),
        *(Code.MISPLACED_KEY, "0/1", "state/0/1/4.snapshot", [3, 4, 5, 6], 2),
    ),
    "zstd delta, a bit of a key flipped": (
        *("wc_hdfs_zstd", False, edit("state/0/1/3.delta", lambda data: flip(data, 37))),
        *(Code.MISPLACED_KEY, "0/1", "state/0/1/3.delta", [2], 3),
    ),
    "zstd changelog, a bit flipped": (
        *("ids_changelog_zstd", False, edit("state/0/0/5.changelog", lambda data: flip(data, 60))),
        *(Code.UNREADABLE, "0/0", "state/0/0/5.changelog", [4], 3),
    ),
    "a delta that its snapshot contradicts": (
        *("wc_hdfs", False, lambda root: shutil.copy(root / "state/0/0/3.delta", root / "state/0/0/4.delta")),
        *(Code.ROW_MISMATCH, "0/0", "state/0/0/4.delta", [3], 6),
    ),
    "a delta of an earlier version beside a snapshot": (
        *("wc_hdfs", False, lambda root: shutil.copy(root / "state/0/1/2.delta", root / "state/0/1/3.delta")),
        *(Code.ROW_MISMATCH, "0/1", "state/0/1/3.delta", [2], 6),
    ),
    "bit flip in an SST file": (
        *("wc_rocks", False, flip_sst),
        *(Code.DIGEST_MISMATCH, "0/1", ".sst", [3], 2),
    ),
    "SST file missing": (*("wc_rocks", False, drop_sst), *(Code.MISSING_FILE, "0/1", ".sst", [3], 2)),
    "row checksum does not hold": (
        *("types_zstd_checksummed", False, edit("state/0/2/5.delta", lambda data: flip(data, 300))),
        *(Code.DIGEST_MISMATCH, "0/2", "state/0/2/5.delta", [4], 3),
    ),
    "changelog missing": (
        *("ids_changelog_zstd", False, remove("state/0/2/5.changelog")),
        *(Code.MISSING_FILE, "0/2", "state/0/2/5.changelog", [4], 3),
    ),
    "partition missing": (
        *("wc_hdfs", False, lambda root: shutil.rmtree(root / "state/0/1")),
        *(Code.MISSING_FILE, "0/1", "state/0/1", [0, 1, 2, 3, 4, 5, 6], -1),
    ),
    "offsets cut short": (
        *("wc_hdfs", False, edit("offsets/6", lambda data: data[:600])),
        *(Code.MANIFEST_UNREADABLE, None, "offsets/6", [6], 5),
    ),
    "offsets of the batch in flight empty": (
        *("killed_partial_state", False, edit("offsets/3", lambda data: b"")),
        *(Code.MANIFEST_UNREADABLE, None, "offsets/3", [3], 2),
    ),
    "commit empty": (
        *("wc_hdfs", False, edit("commits/6", lambda data: b"")),
        *(Code.MANIFEST_UNREADABLE, None, "commits/6", [6], 5),
    ),
    "commit missing between others": (
        *("wc_hdfs", False, remove("commits/3")),
        *(Code.MISSING_FILE, None, "commits/3", [3], 6),
    ),
    "offsets missing of a committed batch": (
        *("wc_hdfs", False, remove("offsets/5")),
        *(Code.MISSING_FILE, None, "offsets/5", [5], 4),
    ),
    "entry of the source's log missing": (
        *("wc_hdfs", False, remove("sources/0/6")),
        *(Code.MISSING_FILE, "source-0/0", "sources/0/6", [6], 5),
    ),
    "compaction of the source's log missing": (
        *("file_compact", False, remove("sources/0/3.compact")),
        *(Code.MISSING_FILE, "source-0/0", "sources/0/3", [3, 4, 5, 6], 2),
    ),
    "an offset without its number": (
        *("wc_hdfs", False, edit("offsets/6", lambda data: data.replace(b'"logOffset":6', b'"logOffset":"6"'))),
        *(Code.MANIFEST_UNREADABLE, None, "offsets/6", [6], 5),
    ),
    "a source that went back": (
        *("wc_hdfs", False, edit("offsets/5", lambda data: data.replace(b'"logOffset":5', b'"logOffset":1'))),
        *(Code.POSITION_REGRESSED, "source-0/0", "offsets/5", [5], 6),
    ),
}


def changelog(root: Path, version: int) -> str:
    return str(next(root.glob(f"state/0/0/{version}_*.changelog")).relative_to(root))


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_by_file_batch_and_partition(name: str, tmp_path: Path) -> None:
    base, sidecars, damage, code, task, path, damaged, restorable = DAMAGES[name]
    root = copy_of(base, tmp_path, sidecars=sidecars)
    damage(root)
    report = check(root)
    assert [epoch.epoch for epoch in report.epochs if epoch.verdict is Status.DAMAGED] == damaged
    first = next(epoch for epoch in report.epochs if epoch.epoch == damaged[0])
    named = [(f.code, f.task and str(f.task)) for f in first.findings if path in (f.path or "")]
    assert (code, task) in named, first.findings
    assert report.latest_restorable == (None if restorable < 0 else restorable)
    assert report.damaged
    assert all("\n" not in finding.message for finding in report.all_findings)


def test_what_lies_before_a_gap_is_not_doubted_for_a_later_snapshot(tmp_path: Path) -> None:
    """The way to 8.snapshot begins at 4.snapshot: deltas before version 3, which is lost, have no part in it."""
    root = copy_of("dedup_wm", tmp_path, sidecars=False)
    own = root / "state/0/1"
    (own / "3.delta").unlink()
    shutil.copy(own / "5.delta", own / "6.delta")
    report = check(root)
    doubted = {f.path: epoch.epoch for epoch in report.epochs for f in epoch.findings if f.code is Code.ROW_MISMATCH}
    assert "state/0/1/6.delta" in doubted
    assert min(epoch.epoch for epoch in report.epochs if epoch.verdict is Status.DAMAGED) == 2
    assert doubted.keys().isdisjoint({"state/0/1/1.delta", "state/0/1/2.delta"})


def test_a_lost_query_id_is_named_and_every_batch_still_is_whole(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path)
    (root / "metadata").unlink()
    report = check(root)
    assert [(f.code, f.path) for f in report.findings] == [(Code.MISSING_FILE, "metadata")]
    assert report.latest_restorable == 6
    assert report.damaged


def test_a_lost_schema_leaves_the_places_of_keys_unchecked(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path)
    (root / "state/0/0/_metadata/schema").unlink()
    report = check(root)
    assert [(f.code, f.path) for f in report.findings] == [(Code.MISSING_FILE, "state/0/0/_metadata/schema")]
    assert {Code.MISPLACED_KEY, Code.ROW_MISMATCH} <= set(report.epochs[-1].unchecked)


def test_a_checkpoint_that_was_moved_names_paths_that_no_longer_hold() -> None:
    report = check(unpack(Case.of("tws_row")))
    assert [finding.code for finding in report.findings] == [Code.STALE_PATH]
    assert not report.damaged


def test_files_of_no_batch_are_told_and_harm_nothing(tmp_path: Path) -> None:
    root = copy_of("ids_v2", tmp_path)
    committed = root / changelog(root, 4)
    other = committed.with_name("4_00000000-0000-0000-0000-000000000000.changelog")
    shutil.copy(committed, other)
    shutil.copy(committed, committed.with_name("9_00000000-0000-0000-0000-000000000000.changelog"))
    (root / "state/0/0/SSTs/000099-lost.sst").write_bytes(b"x")
    report = check(root)
    assert len([f for f in report.findings if f.code is Code.UNREFERENCED_FILE]) == 3
    assert not report.damaged
    assert report.latest_restorable == 4


def test_purged_state_is_not_damage_and_cannot_be_gone_back_to(tmp_path: Path) -> None:
    root = copy_of("wc_hdfs", tmp_path)
    for partition in (0, 1):
        for version in (1, 2, 3, 4):
            (root / f"state/0/{partition}/{version}.delta").unlink()
    report = check(root)
    assert not report.damaged
    assert report.restorable == (3, 4, 5, 6)
    assert report.epochs[0].reason == "its state has been purged"
    store = SparkStore(LocalStorage(root))
    assert store.raw(6)["readable"] == [3, 6]
    assert [facts.status for facts in store.epochs()] == [Status.COMPLETE] * 7


@pytest.mark.parametrize(("name", "restorable"), [("purged_v2", (10, 11)), ("purged_rocks", (10, 11))])
def test_what_spark_itself_purged_leaves_a_healthy_checkpoint(name: str, restorable: tuple[int, ...]) -> None:
    """Unique ids of purged commits come from lineages; the oldest batch has no offsets before it to start with."""
    store = SparkStore(LocalStorage(unpack(Case.of(name))))
    report = check_spark(gather(store.checkpoint))
    assert not report.damaged
    assert report.restorable == restorable
    assert [facts.status for facts in store.epochs()] == [Status.COMPLETE] * 3
    assert store.detail(11).operators[1].rows == 130


def test_what_no_checksum_vouches_for_is_listed_as_unchecked(tmp_path: Path) -> None:
    with_sidecars, without = (check(copy_of("wc_hdfs_zstd", tmp_path / str(s), sidecars=s)) for s in (True, False))
    assert all(Code.DIGEST_MISMATCH not in epoch.unchecked for epoch in with_sidecars.epochs)
    assert all(Code.DIGEST_MISMATCH in epoch.unchecked for epoch in without.epochs)


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    root = copy_of("wc_rocks_v2", tmp_path, sidecars=False)
    sst = sorted((root / "state/0/1/SSTs").glob("*.sst"))[-1]
    sst.write_bytes(flip(sst.read_bytes(), 40))
    alone, together = (check_spark(gather(Checkpoint(LocalStorage(root)), workers=n)) for n in (1, 2))
    assert alone.damaged
    assert together == alone


@pytest.mark.parametrize("target", ["lz4 delta", "zstd delta", "sst"])
def test_flipped_bits_are_found_even_without_sidecars(target: str, tmp_path: Path) -> None:
    """All that change what an lz4 or SST file holds, and nine of ten that change what a zstd file holds."""
    base = {"lz4 delta": "wc_hdfs", "zstd delta": "wc_hdfs_zstd", "sst": "wc_rocks"}[target]
    root = copy_of(base, tmp_path, sidecars=False)
    path = root / ("state/0/0/7.delta" if target == "lz4 delta" else "state/0/0/2.delta")
    if target == "sst":
        path = sorted((root / "state/0/0/SSTs").glob("*.sst"))[-1]
    good = path.read_bytes()
    draw = random.Random(target)
    tried = found = 0
    for _ in range(60):
        path.write_bytes(flip(good, draw.randrange(len(good)), draw.randrange(8)))
        same = target != "sst" and _content(path.read_bytes()) == _content(good)
        tried += not same
        found += not same and check(root).damaged
    assert found >= tried * (0.9 if target == "zstd delta" else 1)


def _content(data: bytes) -> bytes | None:
    try:
        return unpack_blocks(data, "x").data
    except Exception:
        return None


@pytest.fixture(scope="module")
def lineages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of checkpoint format 2 with changelogs: each partition has snapshots of versions 3 and 6."""
    return copy_of("words_ids", tmp_path_factory.mktemp("ids"), sidecars=False)


@pytest.mark.parametrize(
    ("gone", "newest"),
    [
        (["6_*.zip"], 6),  # as Spark 4.3 restarts from each of these
        (["6_*.zip", "1_*", "2_*"], 6),
        (["6_*.zip", "1_*", "2_*", "3_*.changelog"], 5),
        (["6_*.zip", "3_*.zip"], 2),
    ],
)
def test_in_format_2_spark_gets_past_one_lost_snapshot(
    gone: list[str], newest: int, lineages: Path, tmp_path: Path
) -> None:
    root = copy_of_running(lineages, tmp_path / "own")
    for pattern in gone:
        for path in root.glob(f"state/0/2/{pattern}"):
            path.unlink()
    assert check(root).latest_restorable == newest


def test_what_a_snapshot_that_does_not_read_may_need_is_not_called_superfluous(tmp_path: Path) -> None:
    root = copy_of("wc_rocks", tmp_path, sidecars=False)
    newest = max(root.glob("state/0/0/*.zip"), key=lambda path: int(path.stem))
    newest.write_bytes(newest.read_bytes()[:-20])
    report = check_spark(gather(Checkpoint(LocalStorage(root))))
    assert any(newest.name in (finding.path or "") for finding in report.epochs[-1].findings)
    assert not [finding for finding in report.findings if "SSTs" in (finding.path or "")]


def test_a_checkpoint_is_where_it_is_whatever_way_leads_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata names schemas by absolute paths: a relative path, or one over a link, may be of the same place."""
    root = copy_of("tws_row", tmp_path, sidecars=False)
    metadata = next(root.glob("state/0/_metadata/v2/0"))
    text = metadata.read_text()
    metadata.write_text(text.replace(text[text.index('["file:') + 2 : text.index("/state/0/")], f"file:{root}"))
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    for place in (root, f"../{root.name}", tmp_path / "link", f"file://{root}"):
        report = check_spark(gather(Checkpoint(open_storage(str(place)))))
        assert [finding.code for finding in report.findings] == [], place
    shutil.copytree(root, tmp_path / "copy")
    report = check_spark(gather(Checkpoint(LocalStorage("../copy"))))
    assert [finding.code for finding in report.findings] == [Code.STALE_PATH]
