"""State files in the wrong partition's folder come back to their place in a copy, and say what they said."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.stores.reasons import NoPlan
from abscli.stores.spark.plan import plan_spark
from abscli.stores.spark.restore import check_plan, restore
from abscli.stores.spark.text.plan import plan_text
from formats.errors import StalePlan
from formats.plan import Plan
from formats.spark.plan import SparkPlan
from formats.spark.rearranged import Rearranged
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.support.spark.data import copy_of

CASES = ["wc_hdfs", "wc_hdfs_zstd", "wc_rocks", "wc_rocks_v2", "ids_v2", "ss_join", "kind_join_v4", "tws_row"]


def store_at(root: Path) -> SparkStore:
    return SparkStore(LocalStorage(root))


def planned(root: Path, batch: int | None = None) -> Plan[SparkPlan]:
    plan = plan_spark(store_at(root), batch=batch)
    assert not isinstance(plan, NoPlan), plan
    return plan


def exchange(one: Path, other: Path) -> None:
    parked = one.with_name("parked")
    one.rename(parked)
    other.rename(one)
    parked.rename(other)


def rows(root: Path, batch: int) -> Counter[str]:
    """All rows of all states after a batch, each with its partition."""
    store = store_at(root)
    return Counter(
        f"{family.operator.id} {family.name} {row}"
        for family in store.families(batch)
        if family.kind not in ("internal", "timers") and family.opaque is None
        for batches in store.state(batch, str(family.operator.id), family.name)
        for row in batches.to_pylist()
    )


@pytest.mark.parametrize("sidecars", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_swapped_folders_are_put_back_and_nothing_is_given_up(name: str, sidecars: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path, sidecars=sidecars)
    healthy = planned(root)
    before = rows(root, healthy.body.batch)
    assert healthy.body.restored_files == ()
    exchange(root / "state/0/0", root / "state/0/1")
    plan = planned(root)
    assert plan.body.batch == healthy.body.batch
    assert plan.body.restored_files
    check_plan(plan, store_at(root))
    restore(plan, store_at(root), str(tmp_path / "copy"))
    assert rows(tmp_path / "copy", plan.body.batch) == before
    assert planned(tmp_path / "copy").body.restored_files == ()
    assert "Put back where it belongs" in plan_text(plan)


def versions(root: Path, version: int, kinds: tuple[str, ...]) -> list[Path]:
    return [path for path in sorted((root / "state/0/0").glob(f"{version}[._]*")) if path.suffix in kinds]


@pytest.mark.parametrize("name", ["wc_hdfs", "wc_rocks"])
def test_swapped_files_of_one_version_are_put_back(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path, sidecars=False)
    healthy = planned(root)
    before = rows(root, healthy.body.batch)
    newest = healthy.body.batch + 1
    for path in versions(root, newest, (".delta", ".zip")):
        exchange(path, root / "state/0/1" / path.name)
    plan = planned(root)
    assert plan.body.batch == healthy.body.batch
    assert {file.reason.partition(" ")[0] for file in plan.body.restored_files} <= {"Spark's", "the"}
    restore(plan, store_at(root), str(tmp_path / "copy"))
    assert rows(tmp_path / "copy", plan.body.batch) == before
    (root / plan.body.restored_files[0].source).write_bytes(b"else")
    with pytest.raises(StalePlan):
        check_plan(plan, store_at(root))


def test_a_file_that_was_copied_over_another_is_not_taken_for_it(tmp_path: Path) -> None:
    """What stood there is lost: the batch before it is the newest that is exact."""
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    newest = planned(root).body.batch
    shutil.copyfile(root / f"state/0/0/{newest + 1}.delta", root / f"state/0/1/{newest + 1}.delta")
    plan = planned(root)
    assert (plan.body.batch, plan.body.restored_files) == (newest - 1, ())


def test_what_does_not_help_is_left_as_it_is(tmp_path: Path) -> None:
    """A batch that is exact without: the plan for it moves nothing."""
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    newest = planned(root).body.batch
    exchange(*(root / f"state/0/{partition}/{newest + 1}.delta" for partition in "01"))
    assert planned(root, newest - 1).body.restored_files == ()
    assert len(planned(root, newest).body.restored_files) == 2


@pytest.mark.parametrize("damage", ["of the other partition", "a bit"])
def test_a_snapshot_that_holds_what_it_should_not_is_done_without(damage: str, tmp_path: Path) -> None:
    root = copy_of("wc_hdfs_zstd", tmp_path, sidecars=False)
    healthy = planned(root)
    before = rows(root, healthy.body.batch)
    snapshot = max(root.glob("state/0/0/*.snapshot"), key=lambda path: int(path.stem))
    data = bytearray((root / "state/0/1" / snapshot.name).read_bytes() if damage != "a bit" else snapshot.read_bytes())
    if damage == "a bit":
        data[len(data) // 2] ^= 4
    snapshot.write_bytes(bytes(data))
    plan = planned(root)
    assert plan.body.batch == healthy.body.batch
    restore(plan, store_at(root), str(tmp_path / "copy"))
    assert not (tmp_path / "copy/state/0/0" / snapshot.name).exists()
    assert rows(tmp_path / "copy", plan.body.batch) == before


def names(storage: Rearranged, path: str) -> list[str]:
    return [entry.name for entry in storage.list(path)]


def test_a_rearranged_storage_reads_lists_and_sizes_as_the_copy_would(tmp_path: Path) -> None:
    put: Callable[[str, bytes], object] = LocalStorage(tmp_path).put
    put("a/one", b"1")
    put("a/two", b"22")
    put("b/one", b"333")
    storage = Rearranged(LocalStorage(tmp_path), {"b/two": "a/two", "c/d": "a/one"}, {"a/two", "a/one"})
    assert names(storage, "") == ["a", "b", "c"]
    assert (names(storage, "a"), names(storage, "b"), names(storage, "c")) == ([], ["one", "two"], ["d"])
    assert (storage.read("b/two"), storage.size("b/two"), storage.size("a/two")) == (b"22", 2, None)
    assert storage.read("b/one", 1, 1) == b"3"
    with pytest.raises(PermissionError):
        storage.put("x", b"")
    with pytest.raises(PermissionError):
        storage.delete("b/one")


@pytest.mark.parametrize("name", ["ids_v2", "wc_rocks_v2", "words_ids", "repartitioned_ids"])
def test_commits_of_format_2_are_made_anew_as_they_were(name: str, tmp_path: Path) -> None:
    """From the offsets of the batch after, and the ids in names and lineages."""
    root = copy_of(name, tmp_path, sidecars=False)
    newest = planned(root).body.batch
    commits = {path.name: path.read_text() for path in (root / "commits").iterdir()}
    shutil.rmtree(root / "commits")
    plan = planned(root)
    assert plan.body.batch == newest - 1
    made = {Path(file.path).name: file.text for file in plan.body.write if file.path.startswith("commits/")}
    assert str(newest - 1) in made
    assert {number: parsed(text or "") for number, text in made.items()} == {n: parsed(commits[n]) for n in made}
    restore(plan, store_at(root), str(tmp_path / "copy"))


def parsed(commit: str) -> object:
    version, text = commit.split("\n")
    return version, json.loads(text)


def test_a_commit_is_made_anew_where_the_next_offsets_are_lost_as_well(tmp_path: Path) -> None:
    """The watermark was the same before and later, and never goes back: it was the same in between."""
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    for path in ("commits/2", "offsets/3", "commits/3"):
        (root / path).unlink()
    plan = planned(root, 2)
    assert [(file.path, file.text) for file in plan.body.write] == [("commits/2", 'v1\n{"nextBatchWatermarkMs":0}')]
    later = root / "offsets/4"
    later.write_text(later.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":7'))
    assert isinstance(plan_spark(store_at(root), batch=2), NoPlan)


@pytest.mark.parametrize("what", ["logs", "snapshot"])
def test_what_was_written_later_may_build_on_what_lay_wrong_and_is_not_gone_to(what: str, tmp_path: Path) -> None:
    """Spark may have started from it in between, and does not notice."""
    root = copy_of("wc_hdfs", tmp_path, sidecars=False)
    if what == "logs":
        exchange(root / "state/0/0/6.delta", root / "state/0/1/6.delta")
        newest = 5
    else:
        exchange(root / "state/0/0/4.snapshot", root / "state/0/1/4.snapshot")
        newest = 3
    plan = planned(root)
    assert plan.body.batch == newest
    assert "may build on state that lay in the wrong place" in plan.body.skipped[0].reason
    assert isinstance(plan_spark(store_at(root), batch=6), NoPlan)


@pytest.mark.parametrize("name", ["ids_v2", "words_ids"])
@pytest.mark.parametrize("lost", [(), (0, 1, 3), None])
def test_folders_of_format_2_are_put_back_whatever_is_left_of_commits(
    name: str, lost: tuple[int, ...] | None, tmp_path: Path
) -> None:
    root = copy_of(name, tmp_path, sidecars=False)
    newest = planned(root).body.batch
    before = rows(root, newest - 1)
    exchange(root / "state/0/1", root / "state/0/2")
    for path in (root / "commits").iterdir():
        if lost is None or int(path.name) in lost:
            path.unlink()
    plan = planned(root)
    assert plan.body.batch == newest - (lost is None)
    restore(plan, store_at(root), str(tmp_path / "copy"))
    assert rows(tmp_path / "copy", newest - 1) == before


@pytest.mark.parametrize("name", ["wc_hdfs", "sessions", "windows", "dedup_wm", "total", "join"])
def test_without_the_name_of_its_operator_state_that_is_whole_is_not_called_misplaced(
    name: str, tmp_path: Path
) -> None:
    """What keeps it is told by its columns, so that what does lie elsewhere is seen."""
    root = copy_of(name, tmp_path)
    newest = planned(root).body.batch
    for path in root.glob("state/*/_metadata"):
        shutil.rmtree(path)
    assert planned(root).body.batch == newest
    if name == "wc_hdfs":
        exchange(root / "state/0/0", root / "state/0/1")
        assert len(planned(root).body.restored_files) > newest
