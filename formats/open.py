"""From a reference to a store: what kind of checkpoint lies at a path, and which epoch of it is meant.

FORMATS is the one table of formats: a format is a row here and one in `abscli.stores.registry`.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from formats.errors import FormatError, NotFound, OtherFormat
from formats.storage import ArrowStorage, LocalStorage, Storage, open_storage
from formats.view import CheckpointStore, StateFacts, Status

if TYPE_CHECKING:
    from formats.flink.store import FlinkStore
    from formats.native.store import NativeStore


class Format(NamedTuple):
    """How a format is recognised and opened. `module` is imported when it is asked.

    recognise: the name of a function `(Storage) -> bool` that reads names and at most a few bytes; store: of what is
    called with the Storage and gives a CheckpointStore; looked_for: what is there if it is one, for messages; takes:
    fields of `Looking` that `store` takes as keywords.
    """

    name: str
    looked_for: str
    module: str
    recognise: str
    store: str
    takes: tuple[str, ...] = ()


class Looking(NamedTuple):
    """What a user adds to a path, as written: directories where files may lie too, OLD=NEW where they were moved, names
    that operators may have, NAME=TYPE of state whose type is not stored. Not every format has a use for them."""

    search: tuple[str, ...] = ()
    path_map: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    type: tuple[str, ...] = ()


NOTHING = Looking()

FORMATS = (
    Format("abs", "abs-store.json (written by `abs run`)", "formats.native.store", "is_native", "NativeStore"),
    Format(
        "flink", "chk-N, or _metadata (a checkpoint or savepoint of Flink)",
        "formats.flink.opening", "recognise", "open_flink", ("search", "path_map", "uid", "type"),
    ),
    Format("spark", "offsets/ of a streaming query", "formats.spark.store", "is_spark", "SparkStore"),
)  # fmt: skip
"""In the order in which they are tried."""


@runtime_checkable
class Numbered(Protocol):
    """A store that knows its epochs without looking for every file."""

    def epoch_numbers(self) -> list[int]:
        """All epochs, ascending."""

    def latest(self) -> int | None:
        """The newest with a manifest, not verified."""


class BadReference(FormatError):
    """A reference that is not PATH, PATH@7 or PATH@latest."""


class Reference(NamedTuple):
    """`PATH@7`, `PATH@latest` or `PATH`. epoch: a number, `latest`, or None for the path alone."""

    path: str
    epoch: int | str | None


def parse_reference(text: str) -> Reference:
    """Split a reference; BadReference if what follows the last `@` is neither a number nor `latest`."""
    path, at, epoch = text.rpartition("@")
    if not at or "/" in epoch:
        return Reference(text, None)
    if path and epoch == "latest":
        return Reference(path, "latest")
    if path and re.fullmatch(r"[0-9]{1,18}", epoch):
        return Reference(path, int(epoch))
    raise BadReference(
        f"{text!r}: what follows @ must be an epoch number or 'latest', not {epoch!r}", hint="for example store@7"
    )


def recognise(storage: Storage, wanted: str | None = None) -> Format:
    """The format of what lies there, or `wanted` without a look.

    NotFound, saying what was looked for, if it is none; OtherFormat for a name that this version does not read.
    """
    for row in FORMATS:
        if wanted == row.name or (wanted is None and _function(row.module, row.recognise)(storage)):
            return row
    if wanted is not None:
        known = ", ".join(row.name for row in FORMATS)
        raise OtherFormat(f"{wanted!r} is not a format that this version reads; it reads {known}", path=storage.root)
    looked = "; ".join(f"{row.name}: {row.looked_for}" for row in FORMATS)
    raise NotFound(
        f"no store here; looked for {looked}", path=storage.root, hint="--format names the format of a damaged store"
    )


def open_store(path: str, format: str | None = None, looking: Looking = NOTHING) -> CheckpointStore:
    """The store at a path, of the format that is recognised or named; NotFound if there is none.

    OtherFormat for something in `looking` that the format has no use for.
    """
    storage = open_storage(path.removesuffix("/_metadata"))
    try:
        row = recognise(storage, format)
    except NotFound as error:
        if found := list(itertools.islice(_near(storage), _NAMED)):
            raise NotFound(error.message, path=error.path, hint=f"there is one in {' and in '.join(found)}") from None
        raise
    return opened(storage, row, looking)


_NAMED = 3
"""Stores nearby that an error names."""
_LOOKED_AT = 100
"""Directories below that are looked into for them."""


def _near(storage: Storage) -> Iterator[str]:
    """Stores right above a directory that is none, or right below it."""
    if not isinstance(storage, LocalStorage):
        return
    root = Path(storage.root)
    below = [root / entry.name for entry in storage.list("")[:_LOOKED_AT] if entry.size is None]
    for place in (root.parent, root.parent.parent, *below):
        with contextlib.suppress(FormatError, OSError):
            near = LocalStorage(place)
            if any(_function(row.module, row.recognise)(near) for row in FORMATS):
                yield str(place)


def opened(storage: Storage, row: Format, looking: Looking = NOTHING) -> CheckpointStore:
    """The store of a format that is known; OtherFormat as `open_store`."""
    store: CheckpointStore = _function(row.module, row.store)(storage, **usable(row, looking, storage.root))
    return store


def usable(row: Format, looking: Looking, path: str) -> dict[str, tuple[str, ...]]:
    """What the user gave, by name; OtherFormat for something that the format has no use for."""
    given: dict[str, tuple[str, ...]] = {name: value for name, value in looking._asdict().items() if value}
    for name in given:
        if name not in row.takes:
            option = f"--{name.replace('_', '-')}"
            raise OtherFormat(f"{option} means nothing to a store of format {row.name}", path=path)
    return given


def open_native(path: str, format: str | None = None, *, purpose: str) -> NativeStore:
    """A store that abs wrote; OtherFormat for another. purpose: what needs it, as in `abs restore needs ...`."""
    from formats.native.store import NativeStore

    return NativeStore(_native(path, format, purpose))


def native_storage(path: str, *, purpose: str) -> LocalStorage | None:
    """Where a store that abs wrote lies, be it without its own file; None for one behind a URI. Raises as
    `open_native`."""
    storage = _native(path, None, purpose)
    return storage if isinstance(storage, LocalStorage) else None


def _native(path: str, format: str | None, purpose: str) -> LocalStorage | ArrowStorage:
    storage = open_storage(path)
    found = recognise(storage, format).name
    if found != "abs":
        where = shlex.quote(path)
        raise OtherFormat(
            f"{purpose} needs a store that abs wrote; this is one of {found.capitalize()}'s",
            path=path,
            hint=f"`abs inspect {where}`, `abs validate {where}` and `abs plan-recovery {where}` read it",
        )
    return storage


def resolve_epoch(store: CheckpointStore, epoch: int | str | None) -> int:
    """The epoch number that a reference means: a number as it is, otherwise the newest complete one; NotFound."""
    if isinstance(store, Numbered):
        numbers, latest = store.epoch_numbers(), None if isinstance(epoch, int) else store.latest()
    else:
        rows = store.epochs()
        numbers = [row.epoch for row in rows]
        whole = (Status.COMPLETE, Status.DAMAGED)
        latest = next((row.epoch for row in reversed(rows) if row.status in whole), None)
    if isinstance(epoch, int):
        if epoch not in numbers:
            raise no_epoch(store.path, epoch, numbers)
        return epoch
    if latest is None:
        hint = f"`abs inspect {shlex.quote(store.path)}` shows the ones that were begun"
        raise NotFound("no complete epoch", path=store.path, hint=hint)
    return latest


def as_flink(store: CheckpointStore) -> FlinkStore | None:
    """The store, if it is one of Flink's, for what only those can answer."""
    if store.format != "flink":
        return None
    from formats.flink.store import FlinkStore

    return store if isinstance(store, FlinkStore) else None


def only_epoch(store: CheckpointStore) -> int | None:
    """The epoch that the path alone names, such as one `chk-N` or a savepoint of Flink; None for a whole store."""
    flink = as_flink(store)
    return flink.only if flink is not None else None


def known_as(store: CheckpointStore, epoch: int, operator: str) -> str:
    """The id of an operator that may be named otherwise too: in Flink by uid, hash or name."""
    flink = as_flink(store)
    return flink.operator_id(epoch, operator) if flink is not None else operator


def states_of(store: CheckpointStore, epoch: int, operator: str | None = None) -> list[StateFacts]:
    """The states of an epoch, counted where the format has no counts and there is not too much of them; of one operator
    at least."""
    flink = as_flink(store)
    return flink.counted_states(epoch, operator) if flink is not None else store.states(epoch)


def no_epoch(path: str, epoch: int, numbers: list[int]) -> NotFound:
    """The error for an epoch that is not there; says which are."""
    said = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none"
    return NotFound(f"no epoch {epoch}: {said}", path=path)


def _function(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
