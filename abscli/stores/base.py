"""What the program asks of a system whose checkpoints it reads: the whole contract, on one page.

A system is a folder beside this file and a line in `registry.SYSTEMS`. Its class is small: a method imports what it
calls when it is called, so that a program that starts loads none of it. What a system has no answer of its own for, the
default here answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from formats.errors import OtherFormat
from formats.reference import NOTHING, ReadOptions
from formats.view import total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from abscli.diff.epochs import Besides
    from abscli.diff.rows import Compared
    from abscli.diff.state import Pair, Side
    from abscli.report.findings import StoreReport
    from abscli.stores.drills import Drilled
    from abscli.stores.recovery import JobFile, Recovery, RestoreRequest, Watcher
    from abscli.stores.removal import Collected, RemovalRequest
    from abscli.stores.tags import Tags
    from abscli.text.inspect_page import EpochPage, StorePage
    from abscli.text.validate import Advice, Leftovers
    from formats.job.model import Topology
    from formats.storage import Storage
    from formats.view import CheckpointStore, Status

Progress = Callable[[int, int | None], None]
"""Told the bytes read so far, and of how many (None: not known). Called from any thread, one call at a time."""

Visit = Callable[["CheckpointStore", int], None]
"""Called with an open store and an epoch of it."""


def unvisited(store: CheckpointStore, epoch: int) -> None:
    """A `Visit` that asks for nothing."""


@dataclass(frozen=True, slots=True)
class Words:
    """What messages call a system and its things."""

    title: str
    """Its name in a sentence."""
    store: str
    """What stands before a store's path in headings."""
    looked_for: str
    """What is there if a store is."""
    graph: str = "Job graph"
    """What `compare` is about, as a heading."""
    epoch: str = "epoch"
    """The system's own word for an epoch."""
    lost_input: str = "a restart fails, or resumes without those records"
    """What it makes of records that come next and are gone."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of a store or of one epoch says."""

    report: StoreReport
    job: str | None
    """The job's name where it is known."""
    epoch: int | None
    """The epoch that was asked for; None: the whole store."""
    why: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Epoch -> what is unchecked -> the reason, where there is one to give."""
    notes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Epoch -> what takes nothing from it and should be known."""


@dataclass(frozen=True, slots=True)
class Lives:
    """By what lives of one job are known: a job that is submitted again may have a directory of its own each time.

    operators: ids of its operators.
    began: when the first of its files was written, as seconds since 1970.
    ended: when the last one was.
    """

    operators: frozenset[str]
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that nothing refers to. One that is being written may look like one.

    files: by path from the store -> bytes; None where that is not known.
    """

    files: Mapping[str, int | None]

    @property
    def bytes(self) -> int | None:
        """Of all; None if one is not known."""
        return total(list(self.files.values()))


class Glance(Protocol):
    """A store as a shell asks for it at each press of a key: by names, and at most one small file of an epoch."""

    def epochs(self) -> Iterator[int]:
        """Epochs that are complete or have begun, the newest first, each looked for when it is taken."""

    def tags(self) -> Iterator[str]:
        """Names of epochs."""

    def operators(self, epoch: int | str | None, *, stateful: bool = False) -> dict[str, int]:
        """Operators of an epoch (a number, `latest` or a tag; None: the newest complete one) with their parallelism;
        FormatError if it cannot be read. stateful: those alone that may have state to show."""


class OwnReader(Protocol):
    """The system's own reader, running."""

    def asked(self, store: CheckpointStore) -> CheckpointStore:
        """The same store; its rows are read by the system."""

    def confirmed(self, storage: Storage, report: StoreReport) -> StoreReport:
        """The report with what the system finds of the epochs that can be restored."""


class Owners(Protocol):
    """Which operators of a job would own the state of an epoch."""

    @property
    def fits(self) -> bool:
        """Whether all state has an owner, and the system would take the job."""

    def text(self, width: int) -> str:
        """For people."""

    def to_json(self) -> dict[str, Any]:
        """For scripts."""


class Rewritten(Protocol):
    """What a file of changes makes of an epoch, worked out or written as a copy."""

    def text(self, width: int) -> str:
        """For people."""

    def to_json(self) -> dict[str, Any]:
        """For scripts."""


class StoreCopy(Protocol):
    """A copy that was made of a store."""

    @property
    def whole(self) -> bool:
        """Whether all that was to be copied could be."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known besides, and what to do next."""

    def text(self, width: int) -> str:
        """For people."""

    def to_json(self) -> dict[str, Any]:
        """For scripts."""


class Upgrade(Protocol):
    """Whether another release of a system restores an epoch."""

    @property
    def restores(self) -> bool | None:
        """Whether all of its state does; None: not known."""

    def text(self, width: int) -> str:
        """For people."""

    def to_json(self) -> dict[str, Any]:
        """For scripts."""


class System(Protocol):
    """One system: the methods without a body are those that every one has to answer."""

    name: str
    """Of its format: `--format`, and `format` in JSON."""
    words: Words
    options: frozenset[str] = frozenset()
    """The options of commands that mean something here: those of `ReadOptions`, and `deep`, `engine`, `job`, `uids`."""
    inside: tuple[str, ...] = ()
    """Files by which people name the store that they lie in."""

    def recognise(self, storage: Storage) -> bool:
        """Whether a store of this system lies there, from names and at most a few bytes."""

    def open(self, storage: Storage, options: ReadOptions) -> CheckpointStore:
        """The store; NotFound if there is none, FormatError for options that do not hold."""

    def glance(self, storage: Storage) -> Glance | None:
        """The store as a shell asks for it, with as little imported as can be; None if none of this system lies there,
        or the system offers nothing. FormatError for one that cannot be read."""
        return None

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING, visit: Visit = unvisited, job: JobFile | None = None,
    ) -> Checked:  # fmt: skip
        """Checks one epoch, the newest complete one (`latest`) or the whole store (None): of a storage, for what cannot
        be opened is checked, too. Raises NotFound, UnsupportedVersion; what is damaged is a finding.

        visit: called with the store and each epoch, ascending, while what the check has read of it is at hand.
        job: the job file that the user named, whose targets are asked; without one nothing outside the store is. Only
        a system with the option `job` is given one.
        """

    def recovery(self) -> Recovery[Any, Any, Any]:
        """Who plans and restores: the other half of the contract."""

    def compare(self, left: Side, right: Side) -> Besides:
        """What differs between two epochs of this system besides rows, positions, logs and job graphs."""
        from abscli.diff.epochs import Besides

        return Besides()

    def compare_rows(self, left: Side, right: Side, pair: Pair, *, rows: bool) -> Iterator[Compared] | None:
        """The rows of one state of two epochs, compared in a quicker way than by reading all; None: there is none.

        rows: whether the changes themselves are wanted.
        """
        return None

    def start_path(self, store: CheckpointStore, epoch: int) -> str:
        """What its own tools are given to start from an epoch; `PATH@N` where these are ours."""
        from formats.storage import absolute

        return f"{absolute(store.path)}@{epoch}"

    def cannot_start(self, store: CheckpointStore, epoch: int) -> str | None:
        """Why its own tools would not start from an epoch where it lies, though nothing of it is lost, in words; None
        if they would."""
        return None

    def lives(self, store: CheckpointStore, epoch: int) -> Lives | None:
        """By what lives of one job are told from another job's; None where nothing tells."""
        return None

    def orphans(self, stores: Sequence[CheckpointStore], reports: Sequence[StoreReport]) -> list[Orphans | None]:
        """Files of each store that no epoch of any of them needs; None where that is not known.

        reports: what a quick check says of each.
        """
        return [_orphans(report) for report in reports]

    def collect(self, stores: Sequence[Storage], path: str, request: RemovalRequest) -> Collected:
        """What may go from a store, or from all that lie in a directory; where that is asked for it has gone.

        stores: one where it was named itself; path: as it was. Raises OtherFormat, StoreInUse, BadOption.
        """
        raise _not_collected(self, path)

    def removal_text(
        self, collected: Collected, *, store: str, removed: bool, command: str, width: int, ascii: bool
    ) -> str:
        """What `abs gc` shows. command: what carries it out."""
        raise _not_collected(self, store)

    def copy(
        self, store: CheckpointStore, epoch: int | None, to: str, progress: Callable[[int], None]
    ) -> StoreCopy | None:
        """A copy of one epoch, or of all, at `to`, with what is missing there. None: what `restore` makes is one.

        progress: told the bytes of every file that is written. Raises OtherJob, StoreInUse, NotFound, Damaged.
        """
        return None

    def drill(
        self, store: CheckpointStore, epoch: int | None, request: RestoreRequest, watch: Watcher
    ) -> Drilled | None:
        """Proves in a scratch folder that an epoch, or the newest that is whole, can be restored, by running its job.
        None: no job is run, and a copy is made as `restore` makes it. Raises NoRecovery, Damaged, OtherJob."""
        return None

    def tags(self, store: CheckpointStore) -> Tags:
        """Names of epochs, which stay while they have one; OtherFormat where there is no such thing."""
        raise OtherFormat(
            f"checkpoints of {self.words.title} have no tags: {self.words.title} removes them as it is configured",
            path=store.path, hint="copy the checkpoint with `abs copy REF PATH` to a directory that is not cleaned up",
        )  # fmt: skip

    def store_text(self, page: StorePage, *, width: int, ascii: bool) -> str:
        """What `abs inspect` shows of a store."""
        from abscli.text.inspect import store_text

        return store_text(page, heading=self.words.store, unit=self.words.epoch, width=width, ascii=ascii)

    def epoch_text(self, page: EpochPage, *, width: int, ascii: bool) -> str:
        """What `abs inspect` shows of an epoch."""
        from abscli.text.inspect_epoch import epoch_text

        return epoch_text(page, width=width, ascii=ascii)

    def next_commands(self, page: StorePage, epoch: int | None) -> list[str]:
        """What to type next, for the store as it stands; epoch: the one that was shown, if one was."""
        from abscli.text.inspect import next_commands

        return next_commands(page, epoch)

    def recoveries(self, page: StorePage) -> list[str]:
        """What restarted while the job ran, as far as the store tells, a line each, the newest last."""
        return []

    def output_again(
        self, epoch: int, newer: Mapping[int, Status], topology: Topology | None, policy: str | None
    ) -> list[str]:
        """Return the effect on sinks of resuming from an epoch that can be restored, a sentence each.

        newer: the epochs after it; topology, policy: of the epoch, None where they are not known.
        """
        return ["Whether sinks publish rows again is not known."]

    def advice(self, job: str | None = None) -> Advice:
        """What findings mean here, and what to type about them. job: the job file that the user named."""
        from abscli.text.validate import Advice

        return Advice(self.words.store, unit=self.words.epoch)

    def leftovers(self, storage: Storage, path: str, report: StoreReport) -> Leftovers | None:
        """What is known of files that nothing refers to; None if there are none."""
        from abscli.text.validate import leftovers

        return leftovers(storage, path, report)

    def job_graph(self, data: bytes, file: str) -> Topology | None:
        """The graph of a job, from a file that this system describes jobs by; None if it is no such file."""
        return None

    def own_reader(self, master: str, show: Callable[[str], None]) -> AbstractContextManager[OwnReader]:
        """Starts the system's own reader, for the options `deep` and `engine`."""
        raise meaningless("--engine", self, ())

    def owners(self, store: CheckpointStore, epoch: int, file: str) -> Owners:
        """Who would own what, for the option `uids` and for a job file in place of an epoch. file: names the operators
        of a job."""
        raise meaningless("--uids", self, ())

    def upgrade(self, store: CheckpointStore, epoch: int, version: str, schema: str | None = None) -> Upgrade:
        """Whether a release of this system restores an epoch, for the option `for`. schema: a file of classes."""
        raise meaningless("--for", self, (), store.path)

    def rewrite(
        self, store: CheckpointStore, epoch: int, changes: str | None, layout: str | None, to: str | None, *,
        write: bool, progress: Callable[[int], None],
    ) -> Rewritten:  # fmt: skip
        """A changed copy of an epoch, by a file of changes, in another layout, or both. to: where it goes; write: it
        is made, else only worked out; progress: told the bytes of every read and write."""
        message = f"checkpoints of {self.words.title} are not rewritten"
        raise OtherFormat(message, path=store.path, hint="recover the checkpoints with abs plan-recovery and abs "
            "restore")


def _orphans(report: StoreReport) -> Orphans | None:
    """As a check names them, without their sizes."""
    from abscli.report.findings import Code

    if Code.UNREFERENCED_FILE in report.unchecked:
        return None
    paths = [f.path for f in report.all_findings if f.code is Code.UNREFERENCED_FILE and f.path is not None]
    return Orphans(dict.fromkeys(paths))


def _not_collected(system: System, path: str) -> OtherFormat:
    where = shlex.quote(path)
    return OtherFormat(
        f"`abs gc` does not support stores of format {system.name}", path=path,
        hint=f"read the store with `abs inspect {where}`, `abs validate {where}` or `abs plan-recovery {where}`",
    )  # fmt: skip


def meaningless(option: str, system: System, others: Sequence[System], path: str | None = None) -> OtherFormat:
    """The error for an option that the system has no use for. others: those that have."""
    whose = " and ".join(f"{other.words.title}'s" for other in others)
    only = f"; only {whose} checkpoints have a use for it" if whose else ""
    return OtherFormat(f"{option} means nothing to a store of format {system.name}{only}", path=path)
