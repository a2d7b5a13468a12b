"""The cases of Flink's checkpoints that tests look at, change and copy, and what the checks say of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec

from abscli.report.findings import Code
from abscli.stores.flink.verdict import FlinkReport, check_store
from formats.flink.evidence import gather
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import FileHandle, Metadata, SegmentHandle
from formats.flink.store import FlinkStore
from tests.support.archives import unpacked
from tests.support.flink.truth import DATA

HASHMAP = next((DATA / "hashmap-checkpoint").iterdir())
UNALIGNED = next((DATA / "unaligned").iterdir())
MERGED = next((DATA / "file-merging").iterdir())
OPEN = next((DATA / "in-progress").iterdir())
OLD = next((DATA / "old-1.20-hashmap-checkpoint").iterdir())
CHANGELOG = next((DATA / "changelog").iterdir())
CANONICAL = next((DATA / "hashmap-savepoint-canonical").iterdir())
ALL = [HASHMAP, UNALIGNED, MERGED, OPEN, OLD, CHANGELOG, CANONICAL]


def check(store: FlinkStore) -> FlinkReport:
    return check_store((gather(store, n) for n in store.epoch_numbers()), store.listing())


def codes(report: FlinkReport) -> list[Code]:
    return [finding.code for finding in report.report.all_findings]


def largest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size)


def latest(job: Path) -> Path:
    """The newest checkpoint of a job that has a `_metadata`."""
    done = [path for path in job.glob("chk-*") if (path / "_metadata").exists()]
    return max(done, key=lambda path: int(path.name[4:]))


def content(store: FlinkStore) -> dict[tuple[str, str | None], list[str]]:
    """The rows of every state, in no order, by operator hash and state."""
    epoch = store.resolve(None)
    ids = {name: id for id, name in store.names(store.metadata(epoch)).items()}
    return {
        (ids[state.operator], state.name): sorted(
            json.dumps(row, default=str) for batch in store.state(epoch, state.operator, state.name)
            for row in batch.to_pylist()
        )
        for state in store.states(epoch)
    }  # fmt: skip


def renamed(value: object, old: str, new: str) -> object:
    """Return a part of a `_metadata` in which paths that begin with `old` begin with `new`."""
    if isinstance(value, FileHandle | SegmentHandle) and old in value.path:
        return msgspec.structs.replace(value, path=value.path.replace(old, new))
    if isinstance(value, msgspec.Struct):
        return type(value)(*(renamed(getattr(value, name), old, new) for name in value.__struct_fields__))
    return tuple(renamed(item, old, new) for item in value) if isinstance(value, tuple) else value


def rename_paths(folder: Path, old: str, new: str) -> None:
    """Rewrite the absolute paths in the `_metadata` of a folder, and keep its modification time."""
    file = folder / "_metadata"
    times = (file.stat().st_atime, file.stat().st_mtime)
    metadata = renamed(parse(file.read_bytes()), old, new)
    assert isinstance(metadata, Metadata)
    file.write_bytes(encode(metadata))
    os.utime(file, times)


def job_id_twice(folder: Path, *, written: str | None = None) -> Path:
    """Place a job directory of two runs of a RocksDB job in application mode, Flink 2.3.0.

    chk-6 of 11:35 is of the first run, chk-3 of 11:36 of the second; each refers to 12 files in `shared`.

    written: where Flink looks for the files, if that is not `folder`.
    """
    shutil.copytree(unpacked(DATA / "job-id-twice.tar.xz") / ("0" * 32), job := folder / ("0" * 32))
    for number in (3, 6):
        rename_paths(job / f"chk-{number}", "file:/tmp/flinkx/data/zero2", written or f"file:{folder}")
    return job
