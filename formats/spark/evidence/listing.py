"""Which partitions of a checkpoint have the files of which version, by listing alone."""

from __future__ import annotations

from collections.abc import Callable

from formats.ids import TaskId
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.ids import StorePartition
from formats.spark.layout import StateFile
from formats.spark.logs.offsets import Offsets
from formats.spark.logs.operators import OperatorInfo, StoreInfo
from formats.spark.purging import may_lose_state
from formats.spark.replay import PartitionFiles
from formats.spark.state.codings import expected_partitions
from formats.spark.state.rocks import parse_zip

LOOK_INTO_ZIPS = 1000
"""Snapshots of RocksDB up to which the list of batches looks whether the SST files that they name are there."""


class _Partition:
    """What one partition of a store has.

    oldest: version of its oldest file.
    logs: versions of its deltas or changelogs.
    whole: versions of its snapshots that can be used.
    zips: snapshots of RocksDB, which can be used only if the files are there that they name.
    first: the oldest version that its files lead to.
    missing: versions from 1 to the last that they do not lead to.
    """

    def __init__(self) -> None:
        self.oldest = 0
        self.logs: set[int] = set()
        self.whole: set[int] = set()
        self.zips: list[StateFile] = []
        self.first: int | None = None
        self.missing: frozenset[int] = frozenset()

    def settle(self, last: int) -> None:
        """From what is there to what it leads to."""
        every = range(1, last + 1)
        if not self.whole and self.logs.issuperset(every):
            self.first = 1
            return
        reached, at = set[int](), True
        for version in every:
            at = version in self.whole or (at and version in self.logs)
            if at:
                reached.add(version)
        self.first = min(reached, default=None)
        self.missing = frozenset(every) - reached


class Presence:
    """Which partitions have the files of which version, and their bytes: by listing alone."""

    def __init__(self, checkpoint: Checkpoint, files_of: Callable[[OperatorInfo, int, StoreInfo], PartitionFiles]):
        """files_of: finds the state files of one partition of a store."""
        self.checkpoint = checkpoint
        self._files_of = files_of
        newest = checkpoint.newest_offsets()
        readable = newest is None or newest.unread is None
        self.operators = checkpoint.operators() if readable else {}
        self.last = max([-1, *checkpoint.numbers()]) + 1
        self._bytes = [0] * (self.last + 1)
        self._partitions: dict[StorePartition, _Partition] = {}
        self._expected: dict[tuple[int, int | None], list[int]] = {}
        self._lacking: dict[int | None, tuple[int, dict[int, list[tuple[TaskId, str]]]]] = {}
        for operator in self.operators.values():
            for partition in checkpoint.partitions(operator.id):
                for info in operator.stores:
                    part = StorePartition(operator.id, partition, info.name)
                    self._partitions[part] = self._list(part, operator, info)
        look = sum(len(own.zips) for own in self._partitions.values()) <= LOOK_INTO_ZIPS
        for part, own in self._partitions.items():
            folder = layout.store_dir(part)
            own.whole.update(zip.version for zip in own.zips if zip.size and (not look or self._complete(folder, zip)))
            own.settle(self.last)

    def _list(self, part: StorePartition, operator: OperatorInfo, store: StoreInfo) -> _Partition:
        """One pass over the names in a partition's folder."""
        own = _Partition()
        of: PartitionFiles | None = None
        for name, size in self.checkpoint.files(layout.store_dir(part)).items():
            if (file := layout.state_file(name, size)) is None:
                continue
            version = file.version
            if version <= self.last:
                self._bytes[version] += size
            if version < own.oldest or not own.oldest:
                own.oldest = version
            if file.uuid is not None:
                of = of or self._files_of(operator, part.partition, store)
                if file != (of.whole(version) if file.whole else of.log(version)):
                    continue
            if file.kind == "zip":
                own.zips.append(file)
            elif size:
                (own.whole if file.whole else own.logs).add(version)
        return own

    def _complete(self, folder: str, base: StateFile) -> bool:
        """Whether a snapshot of RocksDB reads, and the SST files that it names are there with their sizes."""
        path = f"{folder}/{base.name}"
        try:
            named = parse_zip(self.checkpoint.read(path), path).ssts
        except UNREADABLE:
            return False
        there = self.checkpoint.files(f"{folder}/{layout.SSTS}")
        return all(there.get(sst.name) == sst.size for sst in named)

    def expected(self, operator: OperatorInfo, count: int | None) -> list[int]:
        """The partitions that an operator has. count: their number, as the batch's offsets have it."""
        key = (operator.id, count)
        if key not in self._expected:
            self._expected[key] = expected_partitions(self.checkpoint, operator, count)
        return self._expected[key]

    def of(self, epoch: int, offsets: Offsets | None) -> tuple[int, list[tuple[TaskId, str]]]:
        """How many partitions a batch has, and which of them lack files: task, and where."""
        count = offsets.partitions if offsets else None
        if count not in self._lacking:
            self._lacking[count] = self._all_lacking(count)
        expected, lacking = self._lacking[count]
        return expected, lacking.get(epoch + 1, [])

    def _all_lacking(self, partitions: int | None) -> tuple[int, dict[int, list[tuple[TaskId, str]]]]:
        """What lacks files, by version."""
        lacking: dict[int, list[tuple[TaskId, str]]] = {}
        count = 0
        for operator in self.operators.values():
            for partition in self.expected(operator, partitions):
                count += 1
                seen = set[int]()
                for store in operator.stores:
                    part = StorePartition(operator.id, partition, store.name)
                    own = self._partitions.get(part)
                    missing = frozenset(range(1, self.last + 1)) if own is None else own.missing
                    folder = layout.store_dir(part)
                    for version in missing - seen:
                        lack = (part.task.id, f"version {version} in {folder}")
                        lacking.setdefault(version, []).append(lack)
                    seen |= missing
        return count, lacking

    def purged(self, epoch: int) -> bool:
        """Whether the state of a batch is gone in all partitions, with all that is older."""
        if not self._partitions:
            return False
        return all(
            own.first is not None and own.oldest > 1 and epoch + 1 < own.first for own in self._partitions.values()
        )

    def being_purged(self, epoch: int, offsets: Offsets | None, oldest: int, newest: int) -> bool:
        """Tell if Spark may be removing the state of a batch, and no file that it lacks is one of the newest batch.

        oldest: the oldest batch with offsets.
        newest: the newest batch with a commit.
        """
        if not may_lose_state(epoch, oldest, newest):
            return False
        tasks = {task for task, _ in self.of(epoch, offsets)[1]}
        parts = [own for part, own in self._partitions.items() if part.task.id in tasks]
        after = {task for task, _ in self.of(newest, offsets)[1]}
        older = oldest > 0 or all(own.first is not None and epoch + 1 < own.first for own in parts)
        return bool(parts) and older and not tasks & after

    def bytes_of(self, epoch: int) -> int | None:
        """Bytes of the state files of a batch's version; None where all of them are gone."""
        if not self.operators:
            return 0
        return self._bytes[epoch + 1] or None
