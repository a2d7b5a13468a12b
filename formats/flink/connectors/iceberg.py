"""Commits that an Iceberg sink has pending in a Flink checkpoint, as manifests of data files by checkpoint.

`FlinkSink` keeps them in a list state of its committer, with the id of the job in another one. `IcebergSink` hands them
to the committer of a Sink V2. Iceberg deletes a manifest after the commit, so that a checkpoint names manifests that no
longer exist. The snapshots of the table tell which checkpoints have been committed. A job that starts from the
checkpoint reads the manifests of the others, and fails with `NotFoundException` if one is missing.

Source: IcebergFilesCommitter, IcebergCommittableSerializer, DeltaManifestsSerializer, AvroEncoderUtil and SinkUtil of
Iceberg 1.10.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from formats.bounds import check_json
from formats.codec.varint import read_varint, zigzag
from formats.decoding import decode
from formats.errors import Damaged, FormatError
from formats.flink.bytes import Reader
from formats.flink.types.strings import read_string

STATE: Final = "iceberg-files-committer-state"
JOB: Final = "iceberg-flink-job-id"
_AVRO: Final = b"\xc2\1"
_OLD_AVRO: Final = b"aVR\1"
_MOST: Final = 64 << 20
"""Bytes of a table's metadata that are read."""
_GZIP: Final = 31
"""The window of zlib for a gzip file."""
_METADATA: Final = re.compile(r"v?(\d+)(?:-.*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


class Manifest(NamedTuple):
    """A file that lists data files. size: its bytes."""

    path: str
    size: int


class Commit(NamedTuple):
    """The commit that a restarted job makes to a table, unless the table has the commit of the checkpoint already.

    operator: id of the committer.
    """

    job: str
    operator: str
    checkpoint: int
    manifests: tuple[Manifest, ...]


class Tables(Protocol):
    """Directories of tables that the user named."""

    def look_for(self, path: str) -> tuple[bool, int | None]:
        """Tell whether a file would be in one of them, and its bytes if it is."""

    def names_in(self, directory: str) -> Collection[str]:
        """Return the names in a directory; none if it is in none of them, or does not exist."""

    def read_named(self, path: str, most: int) -> bytes:
        """Read at most so many bytes of a file; FormatError."""


def read_commit(r: Reader) -> Commit:
    """Read `IcebergCommittable`, version 1: UTF job, UTF operator, i64 checkpoint, i32 size and manifests. Damaged."""
    job, operator, checkpoint = r.utf("job"), r.utf("operator"), r.i64("checkpoint")
    return Commit(job, operator, checkpoint, read_manifests(r.take(r.i32("manifests"), "manifests")))


def known_commit(version: int, body: bytes) -> Commit | None:
    """Read a committable of a sink; None if it is not one of Iceberg."""
    r = Reader(body)
    try:
        commit = read_commit(r) if version == 1 else None
    except Damaged:
        return None
    return None if r.left else commit


def read_commits(element: bytes, job: str, operator: str) -> Iterator[Commit]:
    """Read an element of the state of `FlinkSink`: i32 n, n x (i64 checkpoint, u8 is null, i32 length and manifests).
    Damaged."""
    r = Reader(element)
    for _ in range(r.count(9, "checkpoints")):
        checkpoint = r.i64("checkpoint")
        if not r.flag("has no manifests"):
            yield Commit(job, operator, checkpoint, read_manifests(r.take(r.i32("manifests"), "manifests")))


def read_job(element: bytes) -> str | None:
    """Read the id of the job; None if it is not text."""
    try:
        text, end = read_string(element, 0)
    except (IndexError, ValueError):
        return None
    return text if end == len(element) else None


def read_manifests(data: bytes) -> tuple[Manifest, ...]:
    """Read `DeltaManifests`: i32 version, i32 length, then one manifest, or from version 2 on i32 length and manifest
    of data files, the same of delete files, and the files that these refer to. Damaged."""
    if not data:  # there were no rows
        return ()
    r = Reader(data)
    version = r.i32("version")
    r = Reader(r.take(r.i32("length"), "manifests"))
    if version == 1:
        return (_manifest(r.data),)
    both = [r.take(r.i32(field), field) for field in ("data", "deletes")]
    return tuple(_manifest(one) for one in both if one)


def _manifest(data: bytes) -> Manifest:
    """Read a `ManifestFile` as Avro: magic, schema (UTF; of old releases behind its length in four bytes), the record,
    whose first fields are path and size."""
    r = Reader(data)
    if data.startswith(_AVRO):
        schema = r.take(len(_AVRO), "magic number") and r.utf("schema")
    else:
        schema = r.take(len(_OLD_AVRO), "magic number") and r.text(r.i32("schema"), "schema")
    try:
        first = [field["name"] for field in json.loads(schema)["fields"][:2]]
        length, at = read_varint(data, r.pos)
        path = data[at : at + zigzag(length)]
        size, _ = read_varint(data, at + len(path))
        if first == ["manifest_path", "manifest_length"] and len(path) == zigzag(length):
            return Manifest(path.decode(), zigzag(size))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        pass
    raise r.error("no manifest of Iceberg", "record")


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """A snapshot of a table, as far as it tells what was committed."""

    snapshot_id: int
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class Branch(msgspec.Struct, frozen=True, rename="kebab"):
    """A branch or tag of a table."""

    snapshot_id: int


class Table(msgspec.Struct, frozen=True, rename="kebab"):
    """The metadata of a table, as far as it tells what was committed."""

    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    refs: dict[str, Branch] = {}


def last_checkpoint(table: Table, job: str, operator: str) -> int:
    """Return the last checkpoint that a sink has committed, as Iceberg finds it when the job starts; -1 if none.

    The newest snapshot of the job and the operator names it. Iceberg follows the parents of the newest snapshot of the
    sink's branch. No checkpoint names that branch, so that the branch with the latest commit counts.
    """
    snapshots = {one.snapshot_id: one for one in table.snapshots}
    heads = {table.current_snapshot_id, *(branch.snapshot_id for branch in table.refs.values())}
    return max(_last_checkpoint(snapshots, head, job, operator) for head in heads)


def _last_checkpoint(snapshots: Mapping[int, Snapshot], head: int | None, job: str, operator: str) -> int:
    seen: set[int] = set()
    while head is not None and head in snapshots and head not in seen:
        seen.add(head)
        summary = snapshots[head].summary
        is_ours = summary.get("flink.job-id") == job and summary.get("flink.operator-id", operator) == operator
        last = summary.get("flink.max-committed-checkpoint-id", "")
        if is_ours and last.isdecimal():
            return int(last)
        head = snapshots[head].parent_snapshot_id
    return -1


def read_tables(tables: Tables, directory: str) -> list[Table]:
    """Read the newest metadata of the table in a directory: one file, or those with the same number; none if there is
    none that can be read."""
    matches = [match for name in tables.names_in(directory) if (match := _METADATA.fullmatch(name))]
    newest = max((int(match[1]) for match in matches), default=None)
    found = []
    for match in matches:
        if int(match[1]) == newest and (table := _read_table(tables, directory, match[0])) is not None:
            found.append(table)
    return found


def _read_table(tables: Tables, directory: str, name: str) -> Table | None:
    path = f"{directory}/{name}"
    try:
        data = tables.read_named(path, _MOST)
        if ".gz" in name:
            data = zlib.decompressobj(_GZIP).decompress(data, _MOST)
        check_json(data, path)
        return decode(data, Table)
    except (FormatError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
