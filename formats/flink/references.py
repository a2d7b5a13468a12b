"""Which files the checkpoints of several jobs need, and which of a job's files none of them does.

A file is told by its name alone: Flink calls every file of state by a random id, so that a name which any checkpoint
refers to is a file that is needed, wherever a directory was moved, mounted or linked to, and whichever job wrote it (a
job that has claimed a checkpoint refers to the files of the one before).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

import msgspec

from formats.errors import FormatError
from formats.flink import facts
from formats.flink.files.layout import OF_A_JOB, is_flink, number
from formats.flink.files.resolve import FileLike
from formats.flink.metadata.file import FILE
from formats.flink.store import FlinkStore
from formats.storage import file_name, top_folder


class References(msgspec.Struct, frozen=True):
    """What the checkpoints of one store refer to.

    names: of files.
    unread: each `_metadata` that cannot be read, and why: what it refers to is not known.
    complete: numbers of the checkpoints that were completed.
    """

    names: frozenset[str]
    unread: dict[str, str]
    complete: tuple[int, ...]


def references(store: FlinkStore) -> References:
    """What all checkpoints of a store refer to."""
    names: set[str] = set()
    unread: dict[str, str] = {}
    complete = []
    for epoch in store.epoch_numbers():
        if not store.has_metadata(epoch):
            continue
        complete.append(epoch)
        try:
            metadata = store.metadata(epoch)
        except FormatError as error:
            home = store.home(epoch)
            unread[f"{home}/{FILE}" if home else FILE] = error.message
            continue
        names |= {file_name(stream.path) for stream in facts.every_stream(metadata) if isinstance(stream, FileLike)}
    return References(frozenset(names), unread, tuple(complete))


def unreferenced(files: dict[str, int], needed: Iterable[frozenset[str]]) -> dict[str, int]:
    """The files of a job (path from its directory -> bytes) that lie where Flink keeps state and that no name in
    `needed` is of. What lies elsewhere is somebody else's."""
    every = list(needed)
    return {
        path: size
        for path, size in files.items()
        if _of_flink(path) and not any(file_name(path) in names or _beside(path) in names for names in every)
    }


def _of_flink(path: str) -> bool:
    folder = top_folder(path)
    return folder != path and (folder in OF_A_JOB or number(folder) is not None) and file_name(path) != FILE


def _beside(path: str) -> str:
    """Of the file of checksums that Hadoop keeps beside a file, the name of that file: `.NAME.crc`."""
    name = file_name(path)
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


def stores_below(root: str) -> Iterator[FlinkStore]:
    """The jobs and savepoints right below a directory on this machine, those that a link leads to among them."""
    with os.scandir(root) as entries:
        places = sorted(entry.path for entry in entries if _is_folder(entry))
    for place in places:
        if is_flink(place):
            yield FlinkStore(place)


def linked(root: str) -> Iterator[str]:
    """Links in a job's directory that lead to directories: they are not followed, so what lies there is not known."""
    with os.scandir(root) as entries:
        yield from sorted(entry.path for entry in entries if entry.is_symlink() and _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory, or a link to one; links in a circle lead to nothing."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False
