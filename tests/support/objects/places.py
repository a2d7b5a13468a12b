"""Places that storages lie in: a directory, a process' memory, and buckets of servers on loopback."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from formats.storage import LocalStorage, MemoryStorage, WritableStorage, open_writable
from tests.support.objects.servers import ObjectServer

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """Where a test has a storage of its own.

    root: its path or URI; None where no other process sees it.
    environment: what another process is told.
    open: the storage there, opened anew; it is handed what is to be called before a file is shown.
    server: that has it, if one does.
    """

    root: str | None
    environment: Mapping[str, str]
    open: Callable[..., WritableStorage]
    server: ObjectServer | None = None


def local_place(folder: Path) -> Place:
    return Place(str(folder), {}, lambda **options: LocalStorage(folder, **options))


def memory_place() -> Place:
    storage = MemoryStorage()

    def opened(**options: Callable[[], None]) -> MemoryStorage:
        twin = MemoryStorage(**options)
        twin.files = storage.files
        return twin

    return Place(None, {}, opened)


def bucket_place(server: ObjectServer) -> Place:
    """A bucket of its own, or a folder on HDFS. The server's environment has to be set."""
    name = f"abs-{next(_numbers)}-{secrets.token_hex(4)}"
    server.make(name)
    root = f"{server.scheme}://{server.at}{name}/some/store"
    return Place(root, server.environment, lambda **options: open_writable(root, **options), server)
