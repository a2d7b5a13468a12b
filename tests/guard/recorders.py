"""Recorders of what a command and its child processes do: by strace, or by a library that is loaded into them.

strace sees system calls, so it misses nothing. The library replaces functions of the C library and is told by the
dynamic linker of each library that it maps; it misses only programs that make system calls themselves. The
programs under test and their libraries do not.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.guard.events import Action, Event

LIBRARY = Path(__file__).with_name("preload.c")
SECONDS = 120
"""How long a busy machine may take for one command."""


class Recorded(NamedTuple):
    """How a command ended, and what it did. events: without repetitions, in their order."""

    code: int
    out: str
    err: str
    events: tuple[Event, ...]


class Recorder(ABC):
    """Runs a command and records its actions."""

    name: str

    @abstractmethod
    def missing(self) -> str | None:
        """Return why this recorder cannot be used here; None where it can."""

    @abstractmethod
    def wrap(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment that record into a file."""

    @abstractmethod
    def parse(self, text: str, cwd: str) -> Iterator[Event]:
        """Yield the events of a record, the start of the command itself excluded."""

    def run(
        self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float = SECONDS
    ) -> Recorded:
        """Run a command to its end and return what it did."""
        with tempfile.TemporaryDirectory(prefix="guard-") as folder:
            log = Path(folder) / "record"
            words, variables = self.wrap(command, log, environment)
            done = subprocess.run(
                words, cwd=cwd, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds
            )
            text = log.read_text("utf-8", "surrogateescape")
        events = tuple(dict.fromkeys(self.parse(text, os.path.realpath(cwd))))
        out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        return Recorded(done.returncode, out, err, events)


_CHANGES = ("creat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
            "mkdir", "mkdirat", "rmdir", "truncate", "chmod", "fchmodat", "chown", "fchownat", "utimensat")  # fmt: skip
_LOOKS = ("stat", "lstat", "stat64", "lstat64", "newfstatat", "fstatat64", "statx", "access", "faccessat", "faccessat2",
          "readlink", "readlinkat", "statfs", "statfs64", "chdir")  # fmt: skip
_TRACED = ("connect", "sendto", "sendmsg", "sendmmsg", "bind", "execve", "execveat", "open", "openat", "openat2", "mmap",  # noqa: E501
           *_CHANGES, *_LOOKS)  # fmt: skip
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)", re.DOTALL)
_UNFINISHED = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FOLDER = re.compile(r"(?:AT_FDCWD|\d+)<([^>]*)>, ")
_FOR_WRITING = re.compile(r"\bO_(?:WRONLY|RDWR|CREAT|TRUNC)\b")
_IPV4 = re.compile(r'sin_port=htons\((\d+)\), sin_addr=inet_addr\("([^"]*)"\)')
_IPV6 = re.compile(r'sin6_port=htons\((\d+)\).*?inet_pton\(AF_INET6, "([^"]*)"')
_UNIX = re.compile(r'sa_family=AF_UNIX, sun_path=(@?)"((?:[^"\\]|\\.)*)"')
_OTHER = re.compile(r"sa_family=(AF_\w+)")


class Strace(Recorder):
    """System calls, as strace prints them."""

    name = "strace"

    @functools.cached_property
    def _filter(self) -> list[str]:
        """Options that stop the process at traced calls alone, where strace and the kernel have them."""
        tried = subprocess.run(["strace", "-f", "--seccomp-bpf", "-e", "trace=connect", "true"], capture_output=True)
        return ["--seccomp-bpf"] if tried.returncode == 0 and b"seccomp" not in tried.stderr else []

    def missing(self) -> str | None:
        if shutil.which("strace") is None:
            return "strace is not installed"
        tried = subprocess.run(["strace", "-e", "trace=connect", "true"], capture_output=True, text=True)
        return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"

    def wrap(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        # A call that this architecture does not have, such as open on ARM, is left out by the question mark.
        traced = ",".join(f"?{name}" for name in _TRACED)
        options = [
            "-f",
            *self._filter,
            "-y",
            "-s",
            "4096",
            "-e",
            f"trace={traced}",
            "-e",
            "signal=none",
            "-o",
            str(log),
        ]
        return ["strace", *options, "--", *command], dict(environment)

    def parse(self, text: str, cwd: str) -> Iterator[Event]:
        begun: dict[str, str] = {}
        started = False
        for line in text.splitlines():
            if cut := _UNFINISHED.fullmatch(line):
                begun[cut[1]] = cut[2]
                continue
            if rest := _RESUMED.fullmatch(line):
                line = f"{rest[1]} {begun.pop(rest[1], '')}{rest[2]}"
            call = _CALL.match(line)
            if call is None:
                continue
            if call[2] == "execve" and not started:
                started = call[4] == "0"  # the command itself
                continue
            failed = call[4].startswith("-") and "EINPROGRESS" not in call[5]
            yield from _event(call[2], call[3], failed=failed, result=call[5], cwd=cwd)
        for call_begun in begun.values():  # the process ended meanwhile
            name, _, arguments = call_begun.partition("(")
            yield from _event(name, arguments, failed=True, result="", cwd=cwd)


def _event(name: str, arguments: str, *, failed: bool, result: str, cwd: str) -> Iterator[Event]:
    if name in ("connect", "bind", "sendto", "sendmsg", "sendmmsg"):
        address = _address(arguments)
        if address is not None:
            yield Event(Action.BIND if name == "bind" else Action.CONNECT, address, failed)
    elif name == "mmap":
        mapped = re.search(r"\d+<(/[^>]*)>, ", arguments)
        if mapped and "PROT_EXEC" in arguments:
            yield Event(Action.MAP, _unquoted(mapped[1]), failed)
    elif name in ("execve", "execveat"):
        for path in _paths(arguments.split(", [")[0], cwd):
            yield Event(Action.EXEC, path, failed)
    elif name in ("open", "openat", "openat2"):
        action = Action.CHANGE if _FOR_WRITING.search(_STRING.sub("", arguments)) else Action.READ
        opened = re.match(r"<(/[^>]*)>", result)
        for path in [_unquoted(opened[1])] if opened else _paths(arguments, cwd):
            yield Event(action, path, failed)
    elif name in _LOOKS:
        path = next(_paths(arguments, cwd), None)  # what comes after it is an answer
        if path is not None:
            yield Event(Action.LOOK, path, failed)
    elif name in _CHANGES:
        # What a link leads to is text, which nobody looks up.
        for path in list(_paths(arguments, cwd))[name.startswith("symlink") :]:
            yield Event(Action.CHANGE, path, failed)


def _address(arguments: str) -> str | None:
    """Return where a call sends to; None for one that names no address, on a socket that is connected."""
    for pattern in (_IPV4, _IPV6):
        if found := pattern.search(arguments):
            return f"{found[2]}:{found[1]}"
    if found := _UNIX.search(arguments):
        return found[1] + _unquoted(found[2])
    found = _OTHER.search(arguments)
    # Netlink asks this machine's kernel for its interfaces: getaddrinfo does.
    return None if found is None or found[1] in ("AF_NETLINK", "AF_UNSPEC") else found[1]


def _paths(arguments: str, cwd: str) -> Iterator[str]:
    """Yield the paths that a call names, absolute. The folder of a relative one stands before it, where it has one."""
    position = 0
    for found in _STRING.finditer(arguments):
        folders = list(_FOLDER.finditer(arguments, position, found.start()))
        base = folders[-1][1] if folders else cwd
        position = found.end()
        if not found[1]:
            continue  # the call is about the open file itself
        yield os.path.normpath(os.path.join(_unquoted(base), _unquoted(found[1])))


def _unquoted(text: str) -> str:
    if "\\" not in text:
        return text
    return (
        text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
    )


class Preloaded(Recorder):
    """Calls of the C library, and libraries that the dynamic linker maps, as a loaded library writes them down."""

    name = "preload"

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def missing(self) -> str | None:
        return None if shutil.which("cc") else "no C compiler is installed"

    @functools.cached_property
    def _library(self) -> str:
        self._folder = tempfile.TemporaryDirectory(prefix="guard-")
        path = f"{self._folder.name}/guard.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, str(LIBRARY), "-ldl"], check=True)
        return path

    def wrap(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        log.touch()
        library = self._library
        return list(command), {**environment, "LD_PRELOAD": library, "LD_AUDIT": library, "GUARD_RECORD": str(log)}

    def parse(self, text: str, cwd: str) -> Iterator[Event]:
        own = {self._library, str(self._folder.name if self._folder else "")}
        for line in text.split("\0"):
            action, failed, target = (*line.split(" ", 2), "", "")[:3]
            if not target or target in own:
                continue
            if action in (Action.CONNECT, Action.BIND):
                yield Event(Action(action), target, failed == "1")
            else:
                path = os.path.join(cwd, target)
                if (action == Action.READ and failed == "0") or action == Action.MAP:
                    path = os.path.realpath(path)
                yield Event(Action(action), os.path.normpath(path), failed == "1")


def recorders() -> list[Recorder]:
    """Return those that there are, the better one first."""
    return [Strace(), Preloaded()]


@functools.cache
def recorder(name: str | None = None) -> Recorder | str:
    """Return the recorder of this name, or the first one that can be used here; else why there is none."""
    reasons = []
    for one in recorders():
        if name in (None, one.name):
            if (why := one.missing()) is None:
                return one
            reasons.append(why)
    return "; ".join(reasons)
