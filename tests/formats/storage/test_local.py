"""Storage on a file system, beside the contract: links, pipes, the order of its system calls, and URIs of no store."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.cli.main import main
from formats.errors import Damaged, NotFound, UnsafePath
from formats.storage import Entry, LocalStorage, check_path, open_storage, ranges


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    (tmp_path / "root").mkdir()
    return LocalStorage(tmp_path / "root")


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_is_durable_before_it_is_visible_and_its_name_before_put_returns(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    """The order of system calls: a power cut after `put` must not take back the file, its name or its folders."""
    calls: list[tuple[str, str]] = []
    fsync, mkdir, link, rename = os.fsync, os.mkdir, os.link, os.replace

    def noted(name: str, path: str) -> None:
        calls.append((name, os.path.relpath(path, local.root)))

    monkeypatch.setattr(os, "fsync", lambda fd: (noted("fsync", os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "mkdir", lambda path, *mode: (noted("mkdir", path), mkdir(path, *mode)))
    monkeypatch.setattr(os, "link", lambda source, target: (noted("name", target), link(source, target)))
    monkeypatch.setattr(os, "replace", lambda source, target: (noted("name", target), rename(source, target)))
    local.put("a/b/c", b"12", replace=replace)
    temporary = next(path for name, path in calls if name == "fsync" and os.path.basename(path).startswith(".tmp-"))
    named = calls.index(("name", "a/b/c"))
    assert calls.index(("fsync", temporary)) < named
    assert ("fsync", "a/b") in calls[named:]
    for folder, parent in (("a", "."), ("a/b", "a")):
        assert ("fsync", parent) in calls[calls.index(("mkdir", folder)) : named]
    calls.clear()
    local.put("a/b/d", b"12", replace=replace)
    assert [call for call in calls if not os.path.basename(call[1]).startswith(".tmp-")] == [
        ("name", "a/b/d"),
        ("fsync", "a/b"),
    ]


@given(st.text(alphabet="ab./\\\0", max_size=12))
def test_a_path_that_passes_stays_below_the_root(path: str) -> None:
    try:
        check_path(path)
    except UnsafePath:
        return
    assert os.path.normpath(f"/root/{path}") == f"/root/{path}"


def test_a_symbolic_link_out_of_the_root_is_refused(local: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "folder").symlink_to(tmp_path)
    for path in ("file", "folder/secret"):
        with pytest.raises(UnsafePath):
            local.read(path)
        with pytest.raises(UnsafePath):
            local.size(path)


def test_a_path_may_lie_deeper_than_calls_can(local: LocalStorage) -> None:
    assert local.size("a/" * 3000 + "b") is None
    with pytest.raises(NotFound):
        local.read("a/" * 3000 + "b")


def test_the_root_of_a_machine_is_a_directory_like_others(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "link").symlink_to("f")
    root = LocalStorage("/")
    assert root.size("no-such-file") is None
    assert root.read(f"{tmp_path}/f".lstrip("/")) == root.read(f"{tmp_path}/link".lstrip("/")) == b"1"


def test_only_plain_files_have_a_size(local: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "root" / "folder").mkdir()
    os.mkfifo(tmp_path / "root" / "pipe")
    assert local.size("folder") is None
    assert local.size("pipe") is None
    with pytest.raises(Damaged):
        local.read("folder")


def test_no_room_is_made_for_more_than_is_there(local: LocalStorage) -> None:
    """Facts name lengths, and whoever writes facts may name any."""
    local.put("file.pack", b"0123")
    assert local.read("file.pack", 1, 2**62) == b"123"
    assert local.read("file.pack", 9, 2**62) == b""
    assert ranges.read(local, f"file.pack@{1:012d}+{10**12 - 1:012d}/log") == b"123"


def test_a_link_to_itself_and_a_socket_are_no_plain_files(local: LocalStorage, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(root):
        made.bind("socket")
    for path in ("loop", "socket", "loop/below"):
        assert local.size(path) is None
        with pytest.raises(Damaged, match="not a plain file"):
            local.read(path)
    assert local.list("loop") == []


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_uri_is_a_path_as_java_writes_it_too(local: LocalStorage, scheme: str) -> None:
    local.put("a", b"1")
    assert open_storage(f"{scheme}{local.root}").read("a") == b"1"


def test_a_name_that_no_file_can_have_is_not_found(local: LocalStorage) -> None:
    assert local.size("x" * 5000) is None
    assert local.list("x" * 5000) == []
    with pytest.raises(NotFound):
        local.read("x" * 5000)


def test_an_unfinished_write_is_not_seen(local: LocalStorage, tmp_path: Path) -> None:
    local.put("a", b"1")
    (tmp_path / "root" / ".tmp-abc").write_bytes(b"half")
    assert [entry.name for entry in local.list("")] == ["a"]


def test_a_failed_put_leaves_nothing(local: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        local.put("a", b"1")
    assert os.listdir(tmp_path / "root") == []


@pytest.mark.parametrize("step", ["mkdir", "open"])
def test_a_directory_that_goes_away_below_a_put_is_made_again(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Who deletes the last file of a directory removes it, also while another process is about to write there."""
    local.put("epochs/1/old", b"old")
    plain = getattr(os, step)

    def late(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(os, step, plain)
        LocalStorage(local.root).delete("epochs/1/old")
        return plain(*arguments, **options)

    monkeypatch.setattr(os, step, late)
    local.put("epochs/1/parts/new", b"new")
    assert local.read("epochs/1/parts/new") == b"new"
    assert local.list("epochs/1") == [Entry("parts", None)]


def test_a_missing_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_storage(str(tmp_path / "none"))


def test_a_link_whose_reply_was_lost_is_known_again(
    local: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS asks again, and is told that the name is taken: by its own first request, or by somebody else."""
    link = os.link

    def asked_twice(source: str, target: str) -> None:
        with contextlib.suppress(FileExistsError):
            link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", asked_twice)
    local.put("a", b"mine")
    with pytest.raises(FileExistsError):
        local.put("a", b"another's")
    assert local.read("a") == b"mine"
    assert [file.path for file in local.inventory()] == ["a"]


def test_a_pipe_in_place_of_a_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Damaged, match="not a plain file"):
        LocalStorage(tmp_path).read("pipe")


@pytest.mark.parametrize("uri", ["wasb://c@a/x", "dbfs://x/y", "oss://b/x", "http://h/x", "s3://", "gs://"])
def test_a_uri_of_no_known_store_is_a_slip_of_the_pen(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", uri]) == 2
    assert "hint: " in capsys.readouterr().err


@pytest.mark.parametrize("uri", ["abfss://c@a.dfs.core.windows.net/x", "abfs://c@a.dfs.core.windows.net/x", "s3a://b/x",
                                 "wasbs://c@a.blob.core.windows.net/x", "gs://b/x", "az://c/x"])  # fmt: skip
def test_whatever_obstore_raises_of_a_store_it_is_out_of_reach(
    uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names that Hadoop gives to stores are known."""
    from obstore import exceptions

    from formats.storage import objects

    asked: list[objects.Bucket] = []

    def refused(bucket: objects.Bucket, *others: object) -> None:
        asked.append(bucket)
        raise exceptions.GenericError("Generic error: no token\n\nDebug source: more")

    monkeypatch.setattr(objects, "_client", refused)
    assert main(["validate", uri]) == 6
    assert asked[0].kind in ("s3", "gs", "az")
    assert f"{uri}: Generic error: no token\n" in capsys.readouterr().err
