"""Which partitions of a checkpoint have the files of which version, by listing alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE
from formats.spark.codings import expected_partitions
from formats.spark.layout import StateFile
from formats.spark.offsets import Offsets
from formats.spark.operators import OperatorInfo, StoreInfo
from formats.spark.rocks import parse_zip

if TYPE_CHECKING:
    from formats.spark.store import SparkStore

LOOK_INTO_ZIPS = 1000
"""Snapshots of RocksDB up to which the list of batches looks whether the SST files that they name are there."""


class Presence:
    """Which partitions have the files of which version, and their bytes: by listing alone."""

    def __init__(self, store: SparkStore) -> None:
        self.store = store
        self.operators = store.checkpoint.operators()
        self._whole: dict[tuple[int, int, str], set[int]] = {}
        self._bytes: dict[int, int] = {}
        self._expected: dict[tuple[int, int | None], list[int]] = {}
        zips = 0
        ck = store.checkpoint
        self.last = max([-1, *store.epoch_numbers()]) + 1
        for operator in self.operators.values():
            for partition in ck.partitions(operator.id):
                for info in operator.stores:
                    for file in ck.state_files(operator.id, partition, info.name):
                        self._bytes[file.version] = self._bytes.get(file.version, 0) + file.size
                        zips += file.kind == "zip"
        self._look = zips <= LOOK_INTO_ZIPS

    def whole(self, operator: OperatorInfo, partition: int, store: StoreInfo) -> set[int]:
        """Versions of a partition that their files, all there, lead to."""
        key = (operator.id, partition, store.name)
        if key not in self._whole:
            files = self.store.partition(operator, partition, store)
            found = {0}
            for version in range(1, self.last + 1):
                base, log = files.whole(version), files.log(version)
                snapshot = base is not None and self._complete(layout.store_dir(*key), base)
                if snapshot or (log is not None and log.size and version - 1 in found):
                    found.add(version)
            self._whole[key] = found
        return self._whole[key]

    def _complete(self, folder: str, base: StateFile) -> bool:
        """Whether a snapshot has bytes, and the SST files that it names are there with theirs."""
        if not base.size or base.kind != "zip" or not self._look:
            return bool(base.size)
        path = f"{folder}/{base.name}"
        try:
            named = parse_zip(self.store.checkpoint.read(path), path).ssts
        except UNREADABLE:
            return False
        there = self.store.checkpoint.files(f"{folder}/{layout.SSTS}")
        return all(there.get(sst.name) == sst.size for sst in named)

    def expected(self, operator: OperatorInfo, said: int | None) -> list[int]:
        key = (operator.id, said)
        if key not in self._expected:
            self._expected[key] = expected_partitions(self.store.checkpoint, operator, said)
        return self._expected[key]

    def of(self, epoch: int, said: Offsets | None) -> tuple[int, list[tuple[str, str]]]:
        """How many partitions a batch has, and which of them lack files: task, and where."""
        lacking: list[tuple[str, str]] = []
        count = 0
        for operator in self.operators.values():
            for partition in self.expected(operator, said.partitions if said else None):
                count += 1
                for store in operator.stores:
                    if epoch + 1 not in self.whole(operator, partition, store):
                        folder = layout.store_dir(operator.id, partition, store.name)
                        lacking.append((f"{operator.id}/{partition}", f"version {epoch + 1} in {folder}"))
                        break
        return count, lacking

    def purged(self, epoch: int) -> bool:
        """Whether the state of a batch is gone in all partitions, with all that is older."""
        for operator in self.operators.values():
            for partition in self.store.checkpoint.partitions(operator.id):
                for store in operator.stores:
                    files = self.store.checkpoint.state_files(operator.id, partition, store.name)
                    oldest = min((file.version for file in files), default=0)
                    first = min((v for v in self.whole(operator, partition, store) if v), default=None)
                    if first is None or oldest <= 1 or epoch + 1 >= first:
                        return False
        return bool(self.operators)

    def bytes_of(self, epoch: int) -> int | None:
        """Bytes of the state files of a batch's version; None where all of them are gone."""
        return self._bytes.get(epoch + 1, 0 if not self.operators else None)
