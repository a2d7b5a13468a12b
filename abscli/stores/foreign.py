"""Directories and files of other systems that people take for a checkpoint store: what they are, and why not read.

Recognised by the names of at most two levels, a single file by its first bytes. The names are those that the
documentation of each system gives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from formats.errors import FormatError, NotFound
from formats.storage import Storage

LOOKED_INTO: Final = 20
"""Directories that are looked into."""

Names = Collection[str]


class Foreign(NamedTuple):
    """A kind of data of another system.

    what: it is, with its article; why: it is not read; instead: what to use.
    matches: whether it is that, from the names of a directory's entries and those of its directories' entries.
    """

    what: str
    why: str
    instead: str
    matches: Callable[[Names, Mapping[str, Names]], bool]


TASK: Final = re.compile(r"\d+_\d+")
PARTITION: Final = re.compile(r"Partition[ _]\d+")


def _is_kafka_streams(names: Names, below: Mapping[str, Names]) -> bool:
    mine = {"kafka-streams-process-metadata"}
    own = not mine.isdisjoint(names) or any(not mine.isdisjoint(inner) for inner in below.values())
    task = ".checkpoint" in names and "rocksdb" in names
    return own or task or any(TASK.fullmatch(name) and _is_task(inner) for name, inner in below.items())


def _is_task(names: Names) -> bool:
    return not {".checkpoint", ".lock", "rocksdb"}.isdisjoint(names)


def _is_samza(names: Names, below: Mapping[str, Names]) -> bool:
    offsets = {"OFFSET", "OFFSET-v2", "CHECKPOINT-V2"}
    return not offsets.isdisjoint(names) or any(
        (PARTITION.fullmatch(name) and not offsets.isdisjoint(inner)) or any(map(PARTITION.fullmatch, inner))
        for name, inner in below.items()
    )


def _any(found: re.Pattern[str]) -> Callable[[Names, Mapping[str, Names]], bool]:
    return lambda names, below: any(map(found.fullmatch, names))


def _in(folder: str, found: re.Pattern[str]) -> Callable[[Names, Mapping[str, Names]], bool]:
    """Match a name in a directory of this name, or in the directory itself if the user named that one."""
    return lambda names, below: any(map(found.fullmatch, (*names, *below.get(folder, ()))))


FOREIGN: Final = (
    Foreign(
        "the state directory of a Kafka Streams application",
        "it is a local cache without epochs; the state that counts is in changelog topics, and positions are committed "
        "to the consumer group",
        "kafka-consumer-groups.sh --describe --group APPLICATION_ID",
        _is_kafka_streams,
    ),
    Foreign(
        "the state directory of a Samza job",
        "it is a local cache without epochs; checkpoints are in the checkpoint topic, and state is in changelog topics",
        "samza's checkpoint-tool.sh",
        _is_samza,
    ),
    Foreign(
        "a set of Bytewax recovery partitions",
        "its snapshots are pickled Python objects in SQLite, and abs unpickles nothing",
        "the dataflow that wrote them: python -m bytewax.run -r DIR",
        _any(re.compile(r"part-\d+\.sqlite3")),
    ),
    Foreign(
        "a checkpoint of Spark Streaming (DStreams)",
        "it is a Java-serialized graph that only the same application can read",
        "checkpoints of Structured Streaming, to which Spark recommends to migrate",
        _any(re.compile(r"checkpoint-\d{10,}(\.bk)?")),
    ),
    Foreign(
        "a Delta table", "it has rows and no streaming state; the checkpoint of the query that writes it is elsewhere",
        "the checkpointLocation of that query", _in("_delta_log", re.compile(r"\d{20}\.(json|checkpoint.*)")),
    ),
    Foreign(
        "an Iceberg table", "it has rows and no streaming state; the checkpoint of the job that writes it is elsewhere",
        "the checkpoint directory of that job",
        _in("metadata", re.compile(r".*\.metadata\.json(\.gz)?|version-hint\.text")),
    ),
    Foreign(
        "a Hudi table", "it has rows and no streaming state; the checkpoint of the job that writes it is elsewhere",
        "the checkpoint directory of that job", _in(".hudi", re.compile(r"hoodie\.properties")),
    ),
    Foreign(
        "a Paimon table", "it has rows and no streaming state; the checkpoint of the job that writes it is elsewhere",
        "the checkpoint directory of that job", _in("schema", re.compile(r"schema-\d+")),
    ),
)  # fmt: skip
"""In the order in which they are tried."""

FILES: Final = {
    b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap": (
        "the offsets file of Kafka Connect in standalone mode",
        "it has source offsets and no state; abs does not read Java-serialized maps",
        "the REST API of the worker: /connectors/NAME/offsets",
    ),
    b"SQLite format 3\x00": (
        "an SQLite database", "it is no store; Bytewax keeps recovery partitions in such files",
        "the application that wrote it",
    ),
}  # fmt: skip
"""First bytes of a file -> what it is, why it is not read, and what to use."""


def refuse_foreign(storage: Storage) -> None:
    """Raise NotFound if another system's data is there, which says what it is and why it is not read."""
    try:
        entries = storage.list("")
        folders = [entry.name for entry in entries if entry.size is None][:LOOKED_INTO]
        below = {name: [entry.name for entry in storage.list(name)] for name in folders}
    except FormatError:
        return
    names = [entry.name for entry in entries]
    for kind in FOREIGN:
        if kind.matches(names, below):
            raise NotFound(f"is {kind.what}, which abs does not read: {kind.why}", path=storage.root,
                           hint=f"use {kind.instead}")  # fmt: skip


def refuse_foreign_file(path: str) -> None:
    """Raise NotFound if a path is a file of another system."""
    if "://" in path or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        head = file.read(64)
    for begin, (what, why, instead) in FILES.items():
        if head.startswith(begin):
            raise NotFound(f"is {what}, which abs does not read: {why}", path=path, hint=f"use {instead}")
