"""What a command that reads may do: read its own code, the system's, and what its arguments name. All else is reported.

There is no network address on the list, and no program but the interpreter itself.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.guard.events import Action, Event

SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
"""The dynamic linker's folders, with the converters of the C library (gconv) and its compiled locales."""

SYSTEM_FILES = (
    "/etc/ld.so.cache",  # the dynamic linker's list of libraries
    "/etc/ld.so.preload",  # the dynamic linker looks for it at every start
    "/etc/localtime", "/usr/share/zoneinfo",  # the local time zone
    "/usr/share/locale", "/etc/locale.alias",  # names of locales, which setlocale looks up
    "/etc/je_arrow_malloc.conf",  # Arrow's allocator looks for its settings
    "/etc/ssl/openssl.cnf",  # read by the OpenSSL of Python's hashlib when it is loaded
    "/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo",  # what a terminal can do
    "/etc/mime.types",  # Python's mimetypes
    "/etc/_rjem_malloc.conf",  # settings of jemalloc, the memory allocator in a library of deltalake
    "/dev/null", "/dev/urandom", "/dev/tty",
    "/sys/fs/cgroup",  # how much memory and how many processors a container may use
    "/sys/devices/system/cpu", "/sys/devices/system/node",  # processors and caches: libraries that compute count them
    "/sys/kernel/mm",  # the sizes of pages: allocators of memory read them
    "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/mounts", "/proc/filesystems",
    "/proc/sys/vm", "/proc/sys/kernel",  # what the kernel tells allocators and Python
    "/proc/version_signature", "/proc/loadavg",
)  # fmt: skip
"""Files of no user and of no secret, each with the reason for which a library opens it."""

SEMAPHORES = "/dev/shm/sem."
"""What processes of one program wait for each other by."""

CODE = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".pth", ".jar", ".class")
"""Endings of names of files that a process opens to run them."""


@functools.cache
def code_of(python: str) -> tuple[str, ...]:
    """The folders in which an interpreter looks for modules, and those that its prefixes name. It also looks for
    an archive of its library above its prefix, in each folder up to the root."""
    program = (
        "import json, os, pathlib, sys, abscli, formats; "
        "zip = f'lib/python{sys.version_info.major}{sys.version_info.minor}.zip'; "
        "names = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(sys.executable), "
        "*(os.path.dirname(m.__file__) for m in (abscli, formats)), *filter(os.path.isabs, sys.path), "
        "*(str(folder / zip) for p in (sys.prefix, sys.base_prefix) for folder in pathlib.Path(p).parents)]; "
        "print(json.dumps(names))"
    )
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    return tuple(dict.fromkeys([*names, *map(os.path.realpath, names)]))


@dataclass(frozen=True)
class Policy:
    """What one command may do.

    python: the interpreter that runs it. cwd: its current folder.
    reads: files and folders that it was given to read; it may read all that is in them, and run none of it.
    changes: files and folders that it was told to write.
    code: further files that it may run, such as the job file that the user named.
    """

    python: str
    cwd: Path
    reads: tuple[Path, ...] = ()
    changes: tuple[Path, ...] = ()
    code: tuple[Path, ...] = ()

    def violations(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that are not allowed."""
        return [event for event in events if not self._allows(event)]

    def _allows(self, event: Event) -> bool:
        target = event.target
        if event.action is Action.EXEC:
            # Commands share work among processes of their own interpreter, which are watched as well.
            return target in (self.python, os.path.realpath(self.python))
        if event.action in (Action.CONNECT, Action.BIND):
            return False
        if target.startswith(SEMAPHORES):
            return event.action in (Action.CHANGE, Action.LOOK)
        if event.action is Action.CHANGE:
            # A file opened for reading and writing that must exist is a change, too.
            is_cache = "__pycache__" in target.split("/")[-2:] and _is_in(target, code_of(self.python))
            return target in ("/dev/null", "/dev/tty") or is_cache or _is_in(target, self.changes)
        if _is_in(target, (*code_of(self.python), *SYSTEM_LIBRARIES)) or _is_in(target, self.code):
            return True
        if event.action is Action.MAP or (event.action is Action.READ and target.endswith(CODE)):
            return False
        given = (*SYSTEM_FILES, *self.reads, *self.changes)
        if self._is_of_this_process(target) or _is_in(target, given):
            return True
        # Whoever opens a path, or makes it absolute, looks at the folders above it.
        return event.action is Action.LOOK and _leads_to(target, (str(self.cwd), *code_of(self.python), *given))

    @staticmethod
    def _is_of_this_process(target: str) -> bool:
        """Whether a path tells the process about itself; `cwd`, `root` and `fd/N` lead elsewhere."""
        of_process = re.fullmatch(r"/proc(?:/self|/thread-self|/\d+)?(/.*)?", target)
        if of_process is None:
            return target == "/proc"
        # The list of what is open tells nothing; what is behind an entry of it may be anything.
        return not re.match(r"/(cwd|root|fd/|environ|mem$)", of_process[1] or "")


def _leads_to(target: str, places: Iterable[str | Path]) -> bool:
    above = target.rstrip("/") + "/"
    return any(
        one.startswith(above) for place in map(str, places) for one in (f"{place}/", f"{os.path.realpath(place)}/")
    )


def _is_in(target: str, places: Iterable[str | Path]) -> bool:
    for place in map(str, places):
        if target == place or target.startswith(f"{place}/"):
            return True
        real = os.path.realpath(place)
        if real != place and (target == real or target.startswith(f"{real}/")):
            return True
    return False
