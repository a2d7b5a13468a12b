"""Where the bytes of a batch's state are (`formats.statistics`), in bounded time.

Up to EXACT bytes of state files are read whole. Beyond, some partitions are, evenly spread over each store, and the
others are estimated: rows as the zip of a RocksDB snapshot says them, where no changelog is behind it and the store has
a single state, else by the bytes of their files. A row has the bytes of its key and value as Spark wrote them.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from formats.errors import FormatError, NotFound
from formats.spark import layout
from formats.spark.checkpoint import Checkpoint
from formats.spark.ids import StorePartition
from formats.spark.logs.offsets import Offsets
from formats.spark.logs.operators import OperatorInfo, StoreInfo
from formats.spark.replay import PartitionFiles, load
from formats.spark.state import tables
from formats.spark.state.codings import Family, expected_partitions, family_numbers
from formats.spark.state.rules import Coding
from formats.spark.state.snapshots import counted_keys, sst_files
from formats.statistics import (
    LARGEST,
    LIVE,
    PARTITIONS,
    SAMPLED,
    Large,
    Sample,
    StateStatistics,
    Tally,
    of_state,
    shown,
)

EXACT: Final = 64 << 20
"""Bytes of state files up to which all of them are read, and that a sample reads."""
LARGEST_PARTITION: Final = 256 << 20
"""A partition of more is not read for a sample, for all of it would be in memory."""
DUE: Final = "expiryTimestampMs"
"""The column of a timer's key that has its time."""
EXPIRES: Final = "ttlExpirationMs"
"""The column of a value with a time to live that has the time at which it expires."""


@dataclass(frozen=True, slots=True)
class Part:
    """One partition of a store.

    size: bytes of the files that lead to its state; None where they are not all there.
    keys: that it has, as its snapshot says; None where that says nothing.
    rows: reads its keys and values, as stored.
    families: numbers of its column families by name.
    """

    partition: int
    folder: str
    size: int | None
    keys: int | None
    rows: Callable[[], dict[bytes, bytes]]
    families: Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Stored:
    """One store of an operator, with the states in it. rocks: it is of RocksDB; unread: why it is not read here."""

    families: Sequence[Family]
    parts: Sequence[Part]
    rocks: bool
    unread: str | None


def stored(
    checkpoint: Checkpoint, families: Sequence[Family], epoch: int, offsets: Offsets,
    files_of: Callable[[OperatorInfo, int, StoreInfo], PartitionFiles],
) -> Stored:  # fmt: skip
    """A store, by the states in it. files_of: the state files of a partition."""
    operator, store = families[0].operator, families[0].store

    def part(partition: int) -> Part:
        own = StorePartition(operator.id, partition, store.name)
        folder, files = layout.store_dir(own), files_of(operator, partition, store)
        size = keys = None
        with contextlib.suppress(NotFound):
            chain = files.chain(epoch + 1)
            tables_of = sst_files(checkpoint, folder, chain)
            size = sum(file.size for file in chain.files) + sum(file.bytes or 0 for file in tables_of)
            keys = counted_keys(checkpoint, folder, chain)
        return Part(
            partition, folder, size, keys, lambda: load(checkpoint, folder, files, epoch + 1, offsets.row_checksum),
            lambda: family_numbers(checkpoint, own, epoch + 1),
        )  # fmt: skip

    parts = [part(partition) for partition in expected_partitions(checkpoint, operator, offsets.partitions)]
    return Stored(families, parts, offsets.provider == layout.ROCKSDB, offsets.unread)


@dataclass(slots=True)
class _State:
    """One state, while it is looked at. files: bytes of the files of partitions that were read."""

    family: Family
    tally: Tally = field(default_factory=Tally)
    trouble: dict[str, None] = field(default_factory=dict)
    read: int = 0
    files: int = 0


def statistics(stores: Sequence[Stored], taken: int | None, *, exact: int | None = None) -> list[StateStatistics]:
    """Every state of these stores. taken: when the batch began, in milliseconds; exact: in place of EXACT."""
    exact = EXACT if exact is None else exact
    total = sum(part.size or 0 for store in stores for part in store.parts)
    share = exact / total if total > exact else 1.0
    return [row for store in stores for row in _store(store, share, taken)]


def _store(store: Stored, share: float, taken: int | None) -> Iterator[StateStatistics]:
    states = [_State(family) for family in store.families]
    whole = share >= 1.0
    chosen = store.parts if whole else _some(store.parts, share)
    for part in chosen if store.unread is None else ():
        try:
            rows, numbers = part.rows(), part.families()
        except FormatError as error:
            for state in states:
                state.trouble[str(error)] = None
            continue
        for state in states:
            _read(state, part, rows, state.family.coding(store.rocks, dict(numbers)))
    for state in states:
        if store.unread is not None:
            state.trouble[store.unread] = None
        elif not whole:
            _estimate(state, store.parts, chosen, alone=len(states) == 1)
        yield _row(state, store, taken, whole=whole)


def _some(parts: Sequence[Part], share: float) -> list[Part]:
    """Partitions evenly spread, of about that share of all; one at least that is not too large."""
    able = [part for part in parts if part.size is not None and part.size <= LARGEST_PARTITION]
    count = min(len(able), max(1, int(share * len(parts))))
    return [able[at * len(able) // count] for at in range(count)] if count else []


def _read(state: _State, part: Part, rows: dict[bytes, bytes], coding: Coding | None) -> None:
    """All rows of one partition."""
    state.read += 1
    state.files += part.size or 0
    if coding is None:
        if rows:
            state.trouble["no snapshot says which column family it is"] = None
        return
    own = rows if coding.family is None else tables.own_rows(rows, coding.family)
    counts = dict.fromkeys(own, 1)
    if coding.listed:
        counts = {key: tables.listed_count(value, part.folder) for key, value in own.items()}
    size = sum(map(len, own)) + sum(map(len, own.values()))
    state.tally.count(part.partition, -1, sum(counts.values()), size)
    if state.family.opaque is not None:
        state.trouble[state.family.opaque] = None
        return
    largest = heapq.nlargest(LARGEST, own.items(), key=lambda row: len(row[0]) + len(row[1]))
    values = heapq.nlargest(LARGEST, own.items(), key=lambda row: len(row[1]))
    try:
        for key, value in largest:
            name = shown(_columns(key, value, coding, part))
            state.tally.key(Large(len(key) + len(value), name, None, counts[key]))
        for key, value in values:
            state.tally.value(Large(len(value), shown(_columns(key, value, coding, part)), None))
        if state.family.kind == "timers":
            for time in _times(own, coding, part, DUE):
                state.tally.timer(time)
        elif state.family.kind in _USERS and tuple(f.name for f in coding.schema.value.fields) == ("value", EXPIRES):
            for time in _times(own, coding, part, EXPIRES):
                state.tally.expires(time)
    except FormatError as error:
        state.trouble[str(error)] = None


def _columns(key: bytes, value: bytes, coding: Coding, part: Part) -> object:
    """A key as people write it."""
    batch = next(tables.batches({key: value}, coding, part.partition, part.folder))
    names = tables.key_names(coding.schema.key)
    own = [batch.column(name)[0].as_py() for name in names if name in batch.schema.names]
    return own[0] if len(own) == 1 else tuple(own)


_USERS: Final = ("value", "list", "map")
"""Kinds of states that a query of `transformWithState` declares, and may give a time to live."""


def _times(own: dict[bytes, bytes], coding: Coding, part: Part, column: str) -> Iterator[int]:
    for batch in tables.batches(own, coding, part.partition, part.folder):
        if column in batch.schema.names:
            yield from (time for time in batch.column(column).to_pylist() if time is not None)


def _estimate(state: _State, parts: Sequence[Part], chosen: Sequence[Part], *, alone: bool) -> None:
    """Partitions that were not read, by those that were."""
    tally, done = state.tally, {part.partition for part in chosen}
    if not state.files:
        return
    rows, size = sum(tally.rows.values()), sum(tally.bytes.values())
    for part in parts:
        if part.partition in done or part.size is None:
            continue
        exact = part.keys if alone else None
        count = rows * part.size / state.files if exact is None else exact
        tally.count(part.partition, -1, count, size * part.size / state.files)


def _row(state: _State, store: Stored, taken: int | None, *, whole: bool) -> StateStatistics:
    family, troubles = state.family, list(state.trouble)
    sample = None
    if not whole:
        sample = Sample(PARTITIONS, state.read, len(store.parts), state.files)
    lost = [part for part in store.parts if part.size is None]
    if lost:
        troubles.append(f"state of {len(lost)} of {len(store.parts)} partitions is not all there")
    return of_state(
        str(family.operator.id), family.name, family.kind, state.tally, LIVE if whole else SAMPLED,
        subtasks=[part.partition for part in store.parts], groups=0, at=taken, ttl=None, sample=sample,
        unknown="; ".join(troubles) or None, whole=bool(state.read) and not lost,
    )  # fmt: skip
