"""What lies at a path: a job's checkpoint directory, one `chk-N` of it, or a snapshot on its own (savepoint, copy)."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import NamedTuple

from formats.errors import FormatError, NotFound
from formats.flink.files.resolve import plain
from formats.flink.metadata.file import FILE
from formats.storage import LocalStorage, Storage, open_storage

CHECKPOINT = re.compile(r"chk-([0-9]{1,18})")
JOB_ID = re.compile(r"[0-9a-f]{32}")
OF_A_JOB = ("shared", "taskowned", "dstl")


class SiteKind(StrEnum):
    """What was named."""

    JOB = "job"
    CHECKPOINT = "checkpoint"
    SNAPSHOT = "snapshot"


class Site(NamedTuple):
    """Where to read.

    storage: at the root of what belongs together.
    epoch: the one that was named, None for all.
    """

    kind: SiteKind
    storage: Storage
    epoch: int | None


def number(name: str) -> int | None:
    """The checkpoint number of a directory `chk-N`."""
    match = CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def kind_of(names: dict[str, int | None], name: str) -> SiteKind | None:
    """What a directory is, by what is in it (name -> bytes, None for a directory) and what it is called."""
    if names.get(FILE) is not None:
        return SiteKind.SNAPSHOT if number(name) is None else SiteKind.CHECKPOINT
    if any(size is None and number(entry) is not None for entry, size in names.items()):
        return SiteKind.JOB
    if number(name) is not None:
        return SiteKind.CHECKPOINT
    if JOB_ID.fullmatch(name) and all(size is None and entry in OF_A_JOB for entry, size in names.items()) and names:
        return SiteKind.JOB
    return None


def trimmed(path: str) -> str:
    """A path as it names a directory: without `file:`, a trailing `/` and `/_metadata`."""
    path = plain(path) if path.startswith("file:") else path.rstrip("/") or path
    return path.removesuffix(f"/{FILE}") if path != f"/{FILE}" else "/"


def is_flink(path: str) -> bool:
    """Whether a checkpoint or savepoint of Flink lies at a path."""
    try:
        storage = open_storage(trimmed(path))
        return kind_of(_names(storage), _name(storage)) is not None
    except FormatError:
        return False


def find(path: str) -> Site:
    """What lies at a path; NotFound if it is nothing of Flink.

    A `chk-N` in a job's directory is read from there, for its shared files lie beside it.
    """
    where = trimmed(path)
    storage: Storage = open_storage(where)
    name = _name(storage)
    kind = kind_of(_names(storage), name)
    if kind is None:
        raise NotFound("no checkpoint of Flink here", path=path, hint=_instead(storage, where))
    epoch = number(name)
    if kind is not SiteKind.CHECKPOINT or epoch is None:
        return Site(kind, storage, None)
    parent = _parent(storage)
    if parent is not None:
        above = open_storage(parent)
        names = _names(above)
        if JOB_ID.fullmatch(_name(above)) or any(entry in names and names[entry] is None for entry in OF_A_JOB):
            return Site(kind, above, epoch)
    return Site(SiteKind.SNAPSHOT, storage, epoch)


def _names(storage: Storage) -> dict[str, int | None]:
    return {entry.name: entry.size for entry in storage.list("")}


def _name(storage: Storage) -> str:
    root = os.path.abspath(storage.root) if isinstance(storage, LocalStorage) else storage.root
    return root.rstrip("/").rpartition("/")[2]


def _parent(storage: Storage) -> str | None:
    if isinstance(storage, LocalStorage):
        return os.path.dirname(os.path.abspath(storage.root))
    scheme, _, rest = storage.root.partition("://")
    above = rest.rstrip("/").rpartition("/")[0]
    return f"{scheme}://{above}" if above else None


def _instead(storage: Storage, where: str) -> str:
    """Which directories below are something of Flink, for those who named the one above."""
    for entry in storage.list("")[:1000]:
        if entry.size is None and kind_of({e.name: e.size for e in storage.list(entry.name)}, entry.name):
            return f"name one of the directories in it, for example {where}/{entry.name}"
    return "name a job's checkpoint directory, a chk-N in it, or a savepoint"
