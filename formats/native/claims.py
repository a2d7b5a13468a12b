"""Who has a store in a bucket, where no kernel lets go of a lock: its holder says again and again that it lives.

    lock/<number, 10 digits>.json    one holder; the highest number counts

A number is created, so that one of several gets it; then its holder alone writes it, each time with another count.
Whoever wants the store watches the newest for a while, on its own clock; no two clocks are compared. All this decides
who waits, and nothing else: a holder that was taken for dead and comes back meets fences (see `writer.put_fence`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator

import msgspec

from formats.decoding import decode
from formats.errors import FormatError, NotFound, StoreInUse
from formats.native import layout
from formats.native.numbers import highest, is_highest, obsolete
from formats.storage import ServedStorage, Storage, deciding
from formats.storage.retrying import asked_once
from formats.waiting import Wait, waits

SECONDS = 15.0
"""A holder that has said nothing for so long is taken for dead."""
BEATS = 5
"""How often it says so meanwhile."""
LOOKS = 2.5
"""Beats after which a reader, who takes nothing from anybody, takes it for dead."""
LONGEST = 600.0
_CLAIM = re.compile(r"(\d{10})\.json", re.ASCII)


class Claim(msgspec.Struct, frozen=True):
    """What a holder says of itself.

    machine, pid, started: the process, where it can be asked of the kernel whether it is still there.
    seconds: how long it may say nothing.
    count: of its signs of life.
    released: it has ended, and said so.
    """

    holder: str
    host: str
    machine: str
    pid: int
    started: str
    seconds: float
    count: int = 0
    released: bool = False

    @property
    def name(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextlib.contextmanager
def claimed(storage: Storage) -> Iterator[None]:
    """Hold the store; StoreInUse, naming the holder, if somebody else does. May take as long as a dead one has.

    Lists of the storage show all that was written before, while it is held.

    FormatError for a server that lets a second writer create what is there: nobody could hold anything.
    """
    if isinstance(storage, ServedStorage):
        storage.check_exclusive()
    with deciding(storage):
        number = _next_number(storage)
    own = Claim(secrets.token_hex(16), socket.gethostname(), _machine(), os.getpid(), _started(os.getpid()), SECONDS)
    try:
        storage.put(_path(number), msgspec.json.encode(own))
    except FileExistsError:
        raise StoreInUse(
            "in use by another process, which has just locked the store", path=storage.root,
            hint="wait for the job to end, or stop the job with SIGTERM",
        ) from None  # fmt: skip
    ended = threading.Event()
    pulse = threading.Thread(target=_beat, args=(storage, number, own, ended), daemon=True, name="abs-claim")
    try:
        for older in obsolete(_numbers(storage), number):
            storage.delete(_path(older))
        pulse.start()
        with deciding(storage):
            yield
    finally:
        ended.set()
        if pulse.ident is not None:
            pulse.join()
        with contextlib.suppress(FormatError, OSError):  # then it is taken for dead, after a while
            storage.put(
                _path(number), msgspec.json.encode(msgspec.structs.replace(own, count=-1, released=True)), replace=True
            )


def is_claimed(storage: Storage) -> bool:
    """Whether somebody holds the store now; a moment's look where the holder has said how it ended, or was here."""
    newest = _newest(storage)
    if newest is None:
        return False
    number, claim = newest
    now, last = time.monotonic(), _looked.get(storage.root)
    if last is not None and last[0] == number:
        _, count, since = last
        if count != claim.count and not claim.released:
            _looked[storage.root] = number, claim.count, now
            return True
        if now - since >= _patience(claim) * LOOKS / BEATS:
            return False
    alive = _lives(storage, number, claim, _patience(claim) * LOOKS / BEATS)
    _looked[storage.root] = number, alive.count if alive else claim.count, time.monotonic() if alive else now
    return alive is not None


_looked: dict[str, tuple[int, int, float]] = {}
"""By root: the number and count last seen, and since when."""


def _next_number(storage: Storage) -> int:
    """The number that is to be taken; StoreInUse while the newest holder lives."""
    while True:
        newest = _newest(storage)
        if newest is None:
            return _highest(storage) + 1
        number, claim = newest
        if not claim.released and not _is_gone(claim):
            waits(Wait(storage.root, claim.name, _patience(claim)))
        if alive := _lives(storage, number, claim, _patience(claim)):
            raise StoreInUse(
                f"in use by {alive.name}", path=storage.root,
                hint="wait for the job to end, or stop the job with SIGTERM",
            )  # fmt: skip
        if is_highest(number, lambda n: _exists(storage, n)):
            return number + 1


def _lives(storage: Storage, number: int, claim: Claim, seconds: float) -> Claim | None:
    """The claim as it was when it changed; None if it has ended, or does not change for so long."""
    if claim.released or _is_gone(claim):
        return None
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(_patience(claim) / (4 * BEATS), 1.0))
        while _exists(storage, number + 1):
            number += 1
        now = _read(storage, number)
        if now is None:
            return None
        if (now.holder, now.count) != (claim.holder, claim.count):
            return None if now.released else now
    return None


def _beat(storage: Storage, number: int, own: Claim, ended: threading.Event) -> None:
    count = 0
    while not ended.wait(own.seconds / BEATS):
        count += 1
        # A server out of reach is the job's own concern; here it is asked again.
        with contextlib.suppress(FormatError, OSError), asked_once():
            storage.put(_path(number), msgspec.json.encode(msgspec.structs.replace(own, count=count)), replace=True)


def _newest(storage: Storage) -> tuple[int, Claim] | None:
    """The claim of the highest number; None where there is none that says anything."""
    number = _highest(storage)
    claim = _read(storage, number) if number else None
    return None if claim is None else (number, claim)


def _read(storage: Storage, number: int) -> Claim | None:
    """Return a claim; None where there is none that says anything."""
    try:
        return decode(storage.read(_path(number), 0, 4096), Claim)
    except (NotFound, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _highest(storage: Storage) -> int:
    return highest(_numbers(storage), lambda number: _exists(storage, number))


def _exists(storage: Storage, number: int) -> bool:
    return storage.size(_path(number)) is not None


def _numbers(storage: Storage) -> list[int]:
    return [int(m.group(1)) for entry in storage.list(layout.LOCK) if (m := _CLAIM.fullmatch(entry.name))]


def _path(number: int) -> str:
    return f"{layout.LOCK}/{number:010d}.json"


def _patience(claim: Claim) -> float:
    """What a claim says that is no time is not waited for."""
    return min(max(claim.seconds, 0.0), LONGEST)


def _machine() -> str:
    """A name of this start of this machine's kernel, and of the processes that see each other; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process was started, by its kernel's count; empty if there is none, or that cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _is_gone(claim: Claim) -> bool:
    """Whether this machine's kernel says that the holder has ended; another's is not asked."""
    if not claim.machine or not claim.started or claim.machine != _machine():
        return False
    return _started(claim.pid) != claim.started
