"""The engine's own store, for what works on no other: `abs run`, `restore`, `rebuild`."""

from __future__ import annotations

import shlex

from abscli.stores.base import System
from abscli.stores.registry import recognise
from formats.errors import OtherFormat
from formats.native.store import NativeStore
from formats.storage import open_storage


def open_native(path: str, format: str | None = None, *, purpose: str) -> NativeStore:
    """A store that abs wrote; OtherFormat for another. purpose: what needs it, as in `abs restore needs ...`."""
    storage = open_storage(path)
    check_own(recognise(storage, format), path, purpose)
    return NativeStore(storage)


def check_own(system: System, path: str, purpose: str) -> None:
    """OtherFormat where the store at a path is another system's. purpose: as of `open_native`."""
    if system.name != NativeStore.format:
        where = shlex.quote(path)
        raise OtherFormat(
            f"{purpose} needs a store that abs wrote; {system.words.title} wrote this store",
            path=path,
            hint=f"read the store with `abs inspect {where}`, `abs validate {where}` or `abs plan-recovery {where}`",
        )
