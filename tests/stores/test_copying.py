"""Copies of checkpoints: whole or not there, whatever ends them; nothing that is there is written over."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from abscli.cli.main import main
from abscli.stores.copying import check_folder, check_target, new_folder
from abscli.stores.pinned import pin
from formats.errors import Damaged, FormatError, NotFound, StalePlan, UnsafePath
from formats.native.plan import NativePlan
from formats.plan import Plan
from formats.storage import LocalStorage
from tests.native.test_text_plan import FULL
from tests.support.flink.truth import DATA
from tests.support.spark.data import copy_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> LocalStorage:
    folder = tmp_path / "source"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(b"0123456789")
    return LocalStorage(folder)


@pytest.fixture
def to(tmp_path: Path) -> str:
    return str(tmp_path / "copies" / "copy")


def contents(folder: str | Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def beside(to: str) -> list[str]:
    return sorted(os.listdir(os.path.dirname(to)))


def copied(to: str, then: Callable[[], object]) -> None:
    """A copy of one file, and what happens before it is given its name."""
    with new_folder(to) as folder:
        folder.write("new", b"x")
        then()


def test_a_copy_appears_when_it_is_whole(source: LocalStorage, to: str) -> None:
    written = []
    with new_folder(to, written.append) as folder:
        folder.copy(source, "a/b/file")
        folder.copy(source, "a/b/file", "c/part", start=2, length=3)
        folder.write("new", b"x")
        assert not os.path.exists(to)
        assert contents(folder.path) == {"a/b/file": b"0123456789", "c/part": b"234", "new": b"x"}
        assert (folder.files, folder.bytes, sum(written)) == (3, 14, 14)
    assert contents(to) == {"a/b/file": b"0123456789", "c/part": b"234", "new": b"x"}
    assert beside(to) == ["copy"]


def test_an_empty_folder_is_taken(to: str) -> None:
    os.makedirs(to)
    assert check_target(to, []) == to
    with new_folder(to) as folder:
        folder.write("new", b"x")
    assert contents(to) == {"new": b"x"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
def test_a_copy_that_fails_leaves_nothing(error: type[BaseException], to: str) -> None:
    def stop() -> None:
        raise error

    with pytest.raises(error):
        copied(to, stop)
    assert beside(to) == []


def test_a_file_that_is_not_the_pinned_one_makes_the_plan_stale(source: LocalStorage, to: str, tmp_path: Path) -> None:
    plan: Plan[NativePlan] = FULL
    pinned = pin(source, "a/b/file")
    (tmp_path / "source/a/b/file").write_bytes(b"0123456780")
    with pytest.raises(StalePlan, match="a/b/file has SHA-256"), new_folder(to) as folder:
        folder.copy(source, "a/b/file", pinned=(plan, pinned))
    (tmp_path / "source/a/b/file").unlink()
    with pytest.raises(StalePlan, match="a/b/file is missing"), new_folder(to) as folder:
        folder.copy(source, "a/b/file", pinned=(plan, pinned))
    with pytest.raises(NotFound), new_folder(to) as folder:
        folder.copy(source, "a/b/file")
    assert beside(to) == []


def test_a_file_that_gives_too_little_is_damaged(source: LocalStorage, to: str) -> None:
    with pytest.raises(Damaged, match="expected 9 bytes, got 8 bytes"), new_folder(to) as folder:
        folder.copy(source, "a/b/file", start=2, length=9)


def test_no_name_leads_out_of_the_copy(to: str) -> None:
    for name in ("../x", "/x", "a/../../x"):
        with pytest.raises(UnsafePath), new_folder(to) as folder:
            folder.write(name, b"")


def test_no_file_of_a_copy_lies_deeper_than_can_be_removed_again(to: str) -> None:
    with pytest.raises(FormatError, match="more than 100 directories"), new_folder(to) as folder:
        folder.write("a/" * 1500 + "b", b"1")
    assert list(Path(to).parent.iterdir()) == []


def test_what_is_in_the_way_is_told_with_what_to_do(source: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "lost").symlink_to("nowhere")
    cases = {
        "file": "already exists and is not an empty directory",
        "full": "already exists and is not an empty directory",
        "link": "is a symbolic link to ",
        "lost": "is a symbolic link to ",
        "source": "which the command reads",
        "source/new": "which the command reads",
    }
    for name, message in cases.items():
        with pytest.raises(FormatError, match=message) as error:
            check_target(str(tmp_path / name), [source.root])
        assert (error.value.path, bool(error.value.hint)) == (str(tmp_path / name), True)
    for to in ("viewfs://host/copy", "http://host/copy"):
        with pytest.raises(FormatError, match="of no kind of store"):
            check_target(to, [])
    with pytest.raises(FormatError, match="a local directory"):
        check_folder("s3://bucket/copy", [])
    with pytest.raises(FormatError, match="mount point"):
        check_target("/sys/fs/cgroup" if not os.listdir("/sys/fs/cgroup") else _mounted(), [])
    assert check_target(f"file:{tmp_path}/source2", [source.root]) == f"{tmp_path}/source2"


def _mounted() -> str:
    """An empty directory on which something is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        place = line.split()[1]
        if os.path.isdir(place) and os.access(place, os.R_OK) and not os.listdir(place):
            return place
    pytest.skip("no empty mount point here")


@pytest.mark.parametrize("what", ["file", "full", "link"])
def test_what_somebody_puts_there_meanwhile_is_not_written_over(what: str, to: str, tmp_path: Path) -> None:
    def put() -> None:
        if what == "file":
            Path(to).write_text("mine")
        elif what == "link":
            os.symlink(tmp_path, to)
        else:
            os.mkdir(to)
            (Path(to) / "theirs").write_text("theirs")

    with pytest.raises(FormatError, match="already exists"):
        copied(to, put)
    assert beside(to) == ["copy"]
    assert what == "link" or not (Path(to) / "new").exists()


@pytest.mark.parametrize(("size", "most"), [(1 << 20, 1 << 16), (1000, 100)])
def test_a_disk_that_is_full_is_told_with_the_file_and_the_sizes(
    source: LocalStorage, to: str, size: int, most: int, tmp_path: Path
) -> None:
    """A small file is written when it is closed."""
    (tmp_path / "source/large").write_bytes(bytes(size))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        with pytest.raises(OSError, match=rf"{size:,} bytes were to be written, [0-9,]+ bytes are free") as error:  # noqa: SIM117
            with new_folder(to) as folder:
                folder.copy(source, "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename == f"{to}/large"
    assert beside(to) == []


# -- copies whose process is killed ----------------------------------------------------------------------------


HOLDS = """
import sys
from abscli.stores.copying import new_folder
with new_folder(sys.argv[1]) as folder:
    folder.write("a", b"x")
    print(folder.path, flush=True)
    sys.stdin.readline()
"""


def holder(to: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS, to], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def path_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_what_a_killed_copy_left_is_removed_by_the_next_to_the_same_name(to: str) -> None:
    os.makedirs(os.path.dirname(to))
    others = [f"{to}-2", os.path.join(os.path.dirname(to), ".other.tmp-0123456789abcdef")]
    for other in others:
        os.mkdir(other)
    with holder(to) as killed, holder(to) as living:
        left, kept = path_of(killed), path_of(living)
        assert os.path.basename(left).startswith(".copy.tmp-")
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert contents(left) == {"a": b"x"}
        assert not os.path.exists(to)
        with new_folder(to) as folder:
            assert not os.path.exists(left)
            assert contents(kept) == {"a": b"x"}
            folder.write("b", b"y")
        living.communicate("\n", timeout=60)
        assert living.returncode != 0  # the other one was first
    assert contents(to) == {"b": b"y"}
    assert beside(to) == sorted(["copy", *map(os.path.basename, others)])


def flink(tmp_path: Path) -> Path:
    return Path(shutil.copytree(next((DATA / "hashmap-savepoint-canonical").iterdir()), tmp_path / "savepoint"))


def spark(tmp_path: Path) -> Path:
    return copy_of("wc_hdfs", tmp_path)


KILLED = """
import os, signal, sys
from abscli.stores import copying
inner = copying.NewFolder._write
def last(*given):
    inner(*given)
    os.kill(os.getpid(), signal.SIGKILL)
copying.NewFolder._write = last
from abscli.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("make", [flink, spark])
def test_a_restore_that_is_killed_leaves_no_copy_and_the_next_one_makes_it_whole(
    make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, to = str(tmp_path / "plan.json"), str(tmp_path / "copies/copy")
    assert main(["plan-recovery", str(make(tmp_path)), "--out", plan]) == 0
    command = ["restore", plan, "--to", to]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, *command], env=environment, timeout=120)
    assert done.returncode == -signal.SIGKILL
    (left,) = beside(to)
    assert left.startswith(".copy.tmp-")
    assert len(contents(os.path.join(os.path.dirname(to), left))) == 1
    assert main(command) == 0
    assert beside(to) == ["copy"]
    assert main(["validate", to]) == 0
    capsys.readouterr()
