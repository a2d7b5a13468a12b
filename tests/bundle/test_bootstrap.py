"""The single file unpacks itself once into a folder that nobody else can change, or says why it does not."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from abscli.cli.bundle import bootstrap
from abscli.cli.bundle.bootstrap import Refused, cache_folder, distrust, mismatch, unpacked
from tests.support.bundles import WHEELS, manifest_of, small_file, start_file

HERE = {"python": "3.11", "implementation": "cpython", "system": "linux", "machine": "x86_64", "glibc": "2.36"}
TARGET = {**HERE, "glibc": "2.28"}
BUILT = "cpython 3.11 on linux x86_64"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_file(tmp_path)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir(0o700)
    return path


def folder_in(cache: Path) -> Path:
    (folder,) = (cache / "abs").iterdir()
    return folder


# -- start ----------------------------------------------------------------------------------------------------


def test_the_file_runs_from_a_private_folder_and_ends_as_abs_does(small: Path, cache: Path) -> None:
    done = start_file(small, "inspect", "a b", cache=cache)
    assert (done.returncode, done.stderr) == (3, "")
    folder = folder_in(cache)
    assert done.stdout == f"ran {folder}/helper.py inspect a b\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    assert re.fullmatch(r"abs-small-[0-9a-f]{32}", folder.name)
    assert (folder / "helper-1.0.dist-info" / "licenses" / "LICENSE").read_text() == "free\n"


def test_the_file_is_unpacked_once(small: Path, cache: Path) -> None:
    start_file(small, cache=cache)
    mark = folder_in(cache) / "mark"
    mark.touch()
    assert start_file(small, cache=cache).returncode == 3
    assert mark.exists()


@pytest.mark.parametrize("option", ["-I", "-P", "-S"])
def test_options_of_python_do_not_hide_the_folder(small: Path, cache: Path, option: str) -> None:
    command = [sys.executable, option, small.name]
    environment = {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, cwd=small.parent, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, f"ran {folder_in(cache)}/helper.py\n"), done.stderr


def test_the_file_can_be_started_by_its_name(small: Path, cache: Path) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    assert small.read_bytes().startswith(f"#!/usr/bin/env python{version}\n".encode())
    assert os.access(small, os.X_OK)


def test_processes_that_start_at_the_same_time_share_a_folder(small: Path, cache: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache)}
    started = [
        subprocess.Popen([sys.executable, small], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]  # fmt: skip
    printed = {process.communicate(timeout=60)[0] for process in started}
    assert printed == {f"ran {folder_in(cache)}/helper.py\n"}
    assert {process.returncode for process in started} == {3}


def test_what_a_power_cut_or_a_cleaner_leaves_is_unpacked_again(small: Path, cache: Path) -> None:
    start_file(small, cache=cache)
    helper = folder_in(cache) / "helper.py"
    for spoil in (lambda: helper.write_text(""), helper.unlink):
        spoil()
        assert start_file(small, cache=cache).returncode == 3
        assert helper.read_text() == "VALUE = 1\n"
    folder_in(cache)


def test_what_a_killed_process_was_unpacking_is_removed_after_a_day(small: Path, cache: Path) -> None:
    old, new = (cache / "abs" / f"abs-small-0{bootstrap.PARTIAL}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.mkdir(parents=True)
    (cache / "abs").chmod(0o700)
    past = time.time() - bootstrap.PARTIAL_SECONDS - 60
    os.utime(old, (past, past))
    assert start_file(small, cache=cache).returncode == 3
    assert (old.exists(), new.exists()) == (False, True)


def test_another_version_has_another_folder(tmp_path: Path, small: Path, cache: Path) -> None:
    start_file(small, cache=cache)
    wheel = "helper-1.0-py3-none-any.whl"
    other = small_file(tmp_path / "other", {**WHEELS, wheel: {"helper.py": "VALUE = 2\n"}})
    assert start_file(other, cache=cache).returncode == 3
    assert len(list((cache / "abs").iterdir())) == 2


# -- folders of others ----------------------------------------------------------------------------------------


def refused(small: Path, cache: Path) -> str:
    done = start_file(small, "inspect", "x", cache=cache)
    assert (done.returncode, done.stdout) == (bootstrap.USAGE, "")
    assert "Traceback" not in done.stderr
    assert f"hint: XDG_CACHE_HOME=$(mktemp -d) {sys.executable} {small} inspect x\n" in done.stderr
    return done.stderr


@pytest.mark.parametrize("level", ["abs", "folder"])
def test_a_folder_that_others_can_write_to_is_refused(small: Path, cache: Path, level: str) -> None:
    start_file(small, cache=cache)
    folder = folder_in(cache)
    (folder if level == "folder" else folder.parent).chmod(0o777)
    assert "other users can write to" in refused(small, cache)


def test_a_link_in_place_of_the_folder_is_refused(small: Path, cache: Path, tmp_path: Path) -> None:
    start_file(small, cache=cache)
    folder = folder_in(cache)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert "is not a folder" in refused(small, cache)


def test_a_cache_in_a_folder_of_everybody_is_refused_unless_it_is_sticky(small: Path, cache: Path) -> None:
    cache.chmod(0o777)
    assert f"other users can write to {cache} (mode 0777)" in refused(small, cache)
    cache.chmod(0o1777)
    assert start_file(small, cache=cache).returncode == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_a_folder_that_somebody_else_has_made_in_advance_is_refused(small: Path, cache: Path) -> None:
    start_file(small, cache=cache)
    folder = folder_in(cache)
    os.chown(folder, 12345, 12345)
    assert f"{folder} belongs to another user (uid 12345)" in refused(small, cache)
    os.chown(folder, 0, 0)
    os.chown(cache, 12345, 12345)
    assert f"{cache} belongs to another user" in refused(small, cache)


def found(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "ancestor", "reason"),
    [
        (stat.S_IFDIR | 0o700, 7, False, None),
        (stat.S_IFDIR | 0o755, 7, False, None),
        (stat.S_IFDIR | 0o755, 8, False, "/c belongs to another user (uid 8)"),
        (stat.S_IFDIR | 0o720, 7, False, "other users can write to /c (mode 0720)"),
        (stat.S_IFDIR | 0o1777, 7, False, "other users can write to /c (mode 1777)"),
        (stat.S_IFDIR | 0o1777, 7, True, None),
        (stat.S_IFDIR | 0o777, 7, True, "other users can write to /c (mode 0777)"),
        (stat.S_IFLNK | 0o777, 7, False, "/c is not a folder"),
        (stat.S_IFREG | 0o700, 7, False, "/c is not a folder"),
    ],
)
def test_a_folder_is_trusted_by_its_kind_owner_and_mode(
    mode: int, owner: int, ancestor: bool, reason: str | None
) -> None:
    assert distrust("/c", found(mode, owner), {7}, ancestor=ancestor) == reason


# -- what does not work ---------------------------------------------------------------------------------------


def test_a_damaged_file_is_not_run(small: Path, cache: Path) -> None:
    content = bytearray(small.read_bytes())
    at = content.index(b"files/helper.py") + len(b"files/helper.py") + 3
    content[at] ^= 0xFF
    small.write_bytes(content)
    done = start_file(small, cache=cache)
    assert done.returncode == bootstrap.USAGE
    assert f"abs: error: {small} is damaged" in done.stderr
    assert list((cache / "abs").iterdir()) == []


def test_without_a_home_the_hint_names_a_folder(small: Path) -> None:
    done = start_file(small, cache=None)
    assert done.returncode == bootstrap.USAGE
    assert "hint: XDG_CACHE_HOME=$(mktemp -d) " in done.stderr


def test_a_cache_that_cannot_be_written_is_named(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = start_file(small, cache=tmp_path / "file" / "cache")
    assert done.returncode == bootstrap.STOPPED
    assert f"cannot unpack into {tmp_path}/file/cache/abs: Not a directory" in done.stderr


def test_a_file_system_that_runs_nothing_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*real[:8], os.ST_NOEXEC, real[9])))
    with pytest.raises(Refused, match="mounted noexec"):
        unpacked(str(small), manifest_of(small), str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        ({}, None),
        ({"glibc": "2.28"}, None),
        ({"glibc": "2.17"}, "it needs glibc 2.28 or later, and this is glibc 2.17"),
        ({"glibc": ""}, "it needs the C library glibc 2.28 or later"),
        ({"python": "3.13"}, f"it was built for {BUILT}, and this is cpython 3.13 on linux x86_64"),
        ({"machine": "aarch64"}, f"it was built for {BUILT}, and this is cpython 3.11 on linux aarch64"),
    ],
)
def test_the_file_runs_on_what_it_was_built_for(here: dict[str, str], reason: str | None) -> None:
    assert mismatch(TARGET, {**HERE, **here}) == reason


@pytest.mark.parametrize(
    ("here", "hint"),
    [
        ({"python": "3.13"}, "python3.11 abs-reader.pyz inspect 'my store'"),
        ({"python": "3.13", "machine": "aarch64"}, "make reader"),
        ({"machine": "aarch64"}, "make reader"),
    ],
)
def test_the_hint_names_another_python_where_one_is_enough(
    here: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "this_target", lambda: {**HERE, **here})
    monkeypatch.setattr(sys, "orig_argv", ["python3", "abs-reader.pyz", "inspect", "my store"])
    manifest = json.dumps({"name": "abs-reader", "target": TARGET, "files": []}).encode()
    with pytest.raises(Refused) as caught:
        bootstrap.prepare("abs-reader.pyz", manifest)
    assert caught.value.hint == hint


def test_the_cache_is_where_the_environment_says() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == "/c"
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == "/h/.cache"
    with pytest.raises(Refused):
        cache_folder({"HOME": ""})


def test_an_old_python_can_read_the_module() -> None:
    """It has to report that it is too old, for which it has to compile the module first."""
    source = Path(bootstrap.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))


def test_the_first_code_names_the_python_that_is_needed(small: Path) -> None:
    """A Python before 3.8 cannot read more than this."""
    with zipfile.ZipFile(small) as opened:
        main = opened.read("__main__.py").decode()
    version = "{}.{}".format(*sys.version_info[:2])
    script = f"import sys; sys.version_info = (3, 6, 8); sys.argv = ['r.pyz', 'inspect']; exec({main!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (bootstrap.USAGE, (
        f"abs: error: this file needs Python {version}, and this is Python 3.6\nhint: python{version} r.pyz inspect\n"
    ))  # fmt: skip
