"""Run `abs` in a forked child per command, and observe what it does to the machine.

The modules of all commands are imported once, in this process. A child has the limits of one command and an audit
hook.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CPU_SECONDS = 60
WALL_SECONDS = 300
"""A child that waits for something else than the processor is killed after this time."""
MEMORY = 1 << 30
"""Bytes that a command may have in memory at most."""
OUTPUT = 64 << 20
"""Bytes of output that are read back."""

_CHANGES = {
    "os.mkdir": 1, "os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.link": 2, "os.symlink": 2, "os.truncate": 1,
    "os.chmod": 1, "os.chown": 1, "os.utime": 1,
}  # fmt: skip
"""Audit events that change a file system, with the number of their arguments that are paths."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PREFIXES = ("abscli.", "formats.", "pyarrow", "numpy", "msgspec", "typer", "yaml", "rich", "rocksdict", "click")
_SECRETS = ("ABS_", "AWS_", "AZURE_", "GOOGLE_", "PYICEBERG_")
_OTHERS = frozenset({
    "socket.connect", "socket.sendto", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.posix_spawn",
    "os.system",
})  # fmt: skip
"""Audit events of connections and of programs that are started."""


class Ran(NamedTuple):
    """A command that has ended.

    code: exit code; the negative number of the signal that ended the process;
    seconds: of CPU;
    peak: bytes in memory;
    outside: what it did outside of its folder, and connections that it opened.
    """

    code: int
    out: str
    err: str
    seconds: float
    peak: int
    outside: tuple[str, ...]


class Runner:
    """Run commands with `folder` as current folder, the only one in which they may write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name(f"{folder.name}-report")
        self._aside.mkdir(parents=True, exist_ok=True)

    def import_what(self, *commands: Sequence[str]) -> None:
        """Import the modules that these commands need; they run in children, since a library may start threads."""
        for command in commands:
            ran = self.run(command, modules=True)
            for name in json.loads((self._aside / "modules").read_text()) if ran.code >= 0 else ():
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None, *, modules: bool = False
    ) -> Ran:
        """Run one command to its end."""
        for name in ("out", "err", "outside", "modules"):
            (self._aside / name).unlink(missing_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = self._child(arguments, environment or {}, modules)
            finally:
                os._exit(code)
        status, used = _wait(child)
        outside = self._read("outside").splitlines()
        return Ran(
            os.waitstatus_to_exitcode(status), self._read("out"), self._read("err"), used.ru_utime + used.ru_stime,
            used.ru_maxrss * 1024, tuple(outside),
        )  # fmt: skip

    def _read(self, name: str) -> str:
        try:
            with (self._aside / name).open("rb") as file:
                return file.read(OUTPUT).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _child(self, arguments: Sequence[str], environment: Mapping[str, str], modules: bool) -> int:
        os.setsid()
        os.chdir(self._folder)
        for name in [name for name in os.environ if name.startswith(_SECRETS)]:
            del os.environ[name]
        folders = {"HOME": str(self._folder), "TMPDIR": str(self._folder / "tmp")}
        os.environ.update({**folders, "COLUMNS": "120", **environment})
        tempfile.tempdir = None  # a module may have asked for it in the parent
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(self._aside / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        outside = os.open(self._aside / "outside", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sys.dont_write_bytecode = True
        sys.addaudithook(_Observer(str(self._folder), outside))
        sys.argv = ["abs", *arguments]
        from abscli.cli.main import main

        atexit._clear()  # those of the parent are not for a child
        code = main()
        atexit._run_exitfuncs()  # as at the end of a process; temporary folders are removed there
        sys.stdout.flush()
        sys.stderr.flush()
        if modules:
            names = [name for name in list(sys.modules) if name.startswith(_PREFIXES)]
            os.write(os.open(self._aside / "modules", os.O_WRONLY | os.O_CREAT), json.dumps(names).encode())
        return code


class _Observer:
    """An audit hook that writes down changes outside of a folder, connections and programs that are started."""

    def __init__(self, folder: str, out: int) -> None:
        self._folder = folder
        self._real = os.path.realpath(folder)
        self._out = out
        self._busy = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._look(event, arguments)
        finally:
            self._busy = False

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES:
                self._check(event, path)
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]]:
                self._check(event, path)
        elif event in _OTHERS:
            self._note(f"{event} {arguments[:2]!r}")

    def _check(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        place = os.path.abspath(os.fsdecode(path))
        inside = (self._folder + "/", self._real + "/", "/dev/", "/proc/self/")
        if not place.startswith(inside) and place != self._folder:
            self._note(f"{event} {place}")

    def _note(self, text: str) -> None:
        os.write(self._out, ascii(text)[:500].encode() + b"\n")


def _wait(child: int) -> tuple[int, resource.struct_rusage]:
    """Wait for a child and end what it has left running in its session."""
    ended = os.pidfd_open(child)
    try:
        deadline = time.monotonic() + WALL_SECONDS
        while not select.select([ended], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if time.monotonic() >= deadline:
                os.kill(child, signal.SIGKILL)
                break
    finally:
        os.close(ended)
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return status, used
