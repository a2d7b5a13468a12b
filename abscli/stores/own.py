"""The engine's own store, for what works on no other: `abs run`, `restore`, `gc`, `rebuild`."""

from __future__ import annotations

import shlex

from abscli.stores.registry import recognise
from formats.errors import OtherFormat
from formats.native.store import NativeStore
from formats.storage import ArrowStorage, LocalStorage, open_storage


def open_native(path: str, format: str | None = None, *, purpose: str) -> NativeStore:
    """A store that abs wrote; OtherFormat for another. purpose: what needs it, as in `abs restore needs ...`."""
    return NativeStore(_native(path, format, purpose))


def native_storage(path: str, *, purpose: str) -> LocalStorage | None:
    """Where a store that abs wrote lies, be it without its own file; None for one behind a URI. Raises as
    `open_native`."""
    storage = _native(path, None, purpose)
    return storage if isinstance(storage, LocalStorage) else None


def _native(path: str, format: str | None, purpose: str) -> LocalStorage | ArrowStorage:
    storage = open_storage(path)
    system = recognise(storage, format)
    if system.name != NativeStore.format:
        where = shlex.quote(path)
        raise OtherFormat(
            f"{purpose} needs a store that abs wrote; this is one of {system.words.title}'s",
            path=path,
            hint=f"`abs inspect {where}`, `abs validate {where}` and `abs plan-recovery {where}` read it",
        )
    return storage
