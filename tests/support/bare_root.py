"""A root folder with an interpreter and nothing else: no packages, no shell, no /proc, no /dev, no network.

    root = BareRoot(folder)
    root.run("/abs-reader.pyz", "--version")

Of the system it has what Python and its standard library are linked with, and the C++ runtime. Linux; root, or a kernel
that lets users make namespaces; `unusable` says why not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HOME = "/home/sre"
LINKED = re.compile(r"(/\S+) \(0x")
RUNTIME = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")
"""Libraries of glibc and of the C++ runtime that native extensions are linked with."""
LEFT_OUT = frozenset({"__pycache__", "dist-packages", "ensurepip", "idlelib", "site-packages", "test", "tkinter"})
"""Folders of the standard library that are packages of others, or that no command uses."""


def unusable() -> str | None:
    """Return why no program can run in a root of its own here; None if it can."""
    if sys.platform != "linux":
        return "needs Linux, and root or user namespaces to change the root folder"
    if missing := [name for name in ("chroot", "ldd", "ldconfig", "unshare") if _which(name) is None]:
        return f"not installed: {', '.join(missing)} (Debian: coreutils libc-bin util-linux)"
    probe = subprocess.run([*_enter(), "/", "/bin/true"], capture_output=True, text=True)
    return f"this kernel or container refuses namespaces: {probe.stderr.strip()}" if probe.returncode else None


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _enter() -> list[str]:
    """Return the words that change the root folder, without a network."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [_which("unshare") or "unshare", *user, "--net", "--mount", _which("chroot") or "chroot"]


class BareRoot:
    """Fill a folder with an interpreter, and run Python in it as if the folder were the root of the system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = os.path.realpath(sys.executable)
        library = Path(os.__file__).resolve().parent
        self._put([self.python, *self._linked(self.python), *self._runtime()])
        modules = [path for path in library.rglob("*") if path.is_file()]
        self._put(str(path) for path in modules if not LEFT_OUT & {*path.relative_to(library).parts})
        for extension in (library / "lib-dynload").glob("*.so"):
            self._put(self._linked(str(extension)))
        (folder / HOME.lstrip("/")).mkdir(parents=True)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run Python with these words, in the root folder, as a user whose home is HOME."""
        clean = ["env", "--ignore-environment", f"HOME={HOME}", "LANG=C.UTF-8", "COLUMNS=200"]
        command = [*clean, *_enter(), self.folder, self.python, *words]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)

    def _put(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self.folder / path.lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)

    @staticmethod
    def _linked(path: str) -> list[str]:
        return LINKED.findall(subprocess.run(["ldd", path], capture_output=True, text=True).stdout)

    @staticmethod
    def _runtime() -> list[str]:
        listed = subprocess.run([_which("ldconfig") or "ldconfig", "-p"], capture_output=True, text=True).stdout
        machine = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(os.uname().machine, "")
        found = (re.search(rf"{re.escape(name)} \([^)]*{machine}[^)]*\) => (\S+)", listed) for name in RUNTIME)
        return [match[1] for match in found if match]
