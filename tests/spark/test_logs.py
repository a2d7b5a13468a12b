"""Spark's logs held against each other: offsets, commits, sources' logs, metadata and state tell one story."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from abscli.report.findings import HARMLESS, Code, StoreReport
from abscli.stores.base import Checked
from abscli.stores.reasons import NoPlan
from abscli.stores.spark.check import check, only
from abscli.stores.spark.plan import plan_spark
from abscli.stores.spark.verdict import check_spark
from formats.ids import TaskId
from formats.spark.checkpoint import Checkpoint
from formats.spark.evidence.gathering import gather
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.schemas import checked
from tests.support.spark.damages import DAMAGES, PARTITIONS, conf, copy, head, lines, remove, text
from tests.support.spark.data import CASES, Case, copy_of

MISMATCH, MISSING, UNREADABLE = Code.LOG_MISMATCH, Code.MISSING_FILE, Code.UNREADABLE
# What is found: its code, its path, the batches that are damaged, the newest that can be restored. The real Spark goes
# on from each copy to exact counts (tests/bench/spark/bench_spark_damages.py).
FOUND: dict[str, tuple[Code, str, list[int], int]] = {
    "newest offsets copied from the batch before": (MISMATCH, "offsets/6", [5, 6], 4),
    "offsets in the middle copied from the batch before": (MISMATCH, "offsets/4", [3, 4], 6),
    "newest offsets copied from far before": (Code.POSITION_REGRESSED, "offsets/6", [2, 6], 5),
    "newest offsets beyond the newest batch's entries": (MISSING, "sources/0/7", [6], 5),
    "newest offsets one entry short": (MISMATCH, "offsets/6", [5, 6], 4),
    "offsets swapped": (MISMATCH, "offsets/5", [5, 6], 4),
    "fewer partitions in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "more partitions in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "fewer partitions in offsets in the middle": (MISMATCH, "offsets/3", [3], 6),
    "newest offsets copied, with fewer partitions": (MISMATCH, "offsets/6", [5, 6], 4),
    "no number of partitions in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "another format of state in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "another codec in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "no settings in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "settings under another key in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "watermark under another key in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "watermark of the newest offsets gone back": (MISMATCH, "offsets/6", [6], 5),
    "watermark of the newest offsets ahead": (MISMATCH, "offsets/6", [6], 5),
    "another source's line in the newest offsets": (MISMATCH, "offsets/6", [6], 5),
    "the source's line gone back to none": (MISMATCH, "offsets/6", [6], 5),
    "an offset of another kind": (MISMATCH, "offsets/6", [6], 5),
    "newest offsets lost": (MISSING, "offsets/6", [6], 5),
    "offsets of a batch to come": (MISSING, "offsets/7", [6, 8], 5),
    "offsets of the next batch copied": (MISMATCH, "offsets/7", [6, 7], 5),
    "commit of a batch to come": (MISSING, "offsets/8", [8], 6),
    "commit of the next batch": (MISSING, "offsets/7", [7], 6),
    "newest two commits lost": (MISSING, "commits/5", [5], 5),
    "all commits lost": (MISSING, "commits/0", [0, 1, 2, 3, 4, 5], 5),
    "folder of commits lost": (MISSING, "commits/0", [0, 1, 2, 3, 4, 5], 5),
    "newest source entry copied from the one before": (MISMATCH, "sources/0/6", [6], 5),
    "source entry in the middle copied": (MISMATCH, "sources/0/3", [3, 4, 5, 6], 2),
    "newest source entry holds another's files too": (MISMATCH, "sources/0/6", [6], 5),
    "newest source entry of another number": (MISMATCH, "sources/0/6", [6], 5),
    "newest source entry without a number": (UNREADABLE, "sources/0/6", [6], 5),
    "newest source entry under another key": (UNREADABLE, "sources/0/6", [6], 5),
    "newest source entry has no path": (UNREADABLE, "sources/0/6", [6], 5),
    "newest source entry empty of files": (UNREADABLE, "sources/0/6", [6], 5),
    "source entries swapped": (MISMATCH, "sources/0/5", [5, 6], 4),
    "source entry to come copied": (MISMATCH, "sources/0/7", [], 6),
    "source entry far ahead": (MISSING, "sources/0/7", [], 6),
    "compaction of too few entries": (MISMATCH, "sources/0/4.compact", [4, 5, 6], 3),
    "source's folder lost": (MISSING, "sources/0/0", [0, 1, 2, 3, 4, 5, 6], -1),
    "operator's metadata of fewer partitions": (MISMATCH, "state/0/_metadata/metadata", [], 6),
    "operator's metadata of more partitions": (MISMATCH, "state/0/_metadata/metadata", [], 6),
    "operator's metadata of another operator": (MISMATCH, "state/0/_metadata/metadata", [], 6),
    "a folder of an operator too many": (UNREADABLE, "state/1/_metadata/metadata", [], 6),
    "query id of another query": (Code.MANIFEST_UNREADABLE, "metadata", [], 6),
}
# What nothing contradicts, and Spark goes on from exactly, or says itself that it does not.
CLEAN: dict[str, int] = {
    "watermark of the newest commit ahead": 6,
    "time of the newest offsets gone back": 6,
    "newest commit lost": 5,
    "newest offsets and commits of the last two lost": 4,
    "a folder of a partition too many": 6,
}


def report_of(root: Path) -> StoreReport:
    return check_spark(gather(Checkpoint(LocalStorage(root))))


def damaged(report: StoreReport) -> list[int]:
    return [one.epoch for one in report.epochs if one.verdict is Status.DAMAGED]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Seven batches of a word count over three partitions."""
    return copy_of("words", tmp_path, sidecars=False)


def test_every_damage_has_an_expectation() -> None:
    assert FOUND.keys() | CLEAN.keys() == DAMAGES.keys()


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", FOUND)
def test_logs_that_contradict_each_other_are_named(name: str, words: Path) -> None:
    code, path, batches, newest = FOUND[name]
    DAMAGES[name](words)
    report = report_of(words)
    assert damaged(report) == batches
    assert report.latest_restorable == (None if newest < 0 else newest)
    assert report.damaged
    assert any(one.code is code and one.path == path for one in report.all_findings), report.all_findings
    assert all("\n" not in one.message for one in report.all_findings)


@pytest.mark.parametrize("name", CLEAN)
def test_what_takes_nothing_away_is_not_called_damage(name: str, words: Path) -> None:
    DAMAGES[name](words)
    report = report_of(words)
    assert [one for one in report.all_findings if one.code not in HARMLESS] == []
    assert report.latest_restorable == CLEAN[name]


def plannable(root: Path, report: StoreReport) -> tuple[int, ...]:
    """The batches that a plan is made for."""
    store, query_id = SparkStore(LocalStorage(root)), "4b0a6c52-de65-4bfb-a9cf-402bce370337"
    answers = {one.epoch: plan_spark(store, batch=one.epoch, query_id=query_id) for one in report.epochs}
    return tuple(epoch for epoch, answer in answers.items() if not isinstance(answer, NoPlan))


@pytest.mark.sample(15)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_is_made_for_just_the_batches_that_are_called_restorable(case: Case, tmp_path: Path) -> None:
    root = copy_of(case.name, tmp_path)
    report = report_of(root)
    more = {6} if case.name == "broken_swapped_delta" else set()  # which is put back
    assert set(plannable(root, report)) == {*report.restorable, *more}


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", DAMAGES)
def test_so_it_is_whatever_is_damaged_and_one_batch_is_judged_as_in_the_whole(name: str, words: Path) -> None:
    DAMAGES[name](words)
    report = report_of(words)
    assert plannable(words, report) == report.restorable
    whole = judged(words, None)
    for one in report.epochs:
        alone, same = judged(words, one.epoch).report, only(whole.report, one.epoch)
        assert (alone.epochs, alone.restorable) == (same.epochs, same.restorable)


def judged(root: Path, batch: int | None) -> Checked:
    return check(LocalStorage(root), batch, quick=False, progress=lambda *_: None)


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", [name for name, (_, _, _, newest) in FOUND.items() if newest >= 0])
def test_a_copy_is_whole_whatever_it_was_made_of(
    name: str, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[name](words)
    plan, to = tmp_path / "plan.json", tmp_path / "copy"
    options = ["--query-id", "4b0a6c52-de65-4bfb-a9cf-402bce370337"] if name.startswith("query id") else []
    assert main(["plan-recovery", str(words), "--out", str(plan), "-o", "json", *options]) == 0
    batch = checked(capsys.readouterr().out)["body"]["batch"]
    assert main(["restore", str(plan), "--to", str(to), "-o", "json"]) == 0
    capsys.readouterr()
    assert main(["validate", str(to), "-o", "json"]) == 0, capsys.readouterr()
    assert checked(capsys.readouterr().out)["latest_restorable"] == batch == FOUND[name][3]


@pytest.mark.parametrize("name", ["repartitioned", "repartitioned_ids", "purged_repartitioned"])
def test_a_repartition_is_no_contradiction_and_can_be_gone_back_behind(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    report = report_of(root)
    assert report.all_findings == ()
    first = report.restorable[0]
    assert report.restorable == tuple(range(first, report.epochs[-1].epoch + 1))
    before = Checkpoint(LocalStorage(root)).offsets(first).partitions
    plan = plan_spark(SparkStore(LocalStorage(root)), batch=first)
    folders = {Path(kept.path).parts[2] for kept in plan.relies_on if kept.path.startswith("state/0/")} - {"_metadata"}
    assert folders == {str(number) for number in range(before or 0)}


def test_a_number_of_partitions_that_goes_back_to_what_it_was_is_named(tmp_path: Path) -> None:
    root = copy_of("repartitioned", tmp_path, sidecars=False)
    conf("offsets/9", PARTITIONS, "3")(root)
    report = report_of(root)
    assert (damaged(report), report.latest_restorable) == ([9], 8)
    conf("offsets/9", PARTITIONS, "5")(root)
    conf("offsets/7", PARTITIONS, "3")(root)  # as if nobody had repartitioned it
    report = report_of(root)
    assert 7 in damaged(report)
    assert report.latest_restorable == 9


@pytest.mark.parametrize(
    ("change", "path", "batches"),
    [
        (head("commits/4", nextBatchWatermarkMs=1_767_225_706_000), "commits/4", [4]),
        (head("commits/4", nextBatchWatermarkMs=1_900_000_000_000), "commits/4", [4]),
        (head("offsets/4", batchWatermarkMs=1_767_225_706_000), "offsets/4", [3, 4]),
        (head("offsets/4", batchWatermarkMs=1_900_000_000_000), "offsets/4", [4]),
        (copy("offsets/3", "offsets/4"), "offsets/4", [3, 4]),
    ],
)
def test_watermarks_of_offsets_and_commits_agree(change: Any, path: str, batches: list[int], tmp_path: Path) -> None:
    root = copy_of("windows", tmp_path, sidecars=False)
    assert report_of(root).all_findings == ()
    change(root)
    report = report_of(root)
    assert set(damaged(report)) <= set(batches)
    assert any(one.code is MISMATCH and one.path == path for one in report.all_findings)
    assert report.latest_restorable == 8


def test_two_sources_whose_lines_were_exchanged_are_named(tmp_path: Path) -> None:
    root = copy_of("two_sources", tmp_path, sidecars=False)
    lines("offsets/8", lambda own: [*own[:2], own[3], own[2]])(root)
    report = report_of(root)
    assert 8 in damaged(report)
    assert report.latest_restorable is not None
    assert report.latest_restorable < 8


def test_gaps_of_asynchronous_progress_tracking_are_no_damage(tmp_path: Path) -> None:
    """Its logs have batches 0, 1, 3, 5, 6, 8; the last was in flight. Each begins where the one before it ended."""
    root = copy_of("killed_async", tmp_path)
    report = report_of(root)
    assert report.all_findings == ()
    assert report.restorable == (0, 1, 3, 5, 6)
    remove("commits/6", "commits/.6.crc")(root)
    report = report_of(root)
    assert report.all_findings == ()
    assert report.restorable == (0, 1, 3, 5, 6)


def test_a_changelog_under_the_name_of_another_version_is_named(tmp_path: Path) -> None:
    root = copy_of("words_ids", tmp_path, sidecars=False)
    old, new = (next(root.glob(f"state/0/1/{version}_*.changelog")) for version in (4, 5))
    shutil.copy(old, new)
    report = report_of(root)
    found = next(one for one in report.all_findings if one.code is MISMATCH)
    assert (found.path, found.task) == (f"state/0/1/{new.name}", TaskId("0", 1))
    assert "was made of version 3" in found.message
    assert 4 in damaged(report)


@pytest.mark.parametrize(
    "change",
    [
        copy("commits/4", "commits/5"),
        head("commits/5", stateUniqueIds={}),
        lambda root: (root / "commits/5").write_text('v1\n{"nextBatchWatermarkMs":0}'),
    ],
)
def test_commits_have_unique_ids_of_their_own(change: Any, tmp_path: Path) -> None:
    root = copy_of("words_ids", tmp_path, sidecars=False)
    newest = report_of(root).latest_restorable
    change(root)
    report = report_of(root)
    assert any(one.code is MISMATCH and one.path == "commits/5" for one in report.all_findings)
    assert 5 in damaged(report)
    assert 5 not in report.restorable
    assert newest is not None


@pytest.mark.parametrize("scheme", ["s3a://bucket/ck", "abfss://c@a.dfs.core.windows.net/ck", "dbfs:/ck", "hdfs://n/ck",
                                    "wasbs://c@a.blob.core.windows.net/ck", "gs://bucket/ck"])  # fmt: skip
def test_paths_of_schemas_are_compared_by_place_not_by_spelling(scheme: str, tmp_path: Path) -> None:
    from formats.spark.evidence.gathering import _plain

    spelled = {"s3a://bucket/ck": "s3://bucket/ck", "dbfs:/ck": "/dbfs/ck",
               "abfss://c@a.dfs.core.windows.net/ck": "abfs://c@a.dfs.core.windows.net/ck/",
               "wasbs://c@a.blob.core.windows.net/ck": "abfss://c@a.dfs.core.windows.net/ck"}  # fmt: skip
    assert _plain(scheme) == _plain(spelled.get(scheme, scheme))
    assert _plain(scheme) != _plain(scheme.replace("ck", "other"))


def test_an_entry_of_which_a_compaction_says_something_else_is_named(tmp_path: Path) -> None:
    root = copy_of("file_compact", tmp_path, sidecars=False)
    single = next(int(path.name) for path in sorted(root.glob("sources/0/[0-9]")) if path.name != "0")
    text(f"sources/0/{single}", "b00", "x00")(root)
    report = report_of(root)
    assert any(one.code is MISMATCH and (one.path or "").startswith("sources/0/") for one in report.all_findings)


def test_what_validate_says_of_it_is_told_with_its_code(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DAMAGES["fewer partitions in the newest offsets"](words)
    assert main(["validate", str(words), "-o", "json"]) == 3
    page = checked(capsys.readouterr().out)
    assert {found["code"] for found in page["epochs"][6]["findings"]} == {"log-mismatch"}
    assert json.dumps(page).count("state/0/2/7.delta") == 1
