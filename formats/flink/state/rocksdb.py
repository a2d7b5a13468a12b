"""Keyed state of RocksDB: the files of a handle, opened by `rocksdict` on a private copy.

Every file is copied under the name that it had in the instance; the copy is opened read-only with those options of its
OPTIONS file that reading needs (`rocksdb_options`) and is removed afterwards. A column family is a state. Nothing of
the store itself is written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Final

from formats.errors import Damaged, FormatError, NotFound, UnsafePath
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import IncrementalHandle, StreamHandle
from formats.flink.state import rocksdb_options
from formats.flink.state.keyed_tables import KeyedState, RowBlock, Table
from formats.flink.state.pairs import PairReader
from formats.packages import missing_package
from formats.scratch import scratch

_PIECE: Final = 8 << 20
_ROWS: Final = 16384
KEPT: Final = 32
"""Instances that stay open at most."""
KEPT_BYTES: Final = 64 << 20
"""Bytes of their copies, which are on disk."""


class NotOpened(FormatError):
    """RocksDB does not open an instance for a reason that is no damage: it says nothing of the bytes."""


class NotInstalled(NotOpened):
    """The package that reads RocksDB is not installed."""


def read(
    handle: IncrementalHandle,
    streams: Streams,
    state: KeyedState,
    states: Collection[str] | None,
    groups: range | None,
) -> Iterator[RowBlock]:
    """Blocks state by state, each in the order of its keys: a new block at each key group and every 16384 rows."""
    own = range(handle.first, handle.first + handle.count)
    wanted = own if groups is None else range(max(own.start, groups.start), min(own.stop, groups.stop))
    tables = [table for table in state.tables if states is None or table.name in states]
    with _KEPT.opened(handle, streams, state.path) as instance:
        for table in tables:
            if table.name not in instance.families:
                yield _lost(table, wanted, state, "RocksDB has no such column family")
            elif table.is_list and table.name not in instance.merging:
                yield _lost(table, wanted, state, "its options have lost the merge operator of lists")
            else:
                yield from _family(instance.families[table.name], table, state, wanted)


class _Instance:
    """An open copy of an instance.

    families: column families by name. merging: those whose options have the merge operator of lists.
    users: readers that have not ended.
    """

    def __init__(self, handle: IncrementalHandle, streams: Streams, path: str) -> None:
        self.bytes = sum(file.stream.size for file in (*handle.shared, *handle.private) if file.stream is not None)
        self.users = 0
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rocksdb-", dir=scratch()))
            copy_files(handle, streams, folder)
            self.merging = rocksdb_options.prepare(folder, path)
            self.families = stack.enter_context(_opened(folder, path))
            self._open = stack.pop_all()

    def close(self) -> None:
        """Close the instance, and remove the copy."""
        self._open.close()


class _Kept:
    """Small instances that stay open, because their states are read one after the other.

    Without them each of N states would copy and open the instance of every subtask again. The least recently used are
    closed beyond KEPT instances or KEPT_BYTES, and all of a snapshot when its streams are.
    """

    def __init__(self) -> None:
        self._instances: dict[tuple[int, IncrementalHandle], _Instance] = {}
        self._watched: set[int] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, handle: IncrementalHandle, streams: Streams, path: str) -> Iterator[_Instance]:
        """Yield the instance of a handle, opened if it is not; Damaged, NotFound, NotOpened."""
        key = (id(streams), handle)
        with self._lock:
            instance = self._instances.pop(key, None) or _Instance(handle, streams, path)
            self._instances[key] = instance
            instance.users += 1
            if id(streams) not in self._watched:
                self._watched.add(id(streams))
                weakref.finalize(streams, self._forget, id(streams))
        try:
            yield instance
        finally:
            with self._lock:
                instance.users -= 1
                self._shrink()

    def _shrink(self) -> None:
        """Close what is too much, the least recently used first, and nothing that is being read."""
        idle = [(key, one) for key, one in self._instances.items() if not one.users]
        total = sum(one.bytes for _, one in idle)
        for i, (key, one) in enumerate(idle):
            if len(idle) - i > KEPT or total > KEPT_BYTES:
                total -= one.bytes
                self._instances.pop(key).close()

    def _forget(self, owner: int) -> None:
        with self._lock:
            self._watched.discard(owner)
            for key in [key for key in self._instances if key[0] == owner]:
                self._instances.pop(key).close()


_KEPT: Final = _Kept()


@contextlib.contextmanager
def raw_families(
    handle: IncrementalHandle, streams: Streams, state: KeyedState
) -> Iterator[dict[str, Callable[[], Iterator[tuple[bytes, bytes]]]]]:
    """The states of a handle by name, each as its keys and values in the order of the keys, as RocksDB has them; all
    states of the prefix are there. Damaged, NotFound, NotOpened."""
    own = range(handle.first, handle.first + handle.count)
    with tempfile.TemporaryDirectory(prefix="rocksdb-", dir=scratch()) as folder:
        copy_files(handle, streams, folder)
        merging = rocksdb_options.prepare(folder, state.path)
        with _opened(folder, state.path) as families:
            for table in state.tables:
                if table.name not in families:
                    state.fail(f"state {table.name!r}: RocksDB has no such column family")
                if table.is_list and table.name not in merging:
                    state.fail(f"state {table.name!r}: its options have lost the merge operator of lists")
            yield {table.name: partial(_raw, families[table.name], table, state, own) for table in state.tables}


def _raw(family: Any, table: Table, state: KeyedState, groups: range) -> Iterator[tuple[bytes, bytes]]:
    rows = family.iter()
    if groups:
        rows.seek(groups.start.to_bytes(state.prefix, "big"))
    while groups and rows.valid():
        key, value = rows.key(), rows.value()
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            state.fail(f"state {table.name!r}: RocksDB was not opened in raw mode")
        if int.from_bytes(key[: state.prefix], "big") not in groups:
            break
        yield key, value
        rows.next()
    try:
        rows.status()
    except Exception as error:  # a block whose checksum does not hold ends the iteration, and only this says so
        state.fail(f"state {table.name!r}: RocksDB stops: {error}")


def _lost(table: Table, groups: range, state: KeyedState, reason: str) -> RowBlock:
    block = table.block(groups.start)
    block.problem = state.damaged(f"state {table.name!r}: {reason}")
    return block


def copy_files(handle: IncrementalHandle, streams: Streams, folder: str) -> None:
    """Every file of the handle under the name that it had; NotFound, Damaged (shorter than it should be, or CURRENT
    names no file of it)."""
    seen = set()
    for file in (*handle.shared, *handle.private):
        if os.path.basename(file.name) != file.name or file.name in ("", ".", "..") or "\0" in file.name:
            raise UnsafePath(f"a file called {file.name!r} in a RocksDB instance", path=handle.backend)
        if file.name in seen:
            raise Damaged(f"two files called {file.name!r} in one RocksDB instance", path=handle.backend)
        seen.add(file.name)
        if file.stream is None:
            raise Damaged(f"file {file.name} of RocksDB without a stream", path=handle.backend)
        with open(os.path.join(folder, file.name), "xb") as target:
            for piece in _pieces(file.stream, streams, file.name):
                target.write(piece)
    _check_current(folder, handle.backend)
    if not any(name.startswith("OPTIONS-") for name in seen):
        raise NotFound(
            "no OPTIONS file among the files of RocksDB: without it list state would read as empty", path=handle.backend
        )


def _check_current(folder: str, path: str) -> None:
    """Damaged if CURRENT names a manifest that is not in the copy: RocksDB would open whatever path stands there."""
    current = os.path.join(folder, "CURRENT")
    if not os.path.exists(current):
        return
    with open(current, "rb") as file:
        manifest = file.read(256).rstrip(b"\n").decode("utf-8", "backslashreplace")
    if not (re.fullmatch(r"MANIFEST-\d+", manifest) and os.path.exists(os.path.join(folder, manifest))):
        raise Damaged(f"CURRENT of RocksDB names {manifest!r}, which is not among its files", path=path)


def _pieces(stream: StreamHandle, streams: Streams, name: str) -> Iterator[bytes]:
    at, size = 0, stream.size
    while at < size:
        piece = streams.read(stream, at, min(_PIECE, size - at))
        if not piece:
            message = f"{name} ends too early: {size} bytes are needed, {at} are there"
            raise Damaged(message, path=streams.name(stream))
        yield piece
        at += len(piece)


@contextlib.contextmanager
def _opened(folder: str, path: str) -> Iterator[dict[str, Any]]:
    """The column families of a copy, by name; Damaged, NotOpened."""
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        missing = missing_package("rocksdict")
        raise NotInstalled(missing.message, path=path, hint=missing.hint) from None
    try:
        options, families = Options.load_latest(folder)
        database = Rdict(folder, options, column_families=families, access_type=AccessType.read_only())
    except Exception as error:
        raise _refused(_message(error, folder), path) from None
    opened: dict[str, Any] = {}
    try:
        live = {str(file["name"]).lstrip("/") for file in database.live_files()}
        there = {name for name in os.listdir(folder) if name.endswith(".sst")}
        # RocksDB reads what its MANIFEST names: with an older one it would open an older state, silently
        if live != there:
            differing = ", ".join(sorted(live ^ there)[:5])
            raise Damaged(f"RocksDB's MANIFEST does not name the files that the handle has: {differing}", path=path)
        for name in families:
            opened[name] = database if name == "default" else database.get_column_family(name)
        yield opened
    finally:
        for name, family in opened.items():
            if name != "default":
                family.close()
        database.close()


def _refused(message: str, path: str) -> FormatError:
    """What RocksDB's refusal means: only what it says of the files' own bytes is damage. An option or a format that it
    does not know, or a file of the old machine that it misses, is not."""
    lost = message.startswith("IO error") and "No such file" in message and not re.search(r": /", message)
    if (message.startswith("Corruption") and "newer version" not in message) or lost:
        return Damaged(f"RocksDB does not open it: {message}", path=path)
    hint = "a canonical savepoint, or a newer rocksdict, can be read"
    return NotOpened(f"RocksDB does not open it, which need not be damage: {message}", path=path, hint=hint)


def _message(error: Exception, folder: str) -> str:
    """An error of RocksDB without the path of the copy."""
    return str(error).replace(folder + os.sep, "").replace(folder, "")


def _family(family: Any, table: Table, state: KeyedState, groups: range) -> Iterator[RowBlock]:
    reader = PairReader(table, state)
    rows = family.iter()
    if not groups:
        return
    rows.seek(groups.start.to_bytes(reader.prefix, "big"))
    block: RowBlock | None = None
    while rows.valid():
        key, value = rows.key(), rows.value()
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            state.fail(f"state {table.name!r}: RocksDB was not opened in raw mode")
        group = reader.group(key)
        if group not in groups:
            break
        if block is None or block.group != group or len(block.keys) >= _ROWS:
            if block is not None:
                yield block
            block = table.block(group)
        problem = reader.add(block, key, value)
        if problem is not None and block.problem is None:
            block.problem = state.damaged(f"{problem} (key group {group})")
        rows.next()
    if block is not None:
        yield block
    try:
        rows.status()
    except Exception as error:  # a block whose checksum does not hold ends the iteration, and only this says so
        lost = table.block(block.group if block is not None else groups.start)
        lost.problem = state.damaged(f"state {table.name!r}: RocksDB stops: {error}")
        yield lost
