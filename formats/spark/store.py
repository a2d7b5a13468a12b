"""The read-only view of a Structured Streaming checkpoint: batches are epochs, partitions of state are tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from formats.errors import NotFound, UnsupportedVersion
from formats.ids import AnyChannelId
from formats.kafka import Place
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint, is_spark
from formats.spark.evidence.listing import Presence
from formats.spark.ids import StateTask, StorePartition, source_task
from formats.spark.logs import log as logs
from formats.spark.logs import places
from formats.spark.logs.offsets import Offsets
from formats.spark.logs.operators import OperatorInfo, StoreInfo
from formats.spark.logs.sources import SourceFile, parse_source
from formats.spark.purging import has_lost_offsets
from formats.spark.replay import Chain, PartitionFiles, load, partition_files
from formats.spark.state.codings import Family, expected_partitions, families, family_numbers
from formats.spark.state.snapshots import counted_keys, sst_files
from formats.storage import Storage
from formats.timestamps import rfc3339
from formats.view import (
    ChannelTable,
    CheckpointStore,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    RowPlaces,
    StateFacts,
    Status,
    TaskFacts,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.statistics import StateStatistics


ASK = "ask Spark with --engine spark"
"""What to do about state that is not read here."""
COUNT_UP_TO = 16 << 20
"""Bytes of files up to which an epoch's rows, or the inputs of a source, are counted where no file says how many."""


class SparkStore(CheckpointStore):
    """A checkpoint opened for reading; NotFound if there is none at `storage`."""

    format = "spark"
    place_column = "partition_id"

    def __init__(self, storage: Storage) -> None:
        if not is_spark(storage):
            message = "no Spark checkpoint here: it has no offsets"
            raise NotFound(message, path=storage.root, hint="give the query's checkpointLocation")
        self.storage = storage
        self.checkpoint = Checkpoint(storage)
        self._partitions: dict[tuple[int, int, str], PartitionFiles] = {}
        self._seen: Presence | None = None

    @property
    def path(self) -> str:
        return self.storage.root

    @property
    def job(self) -> str | None:
        """The query's id: a checkpoint does not know its name."""
        return self.checkpoint.query_id

    # Epochs

    def epoch_numbers(self) -> list[int]:
        """Batches that have offsets or a commit, ascending."""
        return self.checkpoint.numbers()

    def no_epoch(self, epoch: int) -> NotFound:
        """What to raise for a batch that is not there."""
        numbers = self.epoch_numbers()
        there = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none"
        return NotFound(f"no batch {epoch}; {there}", path=self.path)

    def latest(self) -> int | None:
        """The newest batch that was committed."""
        committed = self.checkpoint.batches(layout.COMMITS)
        return committed[-1] if committed else None

    def epochs(self) -> list[EpochFacts]:
        numbers = self.epoch_numbers()
        present = self._presence()
        return [self._facts(epoch, numbers, present) for epoch in numbers]

    def _facts(self, epoch: int, numbers: list[int], present: Presence) -> EpochFacts:
        ck = self.checkpoint
        status, reason = self._status(epoch, numbers)
        triggered = None
        try:
            offsets = ck.offsets(epoch)
            triggered = timestamp(offsets.timestamp)
        except UNREADABLE as error:
            offsets = None
            if ck.size(layout.offsets(epoch)) is not None:
                status, reason = Status.DAMAGED, f"{layout.offsets(epoch)} {error.message}"
        expected, lacking = present.of(epoch, offsets)
        purged = False
        if lacking and status is Status.COMPLETE:
            oldest, newest = min(ck.batches(layout.OFFSETS), default=0), self.latest() or 0
            if purged := present.purged(epoch):
                reason = "its state has been purged"
            elif purged := present.being_purged(epoch, offsets, oldest, newest):
                reason = f"its state is being purged: {len(lacking)} of {expected} partitions no longer have it"
            else:
                first = lacking[0]
                status, reason = Status.DAMAGED, f"state of {len(lacking)} partitions is not all there: {first[1]}"
        return EpochFacts(
            epoch=epoch,
            status=status,
            parent=epoch - 1 if epoch - 1 in numbers else None,
            attempt=None,
            expected=expected,
            acked=expected - len(lacking),
            missing=() if purged else tuple(task for task, _ in lacking),
            bytes=present.bytes_of(epoch),
            triggered=triggered,
            duration=None,
            reason=reason,
        )

    def _status(self, epoch: int, numbers: list[int]) -> tuple[Status, str | None]:
        ck = self.checkpoint
        offsets, commit = (ck.size(path(epoch)) for path in (layout.offsets, layout.commits))
        begun = ck.batches(layout.OFFSETS) or [0]
        if offsets is None and has_lost_offsets(epoch, min(begun), max(begun)):
            return Status.COMPLETE, "its logs are being purged"
        if offsets is None:
            return Status.DAMAGED, f"{layout.offsets(epoch)} is not there"
        if commit is None:
            newest = self.latest()
            if newest is not None and epoch < newest:
                return Status.DAMAGED, f"{layout.commits(epoch)} is not there, and later batches were committed"
            return Status.IN_PROGRESS, None
        for size, path in ((offsets, layout.offsets(epoch)), (commit, layout.commits(epoch))):
            if size == 0:
                return Status.DAMAGED, f"{path} is empty"
        return Status.COMPLETE, None

    def _presence(self) -> Presence:
        if self._seen is None:
            self._seen = Presence(self.checkpoint, self.partition)
        return self._seen

    def partition(self, operator: OperatorInfo, partition: int, store: StoreInfo) -> PartitionFiles:
        """The state files of one partition of a store."""
        part = StorePartition(operator.id, partition, store.name)
        if part not in self._partitions:
            self._partitions[part] = partition_files(self.checkpoint, part, operator.stores.index(store))
        return self._partitions[part]

    # One epoch

    def kafka(self, epoch: int) -> list[Place]:
        if epoch not in self.epoch_numbers():
            raise self.no_epoch(epoch)
        return [
            Place(source_task(name).operator, topic, partition, at)
            for name, offset in self.checkpoint.offsets(epoch).sources.items()
            for (topic, partition), at in places.kafka_offsets(offset).items()
        ]

    def row_places(self, epoch: int, operator: str) -> RowPlaces | None:
        tasks = next((len(op.tasks) for op in self.detail(epoch).operators if op.id == operator), 0)

        def of(batch: pa.RecordBatch) -> tuple[Any, Any]:
            partitions = batch.column("partition_id").to_numpy()
            return partitions, partitions * 0 - 1

        return RowPlaces(frozenset({"partition_id"}), tasks, 0, of) if tasks else None

    def detail(self, epoch: int) -> EpochDetail:
        numbers = self.epoch_numbers()
        if epoch not in numbers:
            raise self.no_epoch(epoch)
        facts = self._facts(epoch, numbers, self._presence())
        try:
            offsets = self.checkpoint.offsets(epoch)
        except UNREADABLE:
            offsets = None
        operators = [self._source(name, offset) for name, offset in (offsets.sources if offsets else {}).items()]
        count = self._chain_bytes(epoch) <= COUNT_UP_TO
        for operator in self.checkpoint.operators().values():
            operators.append(self._operator(operator, epoch, offsets, count))
        return EpochDetail(facts, tuple(operators), ChannelTable())

    def _source(self, name: str, offset: str | None) -> OperatorFacts:
        """A source as an operator of one task, with its position."""
        kind = places.kind_of(offset)
        folder = f"{layout.SOURCES}/{name}"
        files: list[FileFacts] = []
        count: int | None = None
        upto = places.is_file_source(offset)
        if upto is not None:
            single, compact = logs.entries(self.checkpoint.files(folder))
            base = max((n for n in compact if n <= upto), default=-1)
            names = [compact[base]] if base >= 0 else []
            names += [file for n, file in single.items() if base < n <= upto]
            sizes = self.checkpoint.files(folder)
            files = [FileFacts(f"{folder}/{file}", sizes[file], None, None) for file in names]
            whole = len(names) == (upto - base + (base >= 0)) and sum(sizes[file] for file in names) <= COUNT_UP_TO
            count = self._input_files([file.path for file in files]) if whole else None
        positions = places.positions(offset)
        if positions is not None and count is not None:
            positions = (*positions, Position("files", count, None))
        task = TaskFacts(source_task(name), tuple(files), None, positions, None, None)
        return OperatorFacts(task.task.operator, f"{kind} source" if kind else "source", 1, None, None, (task,))

    def inputs(self) -> Iterator[SourceFile]:
        """The input files that the logs of all file sources name, as far as they can be read."""
        for name in self.checkpoint.folders(layout.SOURCES):
            folder = f"{layout.SOURCES}/{name}"
            for file in self.checkpoint.files(folder):
                with contextlib.suppress(*UNREADABLE):
                    if layout.log_entry(file) is not None:
                        yield from parse_source(self.checkpoint.read(f"{folder}/{file}"), f"{folder}/{file}")

    def _input_files(self, entries: list[str]) -> int | None:
        """How many files the entries of a source's log name; None if one cannot be read."""
        try:
            return sum(self.checkpoint.read(path).count(b"\n{") for path in entries)  # a line a file
        except UNREADABLE:
            return None

    def _operator(self, operator: OperatorInfo, epoch: int, offsets: Offsets | None, count: bool) -> OperatorFacts:
        tasks = []
        rows: int | None = 0
        total: int | None = 0
        expected = expected_partitions(self.checkpoint, operator, offsets.partitions if offsets else None)
        for partition in expected:
            files: list[FileFacts] = []
            for store in operator.stores:
                folder = layout.store_dir(StorePartition(operator.id, partition, store.name))
                pf = self.partition(operator, partition, store)
                try:
                    chain = pf.chain(epoch + 1)
                except NotFound:
                    rows = total = None
                    continue
                live = self._rows(folder, pf, chain, epoch, offsets, count)
                rows = None if rows is None or live is None else rows + live
                facts = [FileFacts(f"{folder}/{file.name}", file.size, None, None) for file in chain.files]
                if facts and live is not None:
                    facts[-1] = FileFacts(facts[-1].path, facts[-1].bytes, live, None)
                facts += sst_files(self.checkpoint, folder, chain)
                files += facts
                total = None if total is None else total + sum(file.bytes or 0 for file in facts)
            tasks.append(TaskFacts(StateTask(operator.id, partition).id, tuple(files), None, None, None, None))
        return OperatorFacts(str(operator.id), operator.name, len(expected), total, rows, tuple(tasks))

    def _rows(
        self, folder: str, pf: PartitionFiles, chain: Chain, epoch: int, offsets: Offsets | None, count: bool
    ) -> int | None:
        """Live keys of a partition after a batch: as its zip says, else counted if that is cheap."""
        if chain.base is not None and chain.base.kind == "zip" and not chain.logs:
            return counted_keys(self.checkpoint, folder, chain)
        if not count or offsets is None:
            return None
        try:
            return len(load(self.checkpoint, folder, pf, epoch + 1, self.checkpoint.as_kept(offsets).row_checksum))
        except UNREADABLE:
            return None

    def _chain_bytes(self, epoch: int) -> int:
        total = 0
        for operator in self.checkpoint.operators().values():
            for partition in self.checkpoint.partitions(operator.id):
                for store in operator.stores:
                    try:
                        chain = self.partition(operator, partition, store).chain(epoch + 1)
                    except NotFound:
                        continue
                    total += sum(file.size for file in chain.files)
        return total

    # State

    def statistics(self, epoch: int, operator: str | None = None, ttl: float | None = None) -> list[StateStatistics]:
        from formats.spark.statistics import statistics, stored

        offsets = self._offsets(epoch)
        stores: dict[tuple[int, str], list[Family]] = {}
        for family in self.families(epoch):
            if operator in (None, str(family.operator.id)):
                stores.setdefault((family.operator.id, family.store.name), []).append(family)
        ck = self.checkpoint
        return statistics(
            [stored(ck, families, epoch, offsets, self.partition) for families in stores.values()], offsets.timestamp
        )

    def families(self, epoch: int) -> list[Family]:
        """The named states of a batch, by operator; NotFound if there is no such batch."""
        if epoch not in self.epoch_numbers():
            raise self.no_epoch(epoch)
        encoding = self._offsets(epoch).encoding
        result: list[Family] = []
        for operator in self.checkpoint.operators_of(epoch):
            for store in operator.stores:
                result += families(self.checkpoint, operator, store, encoding)
        return result

    def _offsets(self, epoch: int) -> Offsets:
        """The offsets of a batch, or else of the newest one, with the settings that the query keeps for life."""
        try:
            return self.checkpoint.as_kept(self.checkpoint.offsets(epoch))
        except UNREADABLE:
            newest = self.checkpoint.newest_offsets()
            if newest is None:
                raise
            return newest

    def states(self, epoch: int) -> list[StateFacts]:
        from formats.spark.state.tables import key_names

        out = []
        for family in self.families(epoch):
            total: int | None = 0
            partitions = self._offsets(epoch).partitions
            for partition in expected_partitions(self.checkpoint, family.operator, partitions):
                try:
                    chain = self.partition(family.operator, partition, family.store).chain(epoch + 1)
                except NotFound:
                    total = None
                    break
                total = (total or 0) + sum(file.size for file in chain.files)
            key = key_names(family.schema.key)
            own = None if family.grouped else total  # column families share files
            name = family.name
            out.append(StateFacts(str(family.operator.id), name, family.kind, key, None, own, family.opaque))
        return out

    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        """operator: its number, or its name where only one has it."""
        from formats.spark.state import tables

        family = self.family(epoch, operator, name)
        if family.opaque is not None:
            raise UnsupportedVersion(f"operator {operator}: {family.opaque}", path=self.path)
        offsets = self._offsets(epoch)
        if offsets.unread is not None:
            raise UnsupportedVersion(offsets.unread, path=self.path, hint=ASK)
        where = layout.operator_dir(family.operator.id)
        for partition in expected_partitions(self.checkpoint, family.operator, offsets.partitions):
            part = StorePartition(family.operator.id, partition, family.store.name)
            folder = layout.store_dir(part)
            files = self.partition(family.operator, partition, family.store)
            try:
                rows = load(self.checkpoint, folder, files, epoch + 1, offsets.row_checksum)
            except UnsupportedVersion as error:
                raise UnsupportedVersion(error.message, path=error.path, hint=error.hint or ASK) from None
            numbers: dict[str, int] = {}
            if family.grouped:
                numbers = family_numbers(self.checkpoint, part, epoch + 1)
            coding = family.coding(offsets.provider == layout.ROCKSDB, numbers)
            if coding is None:
                # Where all rows are of other column families this one has none: Spark may name it and never make it.
                others = {number.to_bytes(2, "little") for number in numbers.values()}
                if all(key[:2] in others for key in rows):
                    continue
                raise UnsupportedVersion(f"no snapshot says which column family {name} is", path=where, hint=ASK)
            yield from tables.batches(rows, coding, partition, folder)

    def family(self, epoch: int, operator: str, name: str | None) -> Family:
        """The state that is meant by an operator's number or name, and its own; NotFound if none or several are."""
        families = self.families(epoch)
        own = [family for family in families if str(family.operator.id) == operator]
        own = own or [family for family in families if family.operator.name == operator]
        operators = {family.operator.id for family in own}
        if not own:
            there = ", ".join(dict.fromkeys(f"{f.operator.id} ({f.operator.name})" for f in families)) or "none"
            raise NotFound(f"no stateful operator {operator}; there are: {there}", path=self.path)
        if len(operators) > 1:
            numbers = ", ".join(str(number) for number in sorted(operators))
            raise NotFound(f"{operator} is the name of operators {numbers}: give one of the numbers", path=self.path)
        if name is None:
            seen = [family for family in own if family.kind != "internal"]
            if len(seen) == 1:
                return seen[0]
        for family in own:
            if name is not None and family.name == name:
                return family
        names = ", ".join(str(family.name) for family in own)
        problem = f"no state {name}" if name is not None else "several states: name one"
        raise NotFound(f"operator {operator} has {problem}; it has: {names}", path=self.path)

    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        """Spark keeps no channel state: a batch is cut where nothing is in flight."""
        raise NotFound(f"no log of channel {channel}: Spark keeps none", path=self.path)

    # The format's own words

    def raw(self, epoch: int, counted: str | None = None) -> dict[str, Any]:
        """What Spark's own files say of a batch: `formats.spark.raw.raw_facts`."""
        from formats.spark.raw import raw_facts

        if epoch not in self.epoch_numbers():
            raise self.no_epoch(epoch)
        return raw_facts(self.checkpoint, self._presence(), epoch)

    def reader_conf(self) -> dict[str, str]:
        """The session settings that Spark's state reader needs for this checkpoint: it does not find them itself."""
        version = self.checkpoint.state_format() or 1
        conf = {"spark.sql.streaming.stateStore.checkpointFormatVersion": str(version)}
        newest = self.checkpoint.newest_offsets()
        for key in ("providerClass", "compression.codec", "encodingFormat", "rowChecksum.enabled"):
            name = f"spark.sql.streaming.stateStore.{key}"
            if newest is not None and name in newest.conf:
                conf[name] = newest.conf[name]
        return conf


def timestamp(milliseconds: int | None) -> str | None:
    """RFC 3339 in UTC; None if unknown or beyond what a date can say."""
    if milliseconds is None or not 0 <= milliseconds < 253402300800000:
        return None
    return rfc3339(milliseconds / 1000)
