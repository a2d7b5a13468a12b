"""The contract of every sink: each row of a complete epoch is in the target once, or the job refuses to run.

Terms:

- The *target* is what a sink writes: a folder, a bucket, a table, a topic, stdout. Only the job file that the user
  names says which target a sink has. Its identity is what the server, catalog or file system says of it, plus its
  name.
- A *part* holds the rows of one task for one epoch. It is identified by sink, attempt, epoch and task. Epoch numbers
  alone identify nothing: copies of a store use the same numbers.
- A *commit marker* is written with the rows, in one step with them where the target has transactions, else after
  them. It names the epoch and the attempt. The marker, not the rows, tells whether an epoch was delivered: owners
  delete, archive and compact rows.

Rules:

1. A worker stages rows (`Sink.cut`) and publishes nothing. Rows that the target refuses fail here, before a manifest
   names them (`staged.trial`; append to PostgreSQL inserts them).
2. The manifest names the parts. It also records, per target, the newest epoch whose rows the target must have, and
   how many rows that makes in total (`formats.native.committed`). Pruning, rescaling, copying and rebuilding keep
   this record.
3. After the manifest, and before the next one, the driver publishes the parts it names. This can be repeated without
   harm. When it asks, takes, publishes and discards is decided by `abscli.protocol.committer` (rules D1 to D6), for
   every kind of target; how, by its `Publisher`.
4. A target accepts rows from the attempt that owns it. An attempt that has lost its target or its store publishes
   nothing and ends with `Overtaken`.
5. Before a job resumes, and for `validate --job`, the target is compared with the manifests: by the rules T1 to T7 of
   `abscli.planner.target`; files by `abscli.planner.settlement`. The result is a verdict,
   `abscli.report.findings.SinkVerdict`: exact, pending, incomplete, foreign, unknown or unchecked. Pending rows are
   delivered. Incomplete and foreign targets are refused until the user decides.
6. While a job runs, the driver checks before each delivery that the newest marker is still there. A target that
   became an older copy of itself ends the job.

What an owner does on purpose keeps a target exact: retention, deletes, dropped partitions, VACUUM, compaction,
expired snapshots, archived part files. Only stdout has no marker: there, rows can be written again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPartName
from abscli.protocol.committer import Obstacle
from formats.ids import EpochId
from formats.native.facts import AttemptFacts, PartFacts, SinkFile
from formats.native.store import NativeStore


class Sink(Protocol):
    """One sink task. It stages what belongs to an epoch; what is staged shows once the manifest is durable, and not by
    the worker (`outputs`)."""

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """What no complete epoch covers yet, as far as it is cut."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of the part that is open."""

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """End the part of `epoch`: what makes all parts durable that its completion makes visible, and says which
        these are.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""

    def close(self) -> None:
        """Let go of all that no epoch has staged yet: its rows belong to none."""


@dataclass(frozen=True, slots=True)
class History:
    """The history that an attempt resumes from.

    store: None if it does not exist yet.
    parent: its newest epoch; 0 for the start.
    before: by sink, its id in that epoch, if it was there.
    """

    store: NativeStore | None
    promises: Promises
    parent: int
    before: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Compared:
    """The pending rows of a target, and the obstacles to taking it.

    title: what messages call the target.
    due: rows that are published when the attempt begins, oldest first.
    obstacles: by kind, the error with which the job is refused.
    foreign: its commits outside of the history that cannot be taken back.
    keys: of all parts that were looked for; see `elsewhere.key_of`.
    """

    title: str
    due: tuple[Delivery, ...]
    obstacles: Mapping[Obstacle, Exception]
    foreign: tuple[EpochId, ...]
    keys: frozenset[object]


@dataclass(frozen=True, slots=True)
class Ownership:
    """An attempt that takes targets.

    older: the attempts of the store before it.
    kept: the transactions that any manifest of the store names.
    """

    store: NativeStore
    attempt: AttemptFacts
    older: Sequence[AttemptFacts]
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class Taken:
    """A target as the attempt that has taken it finds it; see `abscli.protocol.committer.TargetTaken`.

    refusal: the error for commits outside of the history that came since it was compared; None if there are none.
    """

    refusal: Exception | None
    newest: EpochId | None


class Publisher(Protocol):
    """The driver's access to the target of one sink. It asks and changes; when, the committer decides.

    There is one for part files, which wait next to the place where they become visible, and one for all other targets,
    whose rows wait in the store or in prepared transactions.
    """

    @property
    def place(self) -> str | None:
        """Return the directory or the place in a bucket that the sink writes; None if the target is none."""

    def hold(self) -> AbstractContextManager[None]:
        """Lock the target against other jobs. Raises StoreInUse, naming the holder."""

    def compare(self, history: History) -> Compared:
        """Compare the target with a history; nothing is changed.

        Raises UsageError if it cannot take rows, EngineStopped if it cannot be asked.
        """

    def take(self, ownership: Ownership) -> Taken:
        """Make the target the attempt's: nothing that an older attempt does changes it any more.

        Raises Overtaken if another attempt was first.
        """

    def delivery(self, parts: Sequence[PartFacts]) -> Delivery | None:
        """Return what one manifest names of the sink; None if that is nothing."""

    def publish(self, delivery: Delivery, *, is_resumed: bool) -> EpochId | None:
        """Make rows visible, and return the commit that says so; None if the target keeps no commit markers.

        is_resumed: an attempt begins with this, and the user may have accepted that parts are missing.
        Raises Overtaken, EngineStopped, JobFailed, Damaged.
        """

    def verify(self, commit: EpochId) -> None:
        """Raise EngineStopped unless the target has a commit, or a later one of its attempt."""

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Remove rows that wait in the target itself. goes: tells it of each part that waits there."""

    def changed_meanwhile(self, newest: EpochId | None) -> EngineStopped | None:
        """Return the error for a target that was taken over or became an older copy of itself, if that can be told
        without asking a server; None otherwise.

        newest: the newest commit that it must have.
        """
