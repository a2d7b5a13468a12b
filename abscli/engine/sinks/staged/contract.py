"""The contract of a target to which the driver delivers rows; all targets but folders and buckets.

Rows of a task and an epoch wait in one of two places until a manifest names them: in the store, as a file of the epoch
(`SinkFile.staged`), or in the target itself, where publishing them takes no copy (`SinkFile.prepared`: transactions of
PostgreSQL). The next manifest also names the rows of epochs that were aborted. After each manifest, and before the next
one, the target gets what the manifest names: one `Delivery`. A new attempt first delivers what manifests of its history
name and the target does not have. `abscli.protocol.committer` decides when, `delivered.publisher` calls the target.

A target

- writes each delivery once, however often and by whomever it is given. It writes a commit marker in one step with the
  rows, and looks for it first. The marker names the attempt and the epoch, and the task if parts are committed singly.
  Epoch numbers alone identify nothing: copies of a store use the same numbers. A target without such a step is
  at-least-once, and says so;
- gets deliveries in the order of the history, each with its parts in order;
- refuses an attempt that has lost it: after another attempt called `take`, `publish` raises EngineStopped and changes
  nothing, also if the attempt had been stopped within it for hours;
- refuses rows before a manifest names them (`try_rows`). If it refused them later, each resume would fail on them;
- notices if its commits were undone: it was replaced, or rolled back (`undone`). The store keeps its identity for this;
- lists its markers (`markers`), those of other stores of a job of this name included. Commits outside the history are
  refused, or left with `--take-ownership`;
- has no password in its title, its messages or the store: the connection comes from the environment.

To add a type, edit `formats/job/connectors.py` (its options), `formats/job/promises.py` (its guarantee),
`WRITTEN_AS` in `staged.sink` (the format of its parts) and `delivered/targets.py`; and `extras` if it needs a package.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, NamedTuple, Protocol

import pyarrow as pa

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


class StagedPartName(NamedTuple):
    """Rows that wait in a target.

    id: whose rows, and for which epoch.
    name: the target's name for them, as a manifest has it.
    """

    id: Transaction
    name: str


class Unmet(NamedTuple):
    """A precondition of a target that is not met. hint: what the user has to do."""

    message: str
    hint: str


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


class StagedInStore:
    """The methods of `Target` about staged rows, for rows that wait in the store."""

    def unfinished(self) -> frozenset[EpochId]:
        """Return no epoch: a delivery is committed in one step."""
        return frozenset()

    def lost(self, delivery: Delivery) -> list[StagedPart]:
        """Return the parts whose files the store lacks, or has in another size."""
        return [part for part in delivery.parts if delivery.storage.size(part.file.staged or "") != part.file.bytes]

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Do nothing: `abs gc` removes such files from the store."""


class Target(Protocol):
    """The target of one sink, as the driver uses it; the contract is described above."""

    @property
    def operator(self) -> str:
        """Return the id of the sink."""

    @property
    def title(self) -> str:
        """Return the name of the target in messages."""

    @property
    def remembers(self) -> bool:
        """Tell whether the target keeps commit markers.

        If it does not, the store notes each delivery after it was written. A delivery that a crash interrupted is then
        written again.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Lock the target against other jobs of this name. Raises StoreInUse."""

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List everything that the target lacks to take rows; nothing is changed.

        columns: of the rows; None if they are not known before the job runs.
        Raises UsageError, EngineStopped if the target cannot be asked.
        """

    def try_rows(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses, such as a value that its column cannot hold.

        A worker calls this before a manifest names the rows. Nothing is changed, and the target is neither held nor
        taken. rows: a part as `publish` gets it, read from its beginning.
        """

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers, also those of other stores of the job.

        Epochs that were left behind on purpose are not among them. Raises EngineStopped, UsageError if the target
        cannot be asked.
        """

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows of an epoch, or of a later epoch of its attempt, are committed, on any branch.

        Expiry, compaction, retention and deleted rows do not change the answer.
        """

    def identity(self) -> str | None:
        """Return what distinguishes the target from another of its name; None if nothing does, or it is missing."""

    def undone(self, identity: str | None) -> str | None:
        """Return how the target lost commits, as the end of a message; None if it did not.

        identity: of the target when rows of the store were last committed; None if that is not known.
        """

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's: earlier attempts cannot change it any more.

        left: commits outside the history, which are left behind.
        oldest: the oldest epoch that a manifest may name.
        """

    def unfinished(self) -> frozenset[EpochId]:
        """Return the epochs of which not all parts are committed."""

    def lost(self, delivery: Delivery) -> list[StagedPart]:
        """Return the parts that are neither committed nor staged any more."""

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Remove rows that wait in the target itself, and that no manifest can name any more.

        goes: decides whether a waiting part is removed.
        """

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery, unless it is committed already.

        Raises EngineStopped if another attempt has taken the target, or it cannot be reached; JobFailed if it refuses
        the rows.
        """
