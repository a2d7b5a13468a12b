"""What a target of staged rows has to do: how a new idempotent sink is added.

Its tasks are `StagedSink`, whatever the target: the rows of a task and epoch are a file of the epoch in the store,
which the manifest names under its digest (`SinkFile.staged`). What an epoch staged that was given up in a living
attempt is named by the next manifest. After each manifest, and before the next one, `deliveries` gives the target what
it names: one `Delivery`. An attempt that begins does the same with what manifests of its line name and the target does
not show: after a crash, a restore, or in place of another store. So a target

- writes a delivery once, however often and by whomever it is given: it leaves a mark with the rows, in one step with
  them (a row of a table, a transaction's id, a message of the same transaction), and looks for it before it writes. The
  identity is the id of the attempt and the epoch, with the task where parts are written singly: never the number alone,
  since copies of a store use numbers again. One that cannot do it in one step promises at-least-once, and says so;
- is given deliveries in the order of the line's epochs, and each as a whole: the parts in it are in their order;
- lets nobody write who has lost it: after `take` of another attempt, `apply` raises EngineStopped and leaves the target
  as it is, also where it was stopped in the middle, for hours;
- refuses rows before a manifest names them (`try_rows`): rows that it refused afterwards would stop the job at every
  resume, and no replay would make them again;
- says where somebody has undone what it had: another thing stands under its name, or it was set back. The store keeps
  what tells such things apart, beside the rows. That is refused, or accepted with `--take-ownership`;
- says in `shown` what it has, at least the newest epoch of each attempt, and what other stores of a job of this name
  have written: that is refused where it is not of the line (rows cannot be taken back), or left where it is with
  `--take-ownership`, and is not asked of again;
- keeps no password in its title, its messages or the store: where it is comes from the environment.

A new type stands in `formats/job/connectors.py` (its options), `formats/job/promises.py` (what it promises; whatever
does not promise `two-phase` is staged in the store), `WRITTEN_AS` in `sink` (the bytes of its parts), and
`delivered/targets.py`; a package that it needs, in `extras`.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, NamedTuple, Protocol

from formats.errors import Damaged
from formats.ids import EpochId
from formats.native.facts import SinkFile
from formats.native.transactions import Transaction
from formats.scratch import scratch
from formats.storage import Storage
from formats.storage.pieces import WHOLE

PIECE = 1 << 20


class StagedPart(NamedTuple):
    """Rows of a task. id: the epoch that they were cut for, which may be an older one than that of the manifest."""

    id: Transaction
    file: SinkFile


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one manifest names of a sink.

    epoch: of the manifest, with the attempt that made it.
    parts: by epoch, then by task; at least one.
    """

    epoch: EpochId
    parts: tuple[StagedPart, ...]
    storage: Storage

    @property
    def directory(self) -> str:
        """The name of its target in the manifest."""
        return self.parts[0].file.directory

    def behind(self, epoch: int) -> Delivery | None:
        """What the manifest of that epoch, the one before on the line, has not named; None if that is nothing.

        A task that has not heard of a complete epoch when it stages the next names the parts of both.
        """
        parts = tuple(part for part in self.parts if part.id.epoch > epoch)
        return Delivery(self.epoch, parts, self.storage) if parts else None

    def open(self, part: StagedPart) -> IO[bytes]:
        """The bytes of a part, all of which are what was staged; Damaged, NotFound. To be closed."""
        path, sha256, at = part.file.staged or "", hashlib.sha256(), 0
        file = tempfile.SpooledTemporaryFile(WHOLE, dir=scratch())  # noqa: SIM115 - the caller closes it
        try:
            while piece := self.storage.read(path, at, PIECE):
                sha256.update(piece)
                file.write(piece)
                at += len(piece)
            if sha256.hexdigest() != part.file.sha256:
                raise Damaged(
                    f"staged rows: expected SHA-256 {part.file.sha256[:12]}…, got {sha256.hexdigest()[:12]}…",
                    path=f"{self.storage.root}/{path}", hint="use --from-epoch to resume from an epoch "
                    "before these rows",
                )  # fmt: skip
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def without_newest(epochs: Collection[EpochId]) -> set[EpochId]:
    """Return the epochs except the newest of each attempt.

    A target can delete their markers: the newest one implies that their rows are committed, too.
    """
    newest: dict[str, EpochId] = {}
    for epoch in sorted(epochs, key=lambda epoch: epoch.number):
        newest[epoch.attempt_id] = epoch
    return set(epochs) - set(newest.values())


class Target(Protocol):
    """Of one sink, on the driver; the contract stands above."""

    @property
    def operator(self) -> str:
        """The sink."""

    @property
    def title(self) -> str:
        """What messages call it."""

    @property
    def remembers(self) -> bool:
        """Whether it keeps marks, and says in `shown` what it has. For one that does not the store remembers the newest
        delivery, once it is written: one that a crash has cut off there comes again."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep other jobs of this name from it meanwhile; StoreInUse where one has it."""

    def check(self) -> None:
        """UsageError where it cannot take rows; nothing is changed."""

    def try_rows(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses, such as a value that its column cannot hold.

        A worker calls this before a manifest names the rows. Nothing is changed, and the target is neither held nor
        taken. rows: as `apply` gets a part; the position of the file is of no account.
        """

    def shown(self) -> list[EpochId]:
        """The epochs of whose rows it has some, of attempts of any store of the job, but those that were left behind on
        purpose. EngineStopped, UsageError where it cannot be asked."""

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows of an epoch, or of a later epoch of its attempt, are committed, on any branch.

        Expiry, compaction, retention and deleted rows do not change the answer.
        """

    def identity(self) -> str | None:
        """What tells it apart from another one of its name; None where nothing does, or it is not there."""

    def undone(self, identity: str | None) -> str | None:
        """How it has lost rows that it had, as a message goes on; None where it has not. identity: when rows of the
        store came there last; None where that is not known."""

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """It is this attempt's from here on. left: what it shows and is not of the line. oldest: epoch that a manifest
        may name."""

    def apply(self, delivery: Delivery) -> None:
        """Write it, where that has not been done. EngineStopped where another attempt has taken it, or it cannot be
        reached; JobFailed where it does not take the rows."""
