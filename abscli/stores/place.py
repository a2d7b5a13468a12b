"""Whether the place of a store is one: it can be reached, read and written, files are created once, there is room, and
its clock goes as ours does.

What is written is a probe of a few bytes under a name that no store reads, which is removed at once; of Flink's and
Spark's checkpoints nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator

from abscli.report.health import Check, Verdict
from formats.errors import FormatError, NotFound
from formats.native import layout
from formats.storage import LocalStorage, ServedStorage, Storage, open_writable
from formats.storage.contract import UNFINISHED, probe_exclusive
from formats.storage.opening import is_served
from formats.storage.places import local_name, no_directory

LITTLE_ROOM, TOO_LITTLE_ROOM = 1 << 30, 64 << 20
FEW_FILES = 10_000
SKEW = 30.0
"""Seconds between two clocks that matter: ages of epochs, and signatures of requests, go by them."""


def place_checks(path: str, *, read_only: bool = False) -> Iterator[Check]:
    """All that can be said of the place. read_only: nothing is written there, not even a probe."""
    from abscli.stores.registry import recognise

    path = local_name(path)
    if not is_served(path) and not os.path.isdir(path):
        yield from _not_there(path)
        return
    try:
        storage = open_writable(path)
        # A run that was refused may have left its lock.
        empty = all(layout.is_lock(entry.name) for entry in storage.list(""))
    except (FormatError, OSError) as error:
        yield _failed("store", error)
        return
    name = None
    try:
        name = recognise(storage).name
        yield Check("store", Verdict.OK, f"{path}, a store of {name}")
    except NotFound:
        if empty:
            yield Check("store", Verdict.OK, f"{path} is empty: 'abs run' begins a store there")
        else:
            hint = "is this the folder of a store? 'abs inspect' names those nearby"
            yield Check("store", Verdict.WARNING, f"{path} has files, and is not a store", hint)
    except (FormatError, OSError) as error:
        yield _failed("store", error)
        return
    is_ours = empty or name == "abs"
    if isinstance(storage, LocalStorage):
        yield _permissions(path, writes=is_ours)
        yield _room(path)
    if read_only or not is_ours:
        reason = "--read-only" if read_only else "nothing is written among files that are not of abs"
        yield Check("create-only", Verdict.UNKNOWN, f"not tried: {reason}")
        return
    yield _create_only(storage)
    yield _clock(storage)


def _not_there(path: str) -> Iterator[Check]:
    """A folder that 'abs run' would make."""
    if obstacle := no_directory(path):
        yield Check("store", Verdict.PROBLEM, f"{path}: {obstacle}, where a directory is needed", "choose another path")
        return
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if not os.access(above, os.W_OK | os.X_OK):
        message = f"{path} is not there, and nothing can be made in {above}"
        yield Check("store", Verdict.PROBLEM, message, f"chown or chmod {above}, or name a folder elsewhere")
        return
    yield Check("store", Verdict.OK, f"{path} is not there yet: 'abs run' makes it")
    yield _room(above)


def _permissions(path: str, *, writes: bool) -> Check:
    lacking = [
        verb for verb, mode in (("read", os.R_OK | os.X_OK), ("written", os.W_OK))
        if not os.access(path, mode) and (writes or verb == "read")
    ]  # fmt: skip
    if lacking:
        hint = "run abs as the user that the job runs as, or chown the folder to this one"
        return Check("permissions", Verdict.PROBLEM, f"{path} cannot be {' nor '.join(lacking)}", hint)
    # Files that a job of another user has made may be closed to this one, though the folder is not.
    foreign = next((entry for entry in _owned(path) if entry[1] != os.geteuid()), None)
    if foreign is not None and os.geteuid() != 0 and writes:
        hint = "let one user run all jobs and commands of a store"
        message = f"{foreign[0]} belongs to user {foreign[1]}, this is user {os.geteuid()}"
        return Check("permissions", Verdict.WARNING, message, hint)
    return Check("permissions", Verdict.OK, "it can be read" + (" and written" if writes else ""))


def _owned(path: str) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            yield entry.path, entry.stat(follow_symlinks=False).st_uid


def _room(path: str) -> Check:
    try:
        room = os.statvfs(path)
    except OSError as error:
        return Check("room", Verdict.UNKNOWN, f"{path}: {error.strerror}")
    free = room.f_bavail * room.f_frsize
    message = f"{free / (1 << 30):.1f} GiB free"
    hint = "'abs gc' removes old epochs; 'abs run --keep N' while a job runs"
    if free < TOO_LITTLE_ROOM:
        return Check("room", Verdict.PROBLEM, message, hint)
    if room.f_files and room.f_favail < FEW_FILES:
        return Check("room", Verdict.WARNING, f"{message}, and room for {room.f_favail:,} more files", hint)
    return Check("room", Verdict.WARNING if free < LITTLE_ROOM else Verdict.OK, message,
                 hint if free < LITTLE_ROOM else None)  # fmt: skip


def _create_only(storage: LocalStorage | ServedStorage) -> Check:
    """Two writers of one name: the second has to be refused, or two attempts could both complete an epoch."""
    began = time.monotonic()
    try:
        if isinstance(storage, ServedStorage):
            storage.check_exclusive()
        else:
            probe_exclusive(storage)
    except (FormatError, OSError) as error:
        return _failed("create-only", error)
    took = (time.monotonic() - began) * 1000
    return Check("create-only", Verdict.OK, f"a name is created once ({took:.0f} ms to try it)")


def _clock(storage: LocalStorage | ServedStorage) -> Check:
    """The clock of the place, by a file that is written now."""
    probe = f"{UNFINISHED}clock-{secrets.token_hex(8)}"
    try:
        before = time.time()
        storage.put(probe, b"1")
        after = time.time()
        written = _written(storage, probe)
    except (FormatError, OSError) as error:
        return _failed("clock", error)
    finally:
        with contextlib.suppress(FormatError, OSError):
            storage.delete(probe)
    if written is None:
        return Check("clock", Verdict.UNKNOWN, "the place does not say when a file was written")
    # A server may round to seconds.
    skew = max(0.0, before - written - 1, written - after - 1)
    if skew > SKEW:
        side = "behind" if written < before else "ahead of"
        hint = "set both by NTP (timedatectl); ages of epochs and signatures of requests go by clocks"
        return Check("clock", Verdict.WARNING, f"the clock of the place is {skew:.0f} s {side} this one", hint)
    return Check("clock", Verdict.OK, "goes as this one does")


def _written(storage: Storage, path: str) -> float | None:
    if isinstance(storage, ServedStorage):
        return storage.written(path)
    return os.stat(storage.local_path(path)).st_mtime if isinstance(storage, LocalStorage) else None


def _failed(name: str, error: FormatError | OSError) -> Check:
    if isinstance(error, FormatError):
        return Check(name, Verdict.PROBLEM, str(error), error.hint)
    where = f"{error.filename}: " if isinstance(error.filename, str) else ""
    allowed = "run it as a user with the permission, such as the user of the job"
    hint = allowed if isinstance(error, PermissionError) else None
    return Check(name, Verdict.PROBLEM, f"{where}{error.strerror or error}", hint)
