"""The folder of a sink of files: what lies in it where, and who may write it.

    part-<task, 5 digits>-<epoch, 10 digits>.jsonl    what readers see; also .csv and .parquet, by the sink's type
    .staged/<attempt id>/part-...                     made, and of an epoch that is not known to be complete
    superseded/<attempt id>/part-...                  set aside when the job went back, or another store took over
    superseded/unnamed/part-...                       set aside since no epoch names it, or no attempt is known to have
                                                      made it
    .abs-sink/lock                                    held while an attempt runs
    .abs-sink/<claim, 10 digits>.json                 who took the sink over; the highest number counts
    .abs-sink/published/<epoch, 10 digits>-<attempt id>
                                                      commit marker: all rows up to this epoch are visible. An owner may
                                                      archive or delete parts; a marker that is missing means that an
                                                      older copy of the folder was put back

The visible name of a part says its epoch and not its attempt, and copies of a store use epoch numbers again. So the
newest claim says which attempt every visible part is of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from formats.errors import Damaged
from formats.ids import EpochId
from formats.native.facts import is_id, seal, unseal
from formats.native.numbers import highest, is_highest, obsolete
from formats.storage import LocalStorage, Storage
from formats.version import FORMAT_VERSION

CLAIMS = ".abs-sink"
STAGED = ".staged"
SUPERSEDED = "superseded"
UNNAMED = "unnamed"
"""In place of an attempt's id: of visible parts that no epoch names, so that nothing brings them back."""
ENDINGS = ("jsonl", "csv", "parquet")
"""Of the names of parts: the types of sinks that write files."""
PART = re.compile(rf"part-(\d{{5}})-(\d{{10}})\.(?:{'|'.join(ENDINGS)})", re.ASCII)
OPEN = re.compile(r"\.open-\d{5}-[0-9a-f]{8}", re.ASCII)
"""A part that is being written; which epoch it belongs to is not known before it is cut."""
CLAIM = re.compile(r"(\d{10})\.json", re.ASCII)
MARKERS = f"{CLAIMS}/published"
MARKER = re.compile(r"(\d{10})-([0-9a-f]{32})", re.ASCII)
CLAIM_SCHEMA = "abs.sink"


class Stretch(msgspec.Struct, frozen=True, order=True):
    """The epoch numbers that one attempt has on a line, both included; last None: it still adds to them."""

    id: str
    first: int
    last: int | None

    def has(self, epoch: int) -> bool:
        """Whether the number is one of them."""
        return self.first <= epoch and (self.last is None or epoch <= self.last)


class SinkClaim(msgspec.Struct, frozen=True, rename={"line": "history"}):
    """`.abs-sink/<n>.json`: an attempt took ownership of the sink, whose visible parts belong to this history.

    store: path of the store, for messages.
    attempt, attempt_id: the attempt that claims the sink; its epochs are the newest of the history.
    line: the history, stored as `history`: newest stretch first.
    claimed: RFC 3339 in UTC.
    """

    schema: str
    version: str
    number: int
    job: str
    store: str
    attempt: int
    attempt_id: str
    line: tuple[Stretch, ...]
    claimed: str


def part_name(index: int, epoch: int, ending: str = "jsonl") -> str:
    """`part-<task, 5 digits>-<epoch, 10 digits>.jsonl`."""
    return f"part-{index:05d}-{epoch:010d}.{ending}"


def epoch_of_part(name: str) -> int:
    """The epoch of a part; Damaged for a name that no part has."""
    match = PART.fullmatch(name)
    if match is None:
        raise Damaged(
            f"{name!r} is not the name of a part", hint="the file that names it was not written by abs; do not trust it"
        )
    return int(match.group(2))


def task_of_part(name: str) -> int:
    """The number of the task that wrote a part; Damaged as `epoch_of_part`."""
    epoch_of_part(name)
    return int(name.split("-")[1])


def staged_path(id: str, name: str) -> str:
    """Where a part waits, relative to the sink's folder."""
    return f"{STAGED}/{id}/{name}"


class PartId(NamedTuple):
    """A part of a sink, wherever it lies. Ordered by attempt, then by name.

    attempt_id: of the attempt that made it, empty where that is not known: of visible parts alone;
    name: its visible name.
    """

    attempt_id: str
    name: str

    @property
    def epoch(self) -> EpochId:
        """The epoch that it was made for; Damaged for a name that no part has."""
        return EpochId(self.attempt_id, epoch_of_part(self.name))

    @property
    def staged(self) -> str:
        """Where it waits, relative to the sink's folder."""
        return staged_path(self.attempt_id, self.name)

    @property
    def superseded(self) -> str:
        """Where it is set aside, relative to the sink's folder."""
        return f"{SUPERSEDED}/{self.attempt_id or UNNAMED}/{self.name}"


class Claims:
    """Who may write to a sink: its claims, the same in a folder and in a bucket."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @property
    def path(self) -> str:
        return self.storage.root

    def newest_claim(self) -> SinkClaim | None:
        """Who took the sink over last; None if nobody has. Damaged if that cannot be read."""
        number = highest(self._claim_numbers(), self._has_claim)
        if not number:
            return None
        path = _claim(number)
        return unseal(self.storage.read(path), SinkClaim, f"{self.path}/{path}", CLAIM_SCHEMA)

    def is_newest(self, claim: SinkClaim | None) -> bool:
        """Whether nobody has taken the sink over since; None: since there was no claim."""
        return not self._has_claim(1) if claim is None else is_highest(claim.number, self._has_claim)

    def put_claim(self, claim: SinkClaim) -> None:
        """Take the sink over; FileExistsError if somebody else took that number. Old claims go."""
        self.storage.put(_claim(claim.number), seal(claim))
        for number in obsolete(self._claim_numbers(), claim.number):
            self.storage.delete(_claim(number))

    def markers(self) -> list[EpochId]:
        """Return the commit markers: normally one, the newest epoch whose rows are all visible."""
        names = (MARKER.fullmatch(entry.name) for entry in self.storage.list(MARKERS))
        return [EpochId(match.group(2), int(match.group(1))) for match in names if match is not None]

    def has_marker(self, epoch: EpochId) -> bool:
        """Return whether the commit marker of an epoch is there."""
        return self.storage.size(_marker(epoch)) is not None

    def put_marker(self, epoch: EpochId, replaced: Iterable[EpochId]) -> None:
        """Record that all rows up to an epoch are visible, and delete the markers that this replaces."""
        data = f"all rows up to epoch {epoch.number} are visible\n".encode()
        self.storage.put(_marker(epoch), data, replace=True)
        for older in replaced:
            if older != epoch:
                self.storage.delete(_marker(older))

    def _has_claim(self, number: int) -> bool:
        return self.storage.size(_claim(number)) is not None

    def _claim_numbers(self) -> list[int]:
        return [int(m.group(1)) for e in self.storage.list(CLAIMS) if (m := CLAIM.fullmatch(e.name))]


def _claim(number: int) -> str:
    return f"{CLAIMS}/{number:010d}.json"


def _marker(epoch: EpochId) -> str:
    return f"{MARKERS}/{epoch.number:010d}-{epoch.attempt_id}"


class SinkFolder(Claims):
    """What is in a sink's folder; reading only, but for `put_claim`. Sizes in bytes."""

    storage: LocalStorage

    def __init__(self, path: str) -> None:
        super().__init__(LocalStorage(path))

    def visible(self) -> dict[str, int]:
        """The parts that readers see, by name."""
        return {e.name: e.size for e in self.storage.list("") if e.size is not None and PART.fullmatch(e.name)}

    def staged(self) -> dict[PartId, int]:
        """The parts that wait."""
        return self._by_attempt(STAGED)

    def staged_by(self, attempt_id: str) -> list[PartId]:
        """The parts of one attempt that wait."""
        entries = self.storage.list(f"{STAGED}/{attempt_id}")
        return [PartId(attempt_id, e.name) for e in entries if e.size is not None and PART.fullmatch(e.name)]

    def superseded(self) -> dict[PartId, int]:
        """The parts that were set aside; of one attempt a name stands once."""
        return self._by_attempt(SUPERSEDED)

    def unfinished(self) -> list[tuple[str, str]]:
        """Parts that were being written: attempt's id and path."""
        folders = [e.name for e in self.storage.list(STAGED) if e.size is None and is_id(e.name)]
        return [
            (id, staged_path(id, entry.name))
            for id in folders
            for entry in self.storage.list(f"{STAGED}/{id}")
            if entry.size is not None and OPEN.fullmatch(entry.name)
        ]

    def _by_attempt(self, folder: str) -> dict[PartId, int]:
        parts: dict[PartId, int] = {}
        for entry in self.storage.list(folder):
            if entry.size is None and is_id(entry.name):
                inside = self.storage.list(f"{folder}/{entry.name}")
                parts.update({PartId(entry.name, file.name): file.size for file in inside if file.size is not None})
        return {part: size for part, size in parts.items() if PART.fullmatch(part.name)}


def new_claim(
    number: int, *, job: str, store: str, attempt: int, attempt_id: str, line: tuple[Stretch, ...], claimed: str
) -> SinkClaim:
    """A claim of this format's version."""
    return SinkClaim(CLAIM_SCHEMA, FORMAT_VERSION, number, job, store, attempt, attempt_id, line, claimed)
