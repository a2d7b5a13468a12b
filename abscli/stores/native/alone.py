"""A store of our own that nobody else writes to while it is kept up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from formats.errors import StoreInUse
from formats.native import lock
from formats.storage import Storage, WritableStorage


def writable(storage: Storage) -> WritableStorage:
    """The storage as one that can be written to."""
    assert isinstance(storage, WritableStorage)
    return storage


@contextlib.contextmanager
def alone(storage: Storage, path: str, change: bool, why: str = "", hint: str | None = None) -> Iterator[None]:
    """No job runs on the store when the block begins; where it will change something, none does until its end.

    StoreInUse, saying why that matters, where one does.
    """
    if change:
        with lock.exclusive(storage):
            yield
        return
    if lock.held(storage):
        raise StoreInUse("a running job uses this store" + f", {why}" * bool(why), path=path, hint=hint)
    yield
