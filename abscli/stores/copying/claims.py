"""Who writes a copy into a bucket: numbered claims, each put create-only, of which the last one counts.

A bucket renames nothing and has no locks, so a copy is written in its place, with the file that makes it count last.
Until that is there the claim says that what lies there is the beginning of a copy, of what, and whose it is. Another
process may go on with it by the next number, but only with the same work: then both write the same bytes under the
same names, and whatever is late does no harm. Nobody takes away what another may rely on: whoever gives up says so by
the next number first, and then nobody goes on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from abscli.stores.copying.writer import in_the_way
from formats.decoding import decode
from formats.errors import FormatError, NotFound, StoreInUse
from formats.storage import UNFINISHED, LocalStorage, ServedStorage, Storage
from formats.timestamps import now

_CLAIM = UNFINISHED + "copy-"
"""The names of claims begin so: other readers, and lists, leave them out."""

_own: set[str] = set()
"""Ids of claims whose copies this process is writing."""


class Claim(msgspec.Struct, frozen=True):
    """One process' word that it writes a copy.

    id: drawn for it.
    work: digest of all that decides what is written.
    counts: the file that makes the copy count.
    host, process, started: who writes it; `started` tells a process from a later one of its number.
    begun: when.
    given_up: it is being taken away again, or could not be.
    """

    id: str
    work: str
    counts: str
    host: str
    process: int
    started: int | None
    begun: str
    given_up: bool = False

    @property
    def who(self) -> str:
        """Its process and host, for messages."""
        return f"process {self.process} on {self.host}"

    @property
    def runs(self) -> bool:
        """Whether its process is known to be at it: only on its own host that can be told."""
        if self.host != socket.gethostname():
            return False
        if self.process == os.getpid():
            return self.id in _own
        return self.started is not None and _started(self.process) == self.started


def unfinished(storage: Storage) -> Claim | None:
    """The last claim of a copy that was begun there and does not count yet; None if there is none."""
    claims = [] if isinstance(storage, LocalStorage) else _claims(storage)
    if not claims or storage.size(claims[-1].counts) is not None:
        return None
    return claims[-1]


def refuse_unfinished(storage: Storage) -> None:
    """NotFound where a copy was begun and does not count yet."""
    claim = unfinished(storage)
    if claim is not None:
        state = "was abandoned" if claim.given_up else "is not finished"
        hint = "the same command with the same --to finishes it"
        hint = "delete its contents" if claim.given_up else hint
        message = f"contains a copy that {claim.who} began at {claim.begun} and that {state}"
        raise NotFound(message, path=storage.root, hint=hint)


class Claimed:
    """A claim that is ours. continues: what somebody before has written of the same copy is there."""

    def __init__(self, storage: ServedStorage, claim: Claim, number: int) -> None:
        self._storage, self._claim, self._number = storage, claim, number

    @property
    def continues(self) -> bool:
        return self._number > 1

    @property
    def holds(self) -> bool:
        """Whether the claim is still there: others may have finished the copy, or taken it away."""
        there = _read(self._storage, self._number)
        return there is not None and there.id == self._claim.id

    def release(self) -> None:
        """The copy counts, and nobody needs to know any more who wrote it.

        Later claims than the first stay, small as they are: whoever had the claim before, and still runs, must not
        find the next number free when it gives up.
        """
        self._storage.delete(_name(1))

    def gone(self) -> None:
        """What was written has been taken away."""
        self._storage.delete(_name(self._number + 1))
        self._storage.delete(_name(self._number))

    def give_up(self) -> bool:
        """Whether what was written may be taken away: not where somebody before wrote it, or somebody goes on with it.
        `gone` follows when it is."""
        if self.continues:
            return False
        try:
            self._put(self._storage, self._number + 1, msgspec.structs.replace(self._claim, given_up=True))
        except FileExistsError:
            return False
        return True

    @staticmethod
    def _put(storage: ServedStorage, number: int, claim: Claim) -> None:
        storage.put(_name(number), msgspec.json.encode(claim))


@contextlib.contextmanager
def claimed(storage: ServedStorage, work: str, counts: str) -> Iterator[Claimed]:
    """A claim to write a copy there, while the block runs. It stays unless it is released.

    FormatError if something else is in the way or the server lets a name be created twice, StoreInUse if somebody is
    writing there.
    """
    number = may_be_claimed(storage, work) + 1
    storage.check_exclusive()
    started = _started(os.getpid())
    claim = Claim(secrets.token_hex(16), work, counts, socket.gethostname(), os.getpid(), started, now())
    _own.add(claim.id)
    try:
        own = Claimed(storage, claim, number)
        try:
            own._put(storage, number, claim)
        except FileExistsError:
            raise StoreInUse("another copy has just begun there", path=storage.root, hint=_ELSEWHERE) from None
        # Somebody may have finished a copy, and released it, since it was looked whether there is anything.
        if not own.continues and storage.list(""):
            own.release()
            raise in_the_way(storage.root)
        yield own
    finally:
        _own.discard(claim.id)


_ELSEWHERE = "wait for the other copy to end, or choose another location"


def may_be_claimed(storage: Storage, work: str | None = None) -> int:
    """How many claims there are of this copy (of any, if `work` is None), which nobody is known to be writing.

    FormatError if something else is in the way, StoreInUse if somebody is writing there.
    """
    claims = _claims(storage)
    if not claims:
        if storage.list("") or _read(storage, 2) is not None:
            raise in_the_way(storage.root)
        return 0
    last = claims[-1]
    if last.runs:
        raise StoreInUse(f"{last.who} has been writing a copy there since {last.begun}", path=storage.root,
                         hint=_ELSEWHERE)  # fmt: skip
    if last.given_up:
        message = f"{last.who} gave up a copy there that it began at {last.begun}, and may be taking it away"
        raise FormatError(
            message, path=storage.root, hint="choose another location, or delete the contents of this location"
        )
    if work is not None and last.work != work:
        message = f"contains an unfinished copy, which {last.who} began at {last.begun}"
        raise FormatError(
            message, path=storage.root,
            hint="finish that copy with the plan and the --to that began it; or choose another location; or delete the "
            "contents of this location",
        )  # fmt: skip
    return len(claims)


def _claims(storage: Storage) -> list[Claim]:
    claims: list[Claim] = []
    while (claim := _read(storage, len(claims) + 1)) is not None:
        claims.append(claim)
    return claims


def _read(storage: Storage, number: int) -> Claim | None:
    try:
        return decode(storage.read(_name(number)), Claim)
    except NotFound:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = f"has a {_name(number)} that abs did not write"
        raise FormatError(message, path=storage.root, hint="choose another location") from None


def _name(number: int) -> str:
    return f"{_CLAIM}{number}"


def _started(process: int) -> int | None:
    """When a process of this machine began, in ticks of its clock; None if there is none, or that is not known."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
