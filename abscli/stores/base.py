"""What the program asks of a system whose checkpoints it reads: the whole contract, on one page.

A system is a folder beside this file and a line in `registry.SYSTEMS`. Its class is small: a method imports what it
calls when it is called, so that a program that starts loads none of it. What a system has no answer of its own for, the
default here answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from formats.errors import OtherFormat
from formats.reference import NOTHING, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from abscli.diff.epochs import Besides
    from abscli.diff.rows import Compared
    from abscli.diff.state import Pair, Side
    from abscli.report.findings import StoreReport
    from abscli.stores.recovery import Recovery
    from abscli.text.inspect_page import EpochPage, StorePage
    from abscli.text.validate import Advice, Leftovers
    from formats.job.model import Topology
    from formats.storage import Storage
    from formats.view import CheckpointStore

Progress = Callable[[int, int | None], None]
"""Told the bytes read so far, and of how many (None: not known). Called from any thread, one call at a time."""


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
        """Whether all state has an owner and every operator is known."""

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
    """The options of commands that mean something here: those of `ReadOptions`, and `deep`, `engine`, `uids`."""
    inside: tuple[str, ...] = ()
    """Files by which people name the store that they lie in."""

    def recognise(self, storage: Storage) -> bool:
        """Whether a store of this system lies there, from names and at most a few bytes."""

    def open(self, storage: Storage, options: ReadOptions) -> CheckpointStore:
        """The store; NotFound if there is none, FormatError for options that do not hold."""

    def check(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress,
        options: ReadOptions = NOTHING,
    ) -> Checked:  # fmt: skip
        """Checks one epoch, the newest complete one (`latest`) or the whole store (None): of a storage, for what cannot
        be opened is checked, too. Raises NotFound, UnsupportedVersion; what is damaged is a finding."""

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

    def store_text(self, page: StorePage, *, width: int, ascii: bool) -> str:
        """What `abs inspect` shows of a store."""
        from abscli.text.inspect import store_text

        return store_text(page, heading=self.words.store, width=width, ascii=ascii)

    def epoch_text(self, page: EpochPage, *, width: int, ascii: bool) -> str:
        """What `abs inspect` shows of an epoch."""
        from abscli.text.inspect_epoch import epoch_text

        return epoch_text(page, width=width, ascii=ascii)

    def next_commands(self, page: StorePage, epoch: int | None) -> list[str]:
        """What to type next, for the store as it stands; epoch: the one that was shown, if one was."""
        from abscli.text.inspect import next_commands

        return next_commands(page, epoch)

    def advice(self) -> Advice:
        """What findings mean here, and what to type about them."""
        from abscli.text.validate import Advice

        return Advice(self.words.store)

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
        """Who would own what, for the option `uids`. file: names the operators of a job."""
        raise meaningless("--uids", self, ())


def meaningless(option: str, system: System, others: Sequence[System], path: str | None = None) -> OtherFormat:
    """The error for an option that the system has no use for. others: those that have."""
    whose = " and ".join(f"{other.words.title}'s" for other in others)
    only = f"; only {whose} checkpoints have a use for it" if whose else ""
    return OtherFormat(f"{option} means nothing to a store of format {system.name}{only}", path=path)
