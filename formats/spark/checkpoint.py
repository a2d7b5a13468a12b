"""A Structured Streaming checkpoint as files: logs, operators, schemas and state files, read when asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from formats.errors import Damaged, NotFound, UnsafePath, UnsupportedVersion
from formats.spark import layout
from formats.spark.checksums import check_hadoop_crc, check_spark_crc
from formats.spark.folders import Folders, Listing
from formats.spark.ids import StateTask, StorePartition
from formats.spark.layout import StateFile
from formats.spark.logs import log as logs
from formats.spark.logs.offsets import Commit, Offsets, parse_commit, parse_offsets
from formats.spark.logs.operators import (
    OperatorInfo,
    StoreInfo,
    metadata_path,
    metadata_v2_dir,
    parse_operator,
    schema_here,
)
from formats.spark.logs.settings import agreed
from formats.spark.state.schema import StateSchema, parse_schema, schema_path, schema_v3_dir
from formats.storage import Storage

_UUID = re.compile("-".join(f"[0-9A-Fa-f]{{1,{length}}}" for length in (8, 4, 4, 4, 12)))
ASKED: Final = 9
"""The newest batches whose offsets say which settings a query has: none of them decides alone."""
UNREADABLE = (Damaged, UnsupportedVersion, UnsafePath, NotFound)


def is_spark(storage: Storage) -> bool:
    """Whether this is the checkpoint of a streaming query: an offset log, and a query id or a log of commits."""
    names = {entry.name for entry in storage.list("") if entry.size is None}
    files = {entry.name for entry in storage.list("") if entry.size is not None}
    return layout.OFFSETS in names and (layout.METADATA in files or bool(names & {layout.COMMITS, layout.STATE}))


class Checkpoint:
    """Reads a checkpoint lazily. Methods raise EmptyLog, Damaged, UnsupportedVersion, NotFound, with the path."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._place = Folders(storage)
        self._listed: dict[str, Listing] = {}
        self._state: dict[str, list[StateFile]] = {}
        self._batches: dict[str, list[int]] = {}
        self._offsets: dict[int, Offsets] = {}
        self._commits: dict[int, Commit] = {}
        self._settings: dict[str, str] | None = None
        self._operators: dict[int, OperatorInfo] | None = None
        self._schemas: dict[str, tuple[StateSchema, ...]] = {}
        self.family_ids: dict[tuple[int, str, int], dict[str, int]] = {}

    # Files

    def listing(self, folder: str) -> Listing:
        """What is in a folder; nothing if it is not there."""
        if folder not in self._listed:
            self._listed[folder] = self._place.listing(folder)
        return self._listed[folder]

    def files(self, folder: str) -> dict[str, int]:
        """Names and sizes of the files in a folder, but for hidden ones."""
        return self.listing(folder).files

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder, sorted."""
        return sorted(self.listing(folder).folders)

    def forget(self, folder: str) -> None:
        """Let go of the listing of a folder and those in it: what is asked for again is listed again."""
        for path in [name for name in self._listed if name == folder or name.startswith(f"{folder}/")]:
            del self._listed[path]
            self._state.pop(path, None)
            self._batches.pop(path, None)

    def forget_all(self) -> None:
        """Drop everything that has been read: a running query has changed the checkpoint meanwhile."""
        for cache in (self._listed, self._state, self._batches, self._offsets, self._commits, self._schemas):
            cache.clear()
        self._operators = self._settings = None
        self.family_ids.clear()

    def has(self, path: str) -> bool:
        """Whether there is such a file, hidden or not."""
        folder, _, name = path.rpartition("/")
        listing = self.listing(folder)
        return name in (listing.hidden if name[0] == "." else listing.files)

    def size(self, path: str) -> int | None:
        """Bytes of a file that is not hidden; None if it is not there."""
        folder, _, name = path.rpartition("/")
        return self.files(folder).get(name)

    def read(self, path: str) -> bytes:
        """The bytes of a file, unchecked."""
        if not self.has(path):
            raise NotFound("is not there", path=path)
        folder, _, name = path.rpartition("/")
        return self._place.read(folder, name, self.files(folder).get(name))

    def checked(self, path: str) -> tuple[bytes, bool]:
        """The bytes of a file, held against the checksum files of both kinds beside it, and whether there was one."""
        folder, _, name = path.rpartition("/")
        files, hidden, _ = self.listing(folder)
        if name not in files:
            raise NotFound("is not there", path=path)
        data = self._place.read(folder, name, files[name])
        vouched = False
        if (crc := f".{name}.crc") in hidden:
            check_hadoop_crc(data, self._place.read(folder, crc, None), path)
            vouched = True
        if (crc := f"{name}.crc") in files:
            vouched |= check_spark_crc(data, self._place.read(folder, crc, files[crc]), path)
        return data, vouched

    # Logs

    def batches(self, log: str) -> list[int]:
        """The numbers in a log's folder, ascending."""
        if log not in self._batches:
            self._batches[log] = list(logs.entries(self.files(log))[0])
        return self._batches[log]

    def numbers(self) -> list[int]:
        """Batches that have offsets or a commit, ascending."""
        return sorted({*self.batches(layout.OFFSETS), *self.batches(layout.COMMITS)})

    @property
    def query_id(self) -> str | None:
        """The id that the query keeps for life; None if the file is lost or names none that Java would read."""
        try:
            metadata = logs.parse(self.read(layout.METADATA).decode("utf-8", "replace").strip(), layout.METADATA)
        except UNREADABLE:
            return None
        id = metadata.get("id")
        return id if isinstance(id, str) and _UUID.fullmatch(id) else None

    def offsets(self, batch: int) -> Offsets:
        """What batch N was to read."""
        if batch not in self._offsets:
            path = layout.offsets(batch)
            self._offsets[batch] = parse_offsets(self.read(path), path)
        return self._offsets[batch]

    def commit(self, batch: int) -> Commit:
        """That batch N is done."""
        if batch not in self._commits:
            path = layout.commits(batch)
            self._commits[batch] = parse_commit(self.read(path), path)
        return self._commits[batch]

    def newest_offsets(self) -> Offsets | None:
        """The newest offsets that can be read, with the settings that the query keeps for life (`as_kept`)."""
        newest = next(self._readable_offsets(), None)
        return None if newest is None else self.as_kept(newest)

    def as_kept(self, offsets: Offsets) -> Offsets:
        """The offsets of a batch, with the settings that most of the newest batches agree on."""
        if self._settings is None:
            newest = list(islice(self._readable_offsets(), ASKED))
            self._settings = agreed(newest[::-1])
        return msgspec.structs.replace(offsets, conf={**offsets.conf, **self._settings})

    def _readable_offsets(self) -> Iterator[Offsets]:
        """The offsets that can be read, the newest first."""
        for batch in reversed(self.batches(layout.OFFSETS)):
            with contextlib.suppress(*UNREADABLE):
                yield self.offsets(batch)

    def state_format(self) -> int | None:
        """1, or 2 where commits name the unique ids of the state; None before the first commit that can be read."""
        for batch in reversed(self.batches(layout.COMMITS)):
            try:
                return 2 if self.commit(batch).ids is not None else 1
            except UNREADABLE:
                continue
        return None

    # Operators

    def operators(self) -> dict[int, OperatorInfo]:
        """Stateful operators by id; by the folders where the metadata is lost or older than Spark 4.0."""
        if self._operators is None:
            ids = sorted(int(name) for name in self.folders(layout.STATE) if re.fullmatch(r"\d{1,6}", name))
            self._operators = {}
            for number in ids:
                try:
                    self._operators[number] = self.operator(number)
                except UNREADABLE:
                    self._operators[number] = self._by_folders(number)
        return self._operators

    def operator(self, number: int) -> OperatorInfo:
        """An operator as its metadata has it: of version 2 the newest file that can be read."""
        paths = [f"{metadata_v2_dir(number)}/{batch}" for batch in self.metadata_batches(number)]
        error: Exception | None = None
        for path in [*reversed(paths)] or [metadata_path(number)]:
            try:
                return parse_operator(self.read(path), path, number)
            except UNREADABLE as found:
                error = error or found
        assert error is not None
        raise error

    def operators_of(self, batch: int) -> list[OperatorInfo]:
        """Return the stateful operators of a batch: as the newest metadata up to it has them, if that can be read."""
        operators = []
        for number, operator in self.operators().items():
            for first in reversed(self.metadata_batches(number)):
                path = f"{metadata_v2_dir(number)}/{first}"
                if first <= batch and path != operator.path:
                    with contextlib.suppress(*UNREADABLE):
                        operator = parse_operator(self.read(path), path, number)
                if first <= batch:
                    break
            operators.append(operator)
        return operators

    def metadata_batches(self, operator: int) -> list[int]:
        """The batches that have metadata of version 2 of an operator, ascending: the first of each run of the query."""
        names = self.files(metadata_v2_dir(operator))
        return sorted(int(name) for name in names if name.isdigit() and len(name) < 18)

    def partitions(self, operator: int) -> list[int]:
        """The partitions that have a folder."""
        names = self.folders(layout.operator_dir(operator))
        return sorted(int(name) for name in names if re.fullmatch(r"\d{1,7}", name))

    def _by_folders(self, operator: int) -> OperatorInfo:
        partitions = self.partitions(operator)
        first = layout.task_dir(StateTask(operator, partitions[0] if partitions else 0))
        named = [name for name in self.folders(first) if name != layout.SSTS and not name.startswith(("_", "."))]
        count = partitions[-1] + 1 if partitions else 1
        stores = tuple(StoreInfo(name, None, count, ()) for name in sorted(named) or [layout.DEFAULT_STORE])
        return OperatorInfo(operator, None, stores, None, None)

    # State

    def schemas(self, operator: int, store: StoreInfo) -> tuple[StateSchema, ...]:
        """The column families of a store, as its newest schema file has them."""
        path = self.schema_file(operator, store)
        if path not in self._schemas:
            self._schemas[path] = parse_schema(self.read(path), path, store.prefix)
        return self._schemas[path]

    def older_schemas(self, store: StoreInfo) -> list[StateSchema]:
        """Return the column families of all schema files of a store that can be read, oldest first."""
        older: list[StateSchema] = []
        for path in filter(None, map(schema_here, store.schemas)):
            with contextlib.suppress(NotFound, *UNREADABLE):
                older += parse_schema(self.read(path), path, store.prefix)
        return older

    def schema_file(self, operator: int, store: StoreInfo) -> str:
        """Where the newest schema of a store lies, whether it is there or not."""
        for absolute in reversed(store.schemas):
            here = schema_here(absolute)
            if here is not None:
                return here
        plain = schema_path(operator, store.name)
        folder = schema_v3_dir(operator, store.name)
        versioned = [(int(name.partition("_")[0]), name) for name in self.files(folder) if re.match(r"\d{1,18}_", name)]
        return f"{folder}/{max(versioned)[1]}" if versioned and self.size(plain) is None else plain

    def state_files(self, part: StorePartition) -> list[StateFile]:
        """The state files of one partition of a store, by version."""
        folder = layout.store_dir(part)
        if folder not in self._state:
            files = (layout.state_file(name, size) for name, size in self.files(folder).items())
            self._state[folder] = sorted((file for file in files if file is not None), key=layout.by_version)
        return self._state[folder]
