"""RocksDB snapshots as Spark uploads them: `V.zip` with the database's small files, and SST files kept beside it.

The zip's own `metadata` says which SSTs belong to it and how large they are, so completeness is known without RocksDB.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from formats.bounds import decoding
from formats.codec.manifest import UniqueId, session_half, unique_ids
from formats.codec.sst import DELETION, SINGLE_DELETION, VALUE, Contents, Entry
from formats.codec.wal import is_without_rows
from formats.errors import Damaged, UnsupportedVersion
from formats.spark.logs import log as logs

NEWEST = 2
"""Spark 4.0 on, with types of column families beside their numbers."""
LARGEST = 1 << 28
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class Sst(msgspec.Struct, frozen=True):
    """One SST or log file of a snapshot.

    local: its name in the database.
    name: in `SSTs/`.
    size: bytes.
    """

    local: str
    name: str
    size: int


class RocksSnapshot(msgspec.Struct, frozen=True):
    """What a `V.zip` says.

    keys: how many the user's families have; None where they are not counted (`trackTotalNumberOfRows`).
    internal: how many Spark's own families have; None where they are not counted.
    families: ids of column families by name.
    entries: its files.
    wal: whether a write-ahead log in it may have rows.
    manifest: the bytes of the MANIFEST that CURRENT names: which tables the database consists of.
    """

    ssts: tuple[Sst, ...]
    keys: int | None
    internal: int | None
    families: dict[str, int]
    entries: tuple[str, ...]
    wal: bool
    manifest: bytes

    def unique_ids(self, path: str) -> dict[int, UniqueId]:
        """The unique ids of its SST files by number, none if its MANIFEST is not read here; Damaged. path: its own."""
        try:
            return unique_ids(self.manifest, f"{path}!MANIFEST")
        except UnsupportedVersion:
            return {}


def parse_zip(data: bytes, path: str) -> RocksSnapshot:
    """The bytes of `V.zip`, the CRC32 of every entry checked; EmptyLog, Damaged, UnsupportedVersion."""
    files = read_zip(data, path)
    if "metadata" not in files:
        raise Damaged("has no metadata in it", path=path)
    for needed in ("CURRENT", "MANIFEST-", "OPTIONS-"):
        if not any(name.startswith(needed) for name in files):
            raise Damaged(f"has no {needed.rstrip('-')} in it", path=path)
    version_path = f"{path}!metadata"
    _, rest = logs.lines(files["metadata"], version_path, NEWEST)
    metadata = logs.parse("\n".join(rest), version_path)
    ssts = []
    for key in ("sstFiles", "logFiles"):
        for item in metadata.get(key) or ():
            ssts.append(_sst(item, version_path))
    families = metadata.get("columnFamilyMapping") or {}
    if not isinstance(families, dict) or not all(isinstance(number, int) for number in families.values()):
        raise Damaged("its column families have no numbers", path=version_path)
    return RocksSnapshot(
        tuple(ssts),
        _count(metadata, "numKeys", version_path),
        _count(metadata, "numInternalKeys", version_path),
        families,
        tuple(files),
        any(name.endswith(".log") and not is_without_rows(data) for name, data in files.items()),
        _manifest(files, path),
    )


def _manifest(files: dict[str, bytes], path: str) -> bytes:
    name = files["CURRENT"].decode("latin-1").strip()
    if name not in files:
        raise Damaged(f"its CURRENT names {name[:40]!r}, which is not in it", path=path)
    return files[name]


def why_foreign(sst: Sst, table: Contents, ids: dict[int, UniqueId]) -> str | None:
    """Tell how a table is not the one that a snapshot was made of; None if it is, or nothing says.

    RocksDB compares the unique id when it opens a database (`BlockBasedTable::Open`), and refuses another one.
    """
    number = sst.local.partition(".")[0]
    id = ids.get(int(number)) if number.isascii() and number.isdigit() else None
    session = None if table.session is None else session_half(table.session)
    if id is None or session is None:
        return None
    if session != id.session:
        return f"was written by session {table.session}, and MANIFEST names the table of another attempt"
    if table.number is not None and table.number != int(number):
        return f"was written as table {table.number}, and MANIFEST names table {int(number)}"
    return None


def _count(fields: dict[str, Any], key: str, path: str) -> int | None:
    count = logs.number(fields, key, path)
    return None if count is None or count < 0 else count


def read_zip(data: bytes, path: str) -> dict[str, bytes]:
    """The entries of a zip; Damaged unless each has its CRC32, a plain name and a bearable size."""
    if not data:
        raise logs.EmptyLog("is empty", path=path)
    try:
        with decoding(path), zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > LARGEST:
                raise Damaged(f"unpacks to more than {LARGEST} bytes", path=path)
            if wrong := next((i.filename for i in infos if not _NAME.fullmatch(i.filename)), None):
                raise Damaged(f"has an entry {wrong[:80]!r}", path=path)
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise Damaged(f"is not a complete zip file: {str(error)[:100]}", path=path) from None


def _sst(fields: object, path: str) -> Sst:
    if not isinstance(fields, dict):
        raise Damaged("names a file that is not an object", path=path)
    local, name, size = (
        fields.get("localFileName"),
        fields.get("dfsSstFileName") or fields.get("dfsLogFileName"),
        fields.get("sizeBytes"),
    )
    if not isinstance(local, str) or not isinstance(name, str) or not isinstance(size, int):
        raise Damaged("names a file without name or size", path=path)
    if not _NAME.fullmatch(local) or not _NAME.fullmatch(name):
        raise Damaged(f"names a file {name[:80]!r}", path=path)
    return Sst(local, name, size)


def resolve(entries: Iterable[Entry]) -> dict[bytes, bytes]:
    """What holds of the entries of all tables of a database: per key the newest value, with what was merged into it."""
    by_key: dict[bytes, Entry | list[Entry]] = {}
    for entry in entries:
        before = by_key.get(entry.key)
        if before is None:
            by_key[entry.key] = entry
        elif isinstance(before, list):
            before.append(entry)
        else:
            by_key[entry.key] = [before, entry]
    state: dict[bytes, bytes] = {}
    for key, several in by_key.items():
        newest_first = [several] if isinstance(several, Entry) else sorted(several, key=lambda entry: -entry.number)
        parts: list[bytes] = []
        for entry in newest_first:
            if entry.kind in (DELETION, SINGLE_DELETION):
                break
            parts.append(entry.value)
            if entry.kind == VALUE:
                break
        if parts:
            state[key] = b",".join(reversed(parts))
    return state
