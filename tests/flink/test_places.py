"""Where the files of Flink's checkpoints lie: as they are named, moved with their job, mapped, searched for."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from abscli.report.findings import Code
from formats.errors import Unreachable
from formats.flink.facts import file_handles
from formats.flink.files import folders
from formats.flink.files.folders import Folder, FolderStreams
from formats.flink.files.resolve import How, PathMap, parse_path_map, plain, resolve, search_roots
from formats.flink.metadata.handles import FileHandle, RelativeHandle, SegmentHandle
from formats.flink.store import FlinkStore
from formats.storage import Entry, MemoryStorage
from tests.support.commands import run_command
from tests.support.flink.cases import HASHMAP, MERGED, check, job_id_twice, largest
from tests.support.flink.truth import DATA


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


def test_a_damaged_checkpoint_is_not_unknown_if_files_were_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """Some files are missing, and others are in directories that were not named."""
    job = next((DATA / "rocksdb-incremental").iterdir())
    code, out, _ = run_command("validate", capsys, job)
    assert (code, out.splitlines()[0]) == (3, "DAMAGED: checkpoint 4. No checkpoint can be restored.")
    assert "whether it is intact is not known" not in out
    assert "were not looked at: --search" in " ".join(out.split())


# -- files where the metadata says --------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A job where Flink wrote it."""
    (tmp_path / "written").mkdir()
    return job_id_twice(tmp_path / "written")


def part(whole: Path, folder: Path, shared: int) -> Path:
    """Copy chk-3 of a job, and some of the files that it shares."""
    job = folder / whole.name
    shutil.copytree(whole / "chk-3", job / "chk-3")
    (job / "shared").mkdir()
    needed = [Path(handle.path).name for _, _, handle in file_handles(FlinkStore(str(whole)).metadata(3))]
    for name in [name for name in needed if (whole / "shared" / name).exists()][:shared]:
        shutil.copy2(whole / "shared" / name, job / "shared" / name)
    return job


@pytest.mark.parametrize("shared", [0, 5])
def test_a_checkpoint_copied_in_part_is_complete_where_its_files_are_where_flink_looks(
    whole: Path, tmp_path: Path, shared: int
) -> None:
    report = check(FlinkStore(str(part(whole, tmp_path / "copy", shared))))
    assert report.report.epochs[0].findings == ()
    assert report.report.restorable == (3,)
    assert report.why[3][Code.UNREADABLE].startswith(f"{12 - shared} files in {whole}/shared were not read: --search")


@pytest.mark.parametrize("shared", [0, 5])
def test_a_file_that_is_missing_there_too_is_lost(whole: Path, tmp_path: Path, shared: int) -> None:
    job = part(whole, tmp_path / "copy", shared)
    copied = {path.name for path in (job / "shared").iterdir()}
    needed = {Path(handle.path).name for _, _, handle in file_handles(FlinkStore(str(whole)).metadata(3))}
    lost = next(path for path in (whole / "shared").iterdir() if path.name in needed - copied)
    lost.unlink()
    (epoch,) = check(FlinkStore(str(job))).report.epochs
    assert {(finding.code, Path(finding.path or "").name) for finding in epoch.findings} == {
        (Code.MISSING_FILE, lost.name)
    }
    assert "neither here nor where Flink looks for it" in epoch.findings[0].message
    shutil.rmtree(whole)
    (epoch,) = check(FlinkStore(str(job))).report.epochs
    assert len(epoch.findings) == 12 - shared, "nothing is left where Flink looks"


def test_a_file_of_another_size_where_flink_looks_is_damaged(whole: Path, tmp_path: Path) -> None:
    job = part(whole, tmp_path / "copy", 0)
    needed = {Path(handle.path).name for _, _, handle in file_handles(FlinkStore(str(whole)).metadata(3))}
    short = next(path for path in (whole / "shared").iterdir() if path.name in needed)
    short.write_bytes(short.read_bytes()[:-1])
    (epoch,) = check(FlinkStore(str(job))).report.epochs
    assert [finding.code for finding in epoch.findings] == [Code.SIZE_MISMATCH]


@pytest.mark.parametrize(
    ("directories", "named"),
    [
        (["/data/ck/a/shared"], ("/data/ck/a/shared",)),
        (["/data/ck/a/shared", "/data/ck/b/shared"], ("/data/ck",)),
        (["/data/a/shared", "/srv/b/shared"], ("/data/a/shared", "/srv/b/shared")),
        (["/data/a", "/data/b"], ("/data/a", "/data/b")),
        (["s3://b/5f3a/job/shared", "s3a://b/91bc/job/shared", "s3p://b/x"], ("s3://b",)),
        (["s3://b/5f3a/job", "s3://c/91bc/job"], ("s3://b/5f3a/job", "s3://c/91bc/job")),
        (["s3://b/x", "/data/x"], ("/data/x", "s3://b/x")),
        ([], ()),
    ],
)
def test_the_fewest_directories_are_named_for_a_search(directories: list[str], named: tuple[str, ...]) -> None:
    assert search_roots(directories) == named


class Bucket(MemoryStorage):
    """A bucket, or a prefix in it; a list of what the credentials do not cover fails."""

    def __init__(self, root: str, files: dict[str, bytes], refused: str = "\0") -> None:
        super().__init__()
        self.place, self.files, self.refused = root, files, refused

    @property
    def root(self) -> str:
        return self.place

    def list(self, path: str) -> list[Entry]:
        if f"{path}/".startswith(self.refused):
            raise Unreachable("access denied", path=path)
        return super().list(path)


@pytest.mark.parametrize(
    ("path", "refused", "looked", "size"),
    [
        ("s3a://bkt/5f3a/ck/JOB/shared/a", "\0", True, 3),
        ("s3p://bkt/91bc/ck/JOB/shared/b", "\0", True, 4),
        ("s3://bkt/91bc/ck/JOB/shared/c", "\0", True, None),
        ("s3://bkt/5f3a/ck/JOB/shared/a", "5f3a", False, None),
        ("s3://other/5f3a/ck/JOB/shared/a", "\0", False, None),
        ("hdfs://nn:8020/ck/JOB/shared/a", "\0", False, None),
        ("/ck/JOB/shared/a", "\0", False, None),
    ],
)
def test_a_path_of_the_same_bucket_is_looked_at_with_the_same_credentials(
    path: str, refused: str, looked: bool, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 with entropy injection: each file has a random prefix in front of the path of its job."""
    files = {"5f3a/ck/JOB/shared/a": b"abc", "91bc/ck/JOB/shared/b": b"abcd"}
    monkeypatch.setattr(folders, "open_storage", lambda root: Bucket(root, files, refused))
    job = Folder(Bucket("s3://bkt/ck/JOB", {"chk-3/_metadata": b"m"}))
    streams = FolderStreams("chk-3", [job])
    assert streams.outside(FileHandle(path, 3)) == (looked, size)


@pytest.mark.parametrize("shared", [0, 5])
def test_a_plan_is_only_made_if_restore_can_execute_it(
    whole: Path, tmp_path: Path, shared: int, capsys: pytest.CaptureFixture[str]
) -> None:
    job = part(whole, tmp_path / "copy", shared)
    code, out, err = run_command("plan-recovery", capsys, job, "--out", tmp_path / "plan.json")
    assert (code, out, (tmp_path / "plan.json").exists()) == (4, "", False)
    command = f"abs plan-recovery {job}@3 --search {whole}/shared --out plan.json"
    assert f"{command}; to start without a copy: flink run -s file://{job}/chk-3" in err
    words = command.replace("plan.json", str(tmp_path / "plan.json")).split()[2:]
    assert run_command("plan-recovery", capsys, *words)[0] == 0
    assert run_command("restore", capsys, tmp_path / "plan.json", "--to", tmp_path / "restored")[0] == 0
    assert check(FlinkStore(str(tmp_path / "restored"))).report.restorable == (3,)


def test_the_next_command_has_the_options_that_made_the_plan_possible(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole / "chk-3", lone := tmp_path / "lone")
    shutil.move(whole, moved := tmp_path / "it's moved")
    for option, value in (("--search", str(moved)), ("--path-map", f"{whole}={moved}")):
        code, out, _ = run_command("plan-recovery", capsys, lone, option, value)
        assert code == 0
        (line,) = [line for line in out.splitlines() if line.startswith("Next: abs plan-recovery")]
        words = shlex.split(line)[3:]
        assert words[1:3] == [option, value]
        assert run_command("plan-recovery", capsys, *words[:-1], tmp_path / f"{option}.json")[0] == 0
