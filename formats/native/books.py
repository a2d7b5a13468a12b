"""A store's bookkeeping, file by file: what can be read of it, and what cannot, and why. Nothing raises because of what
a file holds, except UnsupportedVersion: a newer format is not damage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from formats.errors import FormatError, NotFound, UnsupportedVersion
from formats.ids import TaskId
from formats.native import layout
from formats.native.evidence import open_for_validation
from formats.native.facts import AttemptFacts, FenceFacts, ManifestFacts, StoreFacts, TriggerFacts
from formats.native.store import NativeStore
from formats.storage import Storage

T = TypeVar("T")


class Books(NamedTuple):
    """What can be read, each list ascending.

    store: its own facts, None if they are lost or damaged.
    graphs: digests of those that are whole.
    heads: what says of an epoch whose it is.
    damaged: by path, why it cannot be read.
    """

    store: StoreFacts | None
    attempts: tuple[AttemptFacts, ...]
    graphs: frozenset[str]
    heads: tuple[ManifestFacts | TriggerFacts, ...]
    fences: tuple[FenceFacts, ...]
    damaged: dict[str, str]


class _Reader:
    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}

    def read(self, reader: Callable[[], T], path: str) -> T | None:
        """What a file says; None if it is not there, or cannot be read, which is noted."""
        try:
            return reader()
        except UnsupportedVersion:
            raise
        except NotFound:
            return None
        except FormatError as error:
            self.damaged[path] = error.message
        except OSError as error:
            self.damaged[path] = error.strerror or str(error)
        return None


def read_books(storage: Storage) -> Books:
    """The bookkeeping of the store that lies there; NotFound if none does, not even without its own file."""
    notes = _Reader()
    store, problems = open_for_validation(storage)
    for problem in problems:
        if storage.size(problem.path) is not None:
            notes.damaged[problem.path] = problem.message
    paths = [f"{layout.ATTEMPTS}/{entry.name}" for entry in storage.list(layout.ATTEMPTS)]
    attempts = [life for path in paths if (life := notes.read(partial(store.attempt, path), path))]
    for entry in storage.list(layout.RECOVERIES):
        path = f"{layout.RECOVERIES}/{entry.name}"
        notes.read(partial(store.recovery, path), path)
    for path in store.tag_paths():
        notes.read(partial(store.tag, path), path)
    graphs = set()
    for entry in storage.list("topologies"):
        path = f"topologies/{entry.name}"
        sha256 = entry.name.removesuffix(".json")
        if notes.read(partial(store.topology_by_digest, sha256), path) is not None:
            graphs.add(sha256)
    heads = [head for epoch in store.epoch_numbers() if (head := _head(store, epoch, notes)) is not None]
    fences = [
        fence for number in store.fences()
        if (fence := notes.read(partial(store.fence, number), layout.outcome(number))) is not None
    ]  # fmt: skip
    facts = None if problems else store.facts
    return Books(facts, tuple(attempts), frozenset(graphs), tuple(heads), tuple(fences), notes.damaged)


def _head(store: NativeStore, epoch: int, notes: _Reader) -> ManifestFacts | TriggerFacts | None:
    """What says of an epoch whose it is; acks of an open one are read as well, for what is damaged of them."""
    outcome = layout.outcome(epoch)
    if store.has_manifest(epoch):
        return notes.read(lambda: store.manifest(epoch), outcome)
    home = store.home(epoch) or ""
    trigger = notes.read(lambda: store.trigger(epoch), layout.trigger(epoch, home))
    notes.read(lambda: store.aborted(epoch), outcome)
    tasks: list[TaskId] = []
    if trigger is not None:
        tasks = notes.read(lambda: store.tasks(epoch), layout.topology(trigger.topology_sha256)) or []
    for path in store.pack_paths(epoch, home) if tasks else ():
        notes.read(partial(store.pack, path), path)
    for task in tasks:
        notes.read(partial(store.part, epoch, task), store.ack_path(epoch, task, home))
    return trigger
