"""Where things lie in a Structured Streaming checkpoint, and what the names of state files say."""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.spark.ids import StateTask, StorePartition

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
SOURCES = "sources"
STATE = "state"
DEFAULT_STORE = "default"
SSTS = "SSTs"

HDFS = "hdfs"
ROCKSDB = "rocksdb"

_WITH_ID = re.compile(r"(\d{1,18})_([0-9A-Za-z][0-9A-Za-z-]{0,63})", re.ASCII)
_LOG_ENTRY = re.compile(r"(\d{1,18})(\.compact)?", re.ASCII)
SNAPSHOTS = frozenset({"snapshot", "zip"})
LOGS = frozenset({"delta", "changelog"})


class StateFile(NamedTuple):
    """One state file by its name.

    version: the batch that wrote it plus 1.
    uuid: of checkpoint format 2, else None.
    kind: `delta`, `snapshot` (HDFS-backed), `changelog`, `zip` (RocksDB).
    """

    version: int
    uuid: str | None
    kind: str
    name: str
    size: int

    @property
    def whole(self) -> bool:
        """Whether it holds all of the state, not only what changed."""
        return self.kind in SNAPSHOTS


def state_file(name: str, size: int) -> StateFile | None:
    """What a name says; None if it is not that of a state file."""
    version, _, kind = name.partition(".")
    if kind not in LOGS and kind not in SNAPSHOTS:
        return None
    if version.isdecimal() and version.isascii() and len(version) <= 18:
        return StateFile(int(version), None, kind, name, size)
    match = _WITH_ID.fullmatch(version)
    return StateFile(int(match[1]), match[2], kind, name, size) if match else None


def by_version(file: StateFile) -> tuple[int, bool, str]:
    """The order to read state files in: logs of a version before snapshots of it."""
    return file.version, file.whole, file.name


def log_entry(name: str) -> tuple[int, bool] | None:
    """The number of a log's file, and whether it is a compaction of all before it."""
    match = _LOG_ENTRY.fullmatch(name)
    return (int(match[1]), match[2] is not None) if match else None


def offsets(batch: int) -> str:
    return f"{OFFSETS}/{batch}"


def commits(batch: int) -> str:
    return f"{COMMITS}/{batch}"


def operator_dir(operator: int) -> str:
    return f"{STATE}/{operator}"


def task_dir(task: StateTask) -> str:
    return f"{STATE}/{task.operator}/{task.partition}"


def store_dir(part: StorePartition) -> str:
    """Where one partition of a state store lies; the default store has no folder of its own."""
    folder = task_dir(part.task)
    return folder if part.store == DEFAULT_STORE else f"{folder}/{part.store}"
