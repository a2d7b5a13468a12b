"""The state of one partition after a batch: which files make it, and the rows that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from formats.codec.sst import MERGE, Entry, parse_sst
from formats.errors import Damaged, FormatError, NotFound, UnsupportedVersion
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.ids import StateTask, StorePartition
from formats.spark.layout import StateFile
from formats.spark.state.blocks import unpack
from formats.spark.state.records import Records, parse_records
from formats.spark.state.rocks import RocksSnapshot, parse_zip, resolve


@dataclass(frozen=True, slots=True)
class Chain:
    """The files that a version of a partition is made of.

    base: the snapshot to begin with; None where the logs go back to the empty state.
    logs: deltas or changelogs that follow it, one a version, ascending.
    """

    base: StateFile | None
    logs: tuple[StateFile, ...]

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All of them, the oldest first."""
        return self.logs if self.base is None else (self.base, *self.logs)


class PartitionFiles:
    """The state files of one partition of a store, by version and unique id."""

    def __init__(self, names: Mapping[str, int]) -> None:
        """names: what is in its folder, with sizes."""
        self._ids: dict[int, str] = {}
        self._committed: list[tuple[int, str]] = []
        self.foreign_ids: dict[int, int] = {}
        """Versions whose commit names the id of another version's files, and that version."""
        self._names = names
        several: dict[int, set[str]] = {}
        for name, size in names.items():
            if "_" in name and (file := layout.state_file(name, size)) is not None and file.uuid is not None:
                several.setdefault(file.version, set()).add(file.uuid)
        self.with_ids = bool(several)
        # Two ids of one version are of two attempts, and names do not tell which of them was committed: commits do.
        self._only = {version: min(uuids) for version, uuids in several.items() if len(uuids) == 1}

    def commit(self, ids: Iterable[tuple[int, str]]) -> None:
        """Take over the unique ids that commits name, except those that the files of another version have."""
        versions: dict[str, set[int]] = {}
        for name in self._names:
            if (file := layout.state_file(name, 0)) is not None and file.uuid is not None:
                versions.setdefault(file.uuid, set()).add(file.version)
        self._committed = []
        for version, uuid in ids:
            if version in (own := versions.get(uuid, {version})):
                self._committed.append((version, uuid))
            else:
                self.foreign_ids[version] = min(own)
        self.know(self._committed)

    def know(self, lineage: Iterable[tuple[int, str]]) -> None:
        """Take over the unique ids that versions were committed under: checkpoint format 2 has them."""
        for version, uuid in lineage:
            self._ids.setdefault(version, uuid)

    def id_of(self, version: int) -> str | None:
        """The unique id of a version, as it was committed, or else the only one there is; None in format 1."""
        return self._ids.get(version) or self._only.get(version)

    def with_id(self) -> Iterator[str]:
        """Names of the files that carry a unique id."""
        return (name for name in self._names if "_" in name)

    def committed_names(self) -> Iterator[str]:
        """What the files may be called that commits name, in checkpoint format 2."""
        return (f"{version}_{uuid}.{kind}" for version, uuid in self._committed for kind in ("changelog", "zip"))

    def around(self, version: int, back: int) -> tuple[set[str], bool]:
        """The files that lead to a version, from so many snapshots back on, and to the next snapshot, by name; whether
        there is nothing further back. No names if nothing leads to the version."""
        names: set[str] = set()
        at, snapshots = version, 0
        log: StateFile | None = None
        # Back, until enough snapshots are passed or a version has no log: then nothing leads further back.
        while at > 0 and snapshots < back:
            whole, log = self.whole(at), self.log(at)
            names.update(file.name for file in (whole, log) if file is not None)
            snapshots += whole is not None
            at -= 1
            if log is None:
                break
        if log is None and not snapshots:
            return set(), True
        bottom = log is None or at == 0
        # On to the next snapshot, if logs lead there without a gap: else there is nothing to compare it with.
        behind: set[str] = set()
        at = version + 1
        if (log := self.log(at)) is not None:
            names.add(log.name)  # what the next batch changed tells whether it read something
        while (log := self.log(at)) is not None:
            behind.add(log.name)
            if (whole := self.whole(at)) is not None:
                return {*names, *behind, whole.name}, bottom
            at += 1
        return names, bottom

    def named(self, name: str) -> StateFile | None:
        """The state file of a name; None if there is none."""
        size = self._names.get(name)
        return None if size is None else layout.state_file(name, size)

    def purged(self, version: int) -> bool:
        """Whether a version is older than all that is kept: before the first snapshot, and no file goes back to 1."""
        parsed = [layout.state_file(name, size) for name, size in self._names.items()]
        there = [file for file in parsed if file is not None]
        first = min((file.version for file in there if file.whole), default=0)
        return version < first and min(file.version for file in there) > 1

    def whole(self, version: int) -> StateFile | None:
        """The snapshot of a version."""
        return self._file(version, "snapshot") or self._file(version, "zip")

    def log(self, version: int) -> StateFile | None:
        """The delta or changelog of a version."""
        return self._file(version, "delta") or self._file(version, "changelog")

    def _file(self, version: int, kind: str) -> StateFile | None:
        uuid = self.id_of(version)
        name = f"{version}.{kind}" if uuid is None else f"{version}_{uuid}.{kind}"
        size = self._names.get(name)
        return None if size is None else StateFile(version, uuid, kind, name, size)

    def chain(self, version: int, *, skip: frozenset[str] = frozenset()) -> Chain:
        """The newest snapshot up to a version and what follows it. skip: names of snapshots not to use.

        NotFound, naming the first version going back that has no file.
        """
        logs: list[StateFile] = []
        at = version
        while at > 0:
            base = self.whole(at)
            if base is not None and base.name not in skip:
                return Chain(base, tuple(reversed(logs)))
            log = self.log(at)
            if log is None:
                uuid = self.id_of(at)
                name = f"version {at}" if uuid is None else f"version {at} ({uuid})"
                raise NotFound(f"{name} has neither snapshot nor delta; version {version} needs it")
            logs.append(log)
            at -= 1
        return Chain(None, tuple(reversed(logs)))


def partition_files(checkpoint: Checkpoint, part: StorePartition, index: int) -> PartitionFiles:
    """The state files of one partition of a store. index: of the store within its operator."""
    files = PartitionFiles(checkpoint.files(layout.store_dir(part)))
    if files.with_ids:
        files.commit(ids_of(checkpoint, part.task, index).items())
    return files


def ids_of(checkpoint: Checkpoint, task: StateTask, index: int) -> dict[int, str]:
    """The unique ids of one partition's versions, from all commits that say them. index: of the store."""
    ids: dict[int, str] = {}
    for batch in checkpoint.batches(layout.COMMITS):
        try:
            by_partition = (checkpoint.commit(batch).ids or {}).get(task.operator, ())
        except UNREADABLE:
            continue
        if task.partition < len(by_partition) and index < len(by_partition[task.partition]):
            ids[batch + 1] = by_partition[task.partition][index]
    return ids


def load(
    checkpoint: Checkpoint, folder: str, files: PartitionFiles, version: int, row_checksums: bool
) -> dict[bytes, bytes]:
    """Keys and values of one partition after a version, as stored. Damaged, NotFound, UnsupportedVersion.

    A snapshot that does not read is passed over where deltas reach back far enough, as Spark does (4.1 on).
    """
    skip: frozenset[str] = frozenset()
    first: FormatError | None = None
    while True:
        try:
            # The lineage of a changelog says which files of versions before it were committed: without it the chain
            # may take those of an attempt that failed.
            _learn(checkpoint, folder, files, version)
            chain = files.chain(version, skip=skip)
        except NotFound as error:
            hint = "abs validate says which batches are whole"
            # The damage that had to be passed over says more than the gap that this came to.
            raise first or NotFound(error.message, path=folder, hint=hint) from None
        base = chain.base
        if base is None:
            state: dict[bytes, bytes] = {}
            break
        try:
            state = snapshot_rows(checkpoint, folder, base, row_checksums)
            break
        except (Damaged, NotFound, UnsupportedVersion) as error:
            first = first or error
            skip |= {base.name}
            # The lineage of the first changelog ends at this snapshot: the one of its own version goes on from there.
            _learn(checkpoint, folder, files, base.version)
    for log in chain.logs:
        apply(state, read_records(checkpoint, folder, log, row_checksums))
    return state


def _learn(checkpoint: Checkpoint, folder: str, files: PartitionFiles, version: int) -> None:
    """Unique ids from the lineage of a version's changelog, where there are any."""
    log = files.log(version)
    if log is not None and log.uuid is not None:
        files.know(read_records(checkpoint, folder, log, False).lineage or ())


def read_records(checkpoint: Checkpoint, folder: str, file: StateFile, row_checksums: bool) -> Records:
    """The records of a delta, snapshot or changelog, their row checksums checked and taken off; Damaged."""
    path = f"{folder}/{file.name}"
    return records_of(unpack(checkpoint.read(path), path).data, file, path, row_checksums)


def records_of(data: bytes, file: StateFile, path: str, row_checksums: bool) -> Records:
    """The records of unpacked bytes; Damaged."""
    changelog = file.kind == "changelog"
    records = parse_records(data, path, changelog=changelog, snapshot=file.kind == "snapshot")
    if not row_checksums:
        return records
    from formats.spark.state.families import without_checksums

    return without_checksums(records, changelog, path)


def snapshot_rows(checkpoint: Checkpoint, folder: str, file: StateFile, row_checksums: bool) -> dict[bytes, bytes]:
    """All rows of a snapshot: of an HDFS-backed one as it is, of a RocksDB one from its SST files."""
    if file.kind == "snapshot":
        state: dict[bytes, bytes] = {}
        apply(state, read_records(checkpoint, folder, file, row_checksums))
        return state
    path = f"{folder}/{file.name}"
    snapshot = parse_zip(checkpoint.read(path), path)
    entries: list[Entry] = []
    for sst in snapshot.ssts:
        where = f"{folder}/{layout.SSTS}/{sst.name}"
        entries += parse_sst(checkpoint.read(where), where)
    return rocks_rows(snapshot, entries, path, row_checksums)


def rocks_rows(snapshot: RocksSnapshot, entries: list[Entry], path: str, row_checksums: bool) -> dict[bytes, bytes]:
    """The rows that the entries of a snapshot's SST files come to; Damaged unless they are as many as it says."""
    from formats.spark.state.families import without_checksums

    if snapshot.wal:
        raise UnsupportedVersion("has rows in a write-ahead log, which is not read here", path=path)
    rows = resolve(entries)
    counted = None if snapshot.keys is None else snapshot.keys + (snapshot.internal or 0)
    if counted is not None and counted != len(rows) and not any(entry.kind == MERGE for entry in entries):
        raise Damaged(f"has {len(rows)} keys in its SST files, {counted} were counted when it was written", path=path)
    if not row_checksums:
        return rows
    values: list[bytes | None] = list(rows.values())
    records = without_checksums(Records(list(rows), values, frozenset(), 1, None), True, path)
    return {key: value for key, value in zip(records.keys, records.values, strict=True) if value is not None}


def apply(state: dict[bytes, bytes], records: Records) -> None:
    """Carry out puts, merges and deletes."""
    if not records.merges and None not in records.values:
        state.update(zip(records.keys, records.values, strict=True))  # type: ignore[arg-type]
        return
    for i, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
        if value is None:
            state.pop(key, None)
        # As Spark's merge operator for lists does: items one after the other, with a comma between them.
        elif i in records.merges and key in state:
            state[key] = state[key] + b"," + value
        else:
            state[key] = value
