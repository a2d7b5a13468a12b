"""Start `abs` from one file: unpack it into the user's cache the first time, and run it from there.

`build` copies this module into the file, so that it uses the standard library alone. Python cannot import native
extensions from inside a zip file, which is why they have to be unpacked.

The folder is named by the digest of the manifest, which has the digest of each file: another version of `abs` never
finds the files of this one. The folder runs as code, so that nobody else may be able to write to it or to put another
one in its place: it is made with mode 0700, and `abs` refuses a folder that belongs to somebody else or that others can
write to. It is unpacked under a name that cannot be guessed and renamed when it is complete. Python 3.8 has to be
able to read this module, to report that it is too old.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

MANIFEST: Final = "manifest.json"
FILES: Final = "files/"
"""The folder inside the archive that holds what is unpacked."""
PARTIAL: Final = ".partial-"
"""The suffix of a folder while it is being unpacked."""
PARTIAL_SECONDS: Final = 86400.0
"""The age from which an incomplete folder is removed: whoever was unpacking it has been killed."""
USAGE, STOPPED, INTERRUPTED = 2, 6, 130
"""Exit codes, as in `abscli.cli.exits`."""


class Refused(Exception):
    """`abs` cannot be started from this file here. hint: one command that helps."""

    def __init__(self, message: str, hint: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


# -- decisions ------------------------------------------------------------------------------------------------


def mismatch(target: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """Return how this interpreter differs from the one that the file was built for; None if the file runs here.

    target, here: `python` ("3.11"), `implementation`, `system`, `machine`, and `glibc` for Linux ("2.28"): the oldest
    that will do, and the one that is here, empty for another C library.
    """
    for key, wanted in target.items():
        found = here.get(key, "")
        if key == "glibc":
            if not found:
                return f"it needs the C library glibc {wanted} or later"
            if _numbers(found) < _numbers(wanted):
                return f"it needs glibc {wanted} or later, and this is glibc {found}"
        elif found != wanted:
            return f"it was built for {described(target)}, and this is {described(here)}"
    return None


def described(target: Mapping[str, str]) -> str:
    """Return an interpreter in words, such as "cpython 3.11 on linux x86_64"."""
    return f"{target['implementation']} {target['python']} on {target['system']} {target['machine']}"


def cache_folder(environment: Mapping[str, str]) -> str:
    """Return the folder for caches; Refused if the environment names none. The XDG specification ignores relative ones.

    environment: XDG_CACHE_HOME and HOME are read.
    """
    named = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return named
    home = environment.get("HOME", "")
    if os.path.isabs(home):
        return os.path.join(home, ".cache")
    raise Refused("neither XDG_CACHE_HOME nor HOME names a folder to unpack into", elsewhere())


def distrust(path: str, found: os.stat_result, owners: set[int], *, ancestor: bool = False) -> str | None:
    """Return why code must not be run from a folder; None if only this user can change it.

    owners: the users who may own it.
    ancestor: somebody else may write to a folder above if it is sticky, as /tmp is: only owners rename what is in it.
    """
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a folder"
    if found.st_uid not in owners:
        return f"{path} belongs to another user (uid {found.st_uid})"
    if found.st_mode & 0o022 and not (ancestor and found.st_mode & stat.S_ISVTX):
        return f"other users can write to {path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def elsewhere() -> str:
    """Return the command that was typed, with another folder to unpack into."""
    return f"XDG_CACHE_HOME=$(mktemp -d) {typed()}"


def typed(python: str | None = None) -> str:
    """Return the command that was typed, as a shell takes it. python: the name of another interpreter."""
    words = list(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    return " ".join(shlex.quote(word) for word in ([python] if python else words[:1]) + words[1:])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# -- what is here ---------------------------------------------------------------------------------------------


def this_target() -> dict[str, str]:
    """Describe this interpreter in the terms of a manifest."""
    target = {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "implementation": sys.implementation.name,
        "system": sys.platform,
        "machine": os.uname().machine if hasattr(os, "uname") else "",
    }
    with contextlib.suppress(AttributeError, OSError, ValueError):
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        if name == "glibc":
            target["glibc"] = version
    return target


def private_folder(path: str) -> str:
    """Make a folder that only this user can change, unless it exists, and return its real path; Refused, OSError."""
    real = os.path.realpath(path)
    os.makedirs(os.path.dirname(real), 0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(real, 0o700)
    check_private(real)
    return real


def check_private(real: str) -> None:
    """Raise Refused if somebody else could change a folder, or put another one in its place.

    real: without symbolic links, except the last part, which must not be one.
    """
    me = os.geteuid()
    reason = distrust(real, os.lstat(real), {me})
    # In a user namespace the folders of root belong to whoever "/" does.
    owners = {me, 0, os.stat("/").st_uid}
    above = os.path.dirname(real)
    while reason is None:
        reason = distrust(above, os.stat(above), owners, ancestor=True)
        if above == os.path.dirname(above):
            break
        above = os.path.dirname(above)
    if reason is not None:
        raise Refused(f"cannot run code from the cache: {reason}", elsewhere())


def is_intact(folder: str, files: list[list[Any]]) -> bool:
    """Tell whether all files have their sizes: a power cut leaves empty ones, and cleaners of caches remove some."""
    try:
        return all(os.stat(os.path.join(folder, name)).st_size == size for name, size, _ in files)
    except OSError:
        return False


def unpacked(archive: str, manifest: bytes, parent: str) -> str:
    """Return the folder with the files of the archive, which is unpacked if it is not there yet; Refused, OSError.

    manifest: as in the archive; parent: the folder in which the folder lies, which is made.
    """
    facts = json.loads(manifest)
    name = f"{facts['name']}-{hashlib.sha256(manifest).hexdigest()[:32]}"
    parent = private_folder(parent)
    folder = os.path.join(parent, name)
    if os.path.lexists(folder):
        check_private(folder)
        if is_intact(folder, facts["files"]):
            return folder
    if os.statvfs(parent).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise Refused(f"no code may run from the file system of {parent}, which is mounted noexec", elsewhere())
    _remove_leftovers(parent)
    partial = tempfile.mkdtemp(prefix=name + PARTIAL, dir=parent)
    try:
        _extract(archive, facts["files"], partial)
        if os.path.lexists(folder) and not is_intact(folder, facts["files"]):
            # Moved first: a process that runs from it keeps the files that it has open.
            os.rename(folder, partial + "-old")
            shutil.rmtree(partial + "-old", ignore_errors=True)
        try:
            os.rename(partial, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            check_private(folder)  # somebody else has been faster: the name says that the files are the same
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _extract(archive: str, files: list[list[Any]], folder: str) -> None:
    """Copy the listed files out of the archive; Refused if one has another digest than the manifest says."""
    with zipfile.ZipFile(archive) as opened:
        for name, size, digest in files:
            # Whoever can change the manifest can change this code as well: against mistakes of the build.
            if os.path.isabs(name) or ".." in name.split("/"):
                raise Refused(f"{archive} names a file outside of its folder: {name}", "make reader")
            content = opened.read(FILES + name)
            if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
                raise Refused(f"{archive} is damaged: {name} is not what was put into it", "make reader")
            path = os.path.join(folder, *name.split("/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as out:
                out.write(content)


def _remove_leftovers(parent: str) -> None:
    for entry in os.listdir(parent):
        path = os.path.join(parent, entry)
        with contextlib.suppress(OSError):
            if PARTIAL in entry and time.time() - os.lstat(path).st_mtime > PARTIAL_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


# -- start ----------------------------------------------------------------------------------------------------


def prepare(archive: str, manifest: bytes) -> str:
    """Return the folder to import from; Refused."""
    facts = json.loads(manifest)
    target, here = facts["target"], this_target()
    problem = mismatch(target, here)
    if problem is not None:
        other = target["python"] != here["python"] and mismatch(target, {**here, "python": target["python"]}) is None
        raise Refused(f"this file does not run here: {problem}", typed(f"python{target['python']}") if other
                      else "make reader")  # fmt: skip
    parent = os.path.join(cache_folder(os.environ), "abs")
    try:
        return unpacked(archive, manifest, parent)
    except OSError as error:
        raise Refused(f"cannot unpack into {parent}: {error.strerror or error}", elsewhere(), STOPPED) from None
    except (EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise Refused(f"{archive} is damaged: {error}", "make reader") from None


def start() -> int:
    """Run `abs` with the arguments of this process; return its exit code."""
    archive = os.path.dirname(os.path.abspath(__file__))
    try:
        with zipfile.ZipFile(archive) as opened:
            manifest = opened.read(MANIFEST)
        folder = prepare(archive, manifest)
    except Refused as error:
        sys.stderr.write(f"abs: error: {error}\nhint: {error.hint}\n")
        return error.code
    except KeyboardInterrupt:
        sys.stderr.write("abs: error: interrupted\n")
        return INTERRUPTED
    # In place of the archive, and ahead of the packages of this Python: those are found for what the file lacks.
    sys.path[:] = [folder, *(path for path in sys.path if os.path.abspath(path) != archive)]
    code = importlib.import_module("abscli.cli.main").main()
    assert isinstance(code, int)
    return code
