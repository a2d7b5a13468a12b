"""Checkpoints of a RocksDB backend as large as is wanted, written by RocksDB itself: one operator, key groups 0 to 127,
keys of strings; `count` (a long a key), `items` (a map of strings to longs) and `text` (a string a key)."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from formats.flink.metadata.file import FILE, encode
from formats.flink.metadata.handles import (
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    LocalFile,
    Metadata,
    OperatorState,
    RelativeHandle,
    Subtask,
)

GROUPS = 128
BASE = "org.apache.flink.api.common.typeutils.base."
Row = tuple[str, bytes, bytes]
"""State, key and value."""


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def simple(name: str) -> bytes:
    return utf(f"{BASE}{name}Serializer${name}SerializerSnapshot") + struct.pack(">i", 3)


VOID = utf("org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot") + struct.pack(
    ">i", 3
)
MAP = (
    utf(f"{BASE}MapSerializerSnapshot")
    + struct.pack(">iiiiii", 1, 911108, 1, 1333245, 1, 2)
    + (simple("String") + simple("Long"))
)
STATES = {"count": ("VALUE", simple("Long")), "items": ("MAP", MAP), "text": ("VALUE", simple("String"))}


def described() -> bytes:
    """What stands before keyed state: the serializers of its states."""
    out = struct.pack(">iB", 6, 0) + struct.pack(">i", 2) + simple("String") + struct.pack(">h", len(STATES))
    for name, (kind, value) in STATES.items():
        out += utf(name) + struct.pack(">ii", 0, 1) + utf("KEYED_STATE_TYPE") + utf(kind) + struct.pack(">i", 2)
        for role, snapshot in (("NAMESPACE_SERIALIZER", VOID), ("VALUE_SERIALIZER", value)):
            out += utf(role) + struct.pack(">i", 2) + snapshot
    return out


def text(value: str) -> bytes:
    """A string as Flink writes it."""
    size, out = len(value) + 1, b""
    while size >= 0x80:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    return out + bytes([size]) + value.encode("ascii")


def key(group: int, name: str, user_key: str | None = None) -> bytes:
    return bytes([group]) + text(name) + b"\0" + (b"" if user_key is None else text(user_key))


def long(value: int) -> bytes:
    return struct.pack(">q", value)


def entry(value: int) -> bytes:
    """A value of a map."""
    return b"\0" + long(value)


def write_tables(folder: Path, rows: Iterable[Row], *, table_bytes: int = 64 << 20) -> None:
    """A RocksDB instance with these rows, compacted, without anything but its files."""
    from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteOptions

    def options() -> Options:
        opts = Options(raw_mode=True)
        blocks = BlockBasedOptions()
        blocks.set_format_version(5)
        opts.set_block_based_table_factory(blocks)
        opts.set_compression_type(DBCompressionType.snappy())
        opts.set_target_file_size_base(table_bytes)
        opts.set_write_buffer_size(32 << 20)
        opts.create_if_missing(True)
        opts.create_missing_column_families(True)
        return opts

    database = Rdict(str(folder), options(), column_families={name: options() for name in STATES})
    quick = WriteOptions()
    quick.disable_wal = True
    families = {name: database.get_column_family(name) for name in STATES}
    for name, row_key, value in rows:
        families[name].put(row_key, value, quick)
    for family in families.values():
        family.flush()
        family.compact_range(None, None)
        family.close()
    database.close()


def write_checkpoint(job: Path, subtasks: list[Iterator[Row]], *, copies: int = 1, table_bytes: int = 64 << 20) -> Path:
    """`chk-1` of a job: a RocksDB instance a subtask, in shared/. copies: how many times each table is there, by hard
    links, as if the state were so many times as large; RocksDB cannot open that, a sample can be taken of it."""
    shared, home = job / "shared", job / "chk-1"
    shared.mkdir(parents=True)
    home.mkdir()
    parts = []
    for number, rows in enumerate(subtasks):
        instance = job / f"instance-{number}"
        write_tables(instance, rows, table_bytes=table_bytes)
        files = []
        for path in sorted(instance.glob("*.sst")):
            for copy in range(copies):
                own = shared / f"{number}-{path.stem}-{copy}"
                os.link(path, own)
                name = path.name if copies == 1 else f"{path.stem}{copy:03}.sst"
                files.append(LocalFile(name, FileHandle(f"file:{own}", own.stat().st_size)))
        private = []
        for path in sorted(instance.iterdir()):
            if copies == 1 and (path.name == "CURRENT" or path.name.startswith(("MANIFEST-", "OPTIONS-"))):
                path.rename(home / f"{number}-{path.name}")
                size = (home / f"{number}-{path.name}").stat().st_size
                private.append(LocalFile(path.name, RelativeHandle(f"{number}-{path.name}", size)))
        shutil.rmtree(instance)
        first, stop = GROUPS * number // len(subtasks), GROUPS * (number + 1) // len(subtasks)
        meta = InlineHandle("meta", described())
        held = (tuple(files), tuple(private))
        handle = IncrementalHandle(5, 1, f"backend-{number}", first, stop - first, None, meta, *held)
        parts.append(Subtask(number, managed_keyed=handle))
    operator = OperatorState("a" * 32, None, None, len(subtasks), GROUPS, None, tuple(parts))
    (home / FILE).write_bytes(encode(Metadata(3, 1, (), (operator,))))
    return home
