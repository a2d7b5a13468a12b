"""Where the files of Flink's checkpoints lie: as they are named, moved with their job, mapped, searched for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from abscli.report.findings import Code
from formats.flink.facts import file_handles
from formats.flink.files.resolve import How, PathMap, parse_path_map, plain, resolve
from formats.flink.metadata.handles import FileHandle, RelativeHandle, SegmentHandle
from formats.flink.store import FlinkStore
from tests.support.flink.cases import HASHMAP, MERGED, check, largest


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's directory with one checkpoint, to be damaged."""
    folder = tmp_path / HASHMAP.name
    shutil.copytree(HASHMAP, folder)
    return folder


class Files:
    """A listing that is a dictionary."""

    def __init__(self, root: str, files: dict[str, int]) -> None:
        self.roots = (root,)
        self.files = files

    def size(self, path: str) -> int | None:
        return self.files.get(path)

    def has_folder(self, path: str) -> bool:
        return any(name.startswith(path + "/") for name in self.files)

    def named(self, name: str) -> list[tuple[str, int]]:
        return [(path, size) for path, size in self.files.items() if path.rsplit("/", 1)[-1] == name]


JOB = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("handle", "files", "found"),
    [
        (RelativeHandle("a", 3), {"chk-5/a": 3}, ("chk-5/a", How.WRITTEN)),
        (RelativeHandle("a", 3), {"chk-4/a": 3}, ("chk-4/a", How.FOUND)),
        (RelativeHandle("a", 3), {"chk-4/a": 4}, None),
        (RelativeHandle("a", 3), {"chk-5/a": 2, "chk-4/a": 3}, ("chk-5/a", How.WRITTEN)),
        (RelativeHandle("../../etc/passwd", 3), {"etc/passwd": 3}, None),
        (FileHandle(f"file:/now/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.WRITTEN)),
        (FileHandle(f"file:/then/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.MOVED)),
        (FileHandle(f"hdfs://nn:8020/then/{JOB}/shared/a", 3), {"shared/a": 3}, ("shared/a", How.MOVED)),
        (FileHandle(f"file:/then/{JOB}/shared/a", 3), {"shared/a": 2}, ("shared/a", How.MOVED)),
        (FileHandle("file:/then/x/a", 3), {"chk-5/a": 3}, ("chk-5/a", How.FOUND)),
        (FileHandle("file:/then/x/a", 3), {"chk-5/a": 2}, None),
        (FileHandle(f"file:/now/{JOB}/../../etc/passwd", 3), {"etc/passwd": 9}, ("etc/passwd", How.MOVED)),
        (FileHandle("file:/old/shared/a", 3), {"new/a": 3}, ("new/a", How.MAPPED)),
        (SegmentHandle("file:/x/taskowned/a", 2, 3, 0, "l"), {"taskowned/a": 9}, ("taskowned/a", How.MOVED)),
        (SegmentHandle("file:/x/taskowned/a", 7, 3, 0, "l"), {"chk-5/a": 9}, None),
    ],
)
def test_a_file_is_looked_for_in_a_fixed_order_and_only_where_the_user_said(
    handle: FileHandle | RelativeHandle | SegmentHandle, files: dict[str, int], found: tuple[str, How] | None
) -> None:
    maps = [PathMap("/old/shared", f"/now/{JOB}/new")]
    place = resolve(handle, "chk-5", [Files(f"/now/{JOB}", files)], maps)
    assert (place and (place.path, place.how)) == found


def test_schemes_of_one_store_are_one_and_a_path_map_has_two_sides() -> None:
    assert plain("file:///a/b/") == plain("file:/a/b") == plain("file://host/a/b") == "/a/b"
    assert plain("s3a://bucket/a") == plain("s3p://bucket/a") == "s3://bucket/a"
    assert parse_path_map("s3a://b/x=/mnt/x/") == PathMap("s3://b/x", "/mnt/x")
    for text in ("a", "=b", "a="):
        with pytest.raises(ValueError, match="OLD=NEW"):
            parse_path_map(text)


def test_a_moved_jobs_files_are_found_by_their_tail(tmp_path: Path) -> None:
    store = FlinkStore(str(MERGED))
    places = {store.streams(3).place(handle) for _, _, handle in file_handles(store.metadata(3))}
    assert {place.how for place in places if place} == {How.MOVED}
    report = check(store)
    assert report.report.restorable == (2, 3)
    assert "abs restore" in report.notes[3][0]


def test_a_path_map_leads_to_where_the_files_are_now(tmp_path: Path) -> None:
    shutil.copytree(MERGED / "chk-3", tmp_path / "chk-3")
    shutil.copytree(MERGED / "taskowned", tmp_path / "merged")
    old = f"/mnt/checkpoints/backup/file-merging/{MERGED.name}/taskowned"
    report = check(FlinkStore(str(tmp_path / "chk-3")))
    assert report.report.epochs[0].findings == (), "nobody said where they are now: that is no loss"
    assert f"--path-map {old}=NEW" in report.why[3][Code.MISSING_FILE]
    store = FlinkStore(str(tmp_path / "chk-3"), maps=[PathMap(old, str(tmp_path / "merged"))])
    assert check(store).report.restorable == (3,)


def test_a_symbolic_link_does_not_lead_out_of_the_directories(job: Path, tmp_path: Path) -> None:
    file = largest(job / "chk-2")
    outside = tmp_path / "outside"
    shutil.move(file, outside)
    file.symlink_to(outside)
    report = check(FlinkStore(str(job)))
    assert not report.report.restorable
