"""Keys to dense slot numbers, at numpy speed: an open-addressing table of hashes over columns of keys.

A key's probe sequence is h, rehash(h), rehash(rehash(h)) ...; its slot stands at the first of them that no *other*
key holds. Keys are compared, never only their hashes. Keys are not removed, so a slot is a key's for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from formats.native.hashing import Hashes, hash_rows

Slots = npt.NDArray[np.int64]

_REHASH = np.uint64(0x9FB21C651E98DF25)
_MERGE_LIMIT = 1 << 30
_PLACE_BITS = np.uint64(24)


class Located(NamedTuple):
    """Where the rows of a batch are.

    slots: one a distinct key, in order of first row.
    groups: for each row an index into `slots`.
    first: the first row of each.
    new: whether the key was not known before.
    """

    slots: Slots
    groups: Slots
    first: Slots
    new: npt.NDArray[np.bool_]

    @property
    def last(self) -> Slots:
        """The last row of each."""
        last = np.empty(len(self.slots), dtype=np.int64)
        last[self.groups] = np.arange(len(self.groups))
        return last


class KeyIndex:
    """Slots 0, 1, 2 ... for the distinct keys seen, in order of first sight. room: for so many at first, a power of
    two."""

    def __init__(self, room: int = 1024) -> None:
        self.count = 0
        self.hashes: Hashes = np.empty(room, dtype=np.uint64)  # by slot: the key's own hash, before rehashing
        self._table_hash: Hashes = np.zeros(2 * room, dtype=np.uint64)
        self._table_slot: Slots = np.full(2 * room, -1, dtype=np.int64)
        self._chunks: list[list[pa.Array]] = []

    @classmethod
    def of(cls, chunks: list[list[pa.Array]], hashes: Hashes, probes: Hashes) -> KeyIndex:
        """The index that had these `chunks`, `hashes` of its slots, and `probes`."""
        index = cls(room=1 << max(4, (len(hashes) - 1).bit_length()))
        index.count = len(hashes)
        index.hashes = hashes
        index._chunks = chunks
        index._place(probes, np.arange(len(hashes), dtype=np.int64))
        return index

    @property
    def chunks(self) -> list[list[pa.Array]]:
        """The key columns of all slots in order, in pieces."""
        return self._chunks

    @property
    def probes(self) -> Hashes:
        """By slot, the hash under which its key stands in the table."""
        occupied = self._table_slot >= 0
        probes = np.empty(self.count, dtype=np.uint64)
        probes[self._table_slot[occupied]] = self._table_hash[occupied]
        return probes

    @property
    def nbytes(self) -> int:
        """In memory."""
        keys: int = sum(column.nbytes for chunk in self._chunks for column in chunk)
        return keys + self.hashes.nbytes + self._table_hash.nbytes + self._table_slot.nbytes

    def locate(self, columns: Sequence[pa.Array], hashes: Hashes | None = None) -> Located:
        """Find the key of every row, giving new ones slots. columns: the key, of the same types at every call. hashes:
        of the rows, where they are known."""
        hashes = hash_rows(columns) if hashes is None else hashes
        slots, groups, first, new = self._locate(columns, hashes, hashes)
        return Located(slots, groups, first, new)

    def keys(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots."""
        indices = pa.array(slots)
        return [_one(pa.chunked_array(chunks).take(indices)) for chunks in self._columns()]

    def _columns(self) -> list[list[pa.Array]]:
        return [list(column) for column in zip(*self._chunks, strict=True)]

    def _locate(self, columns: Sequence[pa.Array], own: Hashes, probe: Hashes) -> Located:
        """`own` are the rows' hashes, `probe` those under which they are looked up in this round."""
        encoded = pa.array(probe).dictionary_encode()
        groups: Slots = encoded.indices.to_numpy().astype(np.int64)
        distinct: Hashes = encoded.dictionary.to_numpy()
        first = _first_rows(groups, len(distinct))
        slots = self._find(distinct)
        new = slots < 0
        if new.any():
            rows = pa.array(first[new])
            slots[new] = self._insert(distinct[new], own[first[new]], [column.take(rows) for column in columns])
            if new.all() and len(distinct) == len(groups):
                return Located(slots, groups, first, new)
        # Two keys may have one hash: the rows whose key is not that of the slot look again, under the hash of the hash.
        differs = ~same([key.take(encoded.indices) for key in self.keys(slots)], columns)
        if not differs.any():
            return Located(slots, groups, first, new)
        return self._resolve(columns, own, probe, slots[groups], new, groups, differs)

    def _resolve(
        self,
        columns: Sequence[pa.Array],
        own: Hashes,
        probe: Hashes,
        by_row: Slots,
        new: npt.NDArray[np.bool_],
        groups: Slots,
        differs: npt.NDArray[np.bool_],
    ) -> Located:
        rows = np.flatnonzero(differs)
        mask = pa.array(differs)
        again = self._locate([c.filter(mask) for c in columns], own[rows], _rehash(probe[rows]))
        by_row = by_row.copy()
        by_row[rows] = again.slots[again.groups]
        fresh = set(again.slots[again.new].tolist()) | set(by_row[~differs & new[groups]].tolist())
        # Numbered anew: the slots of both rounds together, in order of first row.
        encoded = pa.array(by_row).dictionary_encode()
        slots: Slots = encoded.dictionary.to_numpy().astype(np.int64)
        groups = encoded.indices.to_numpy().astype(np.int64)
        return Located(slots, groups, _first_rows(groups, len(slots)), np.array([s in fresh for s in slots.tolist()]))

    def _find(self, hashes: Hashes) -> Slots:
        mask = len(self._table_slot) - 1
        slots = np.full(len(hashes), -1, dtype=np.int64)
        pending = np.arange(len(hashes))
        position = _first_place(hashes, mask)
        while len(pending):
            at = position[pending]
            slot = self._table_slot[at]
            hit = (slot >= 0) & (self._table_hash[at] == hashes[pending])
            slots[pending[hit]] = slot[hit]
            # A free place ends the search: keys are not removed, so that nothing lies behind a gap.
            pending = pending[(slot >= 0) & ~hit]
            position[pending] = (position[pending] + 1) & mask
        return slots

    def _insert(self, probe: Hashes, own: Hashes, heads: list[pa.Array]) -> Slots:
        slots = np.arange(self.count, self.count + len(probe), dtype=np.int64)
        self.count += len(probe)
        # At most half full: searches end at free places alone.
        if self.count * 2 > len(self._table_slot):
            self._grow_table()
        self._place(probe, slots)
        if self.count > len(self.hashes):
            self.hashes = np.concatenate([self.hashes, np.empty(max(self.count, len(self.hashes)), dtype=np.uint64)])
        self.hashes[slots] = own
        self._chunks.append(heads)
        self._merge_chunks()
        return slots

    def _place(self, hashes: Hashes, slots: Slots) -> None:
        mask = len(self._table_slot) - 1
        pending = np.arange(len(hashes))
        position = _first_place(hashes, mask)
        while len(pending):
            at = position[pending]
            free = pending[self._table_slot[at] < 0]
            self._table_slot[position[free]] = slots[free]  # of rivals for one place the last writer wins
            won = free[self._table_slot[position[free]] == slots[free]]
            self._table_hash[position[won]] = hashes[won]
            pending = pending[self._table_slot[at] != slots[pending]]
            position[pending] = (position[pending] + 1) & mask

    def _grow_table(self) -> None:
        occupied = self._table_slot >= 0
        hashes, slots = self._table_hash[occupied], self._table_slot[occupied]
        size = len(self._table_slot)
        while self.count * 2 > size:
            size *= 2
        self._table_hash = np.zeros(size, dtype=np.uint64)
        self._table_slot = np.full(size, -1, dtype=np.int64)
        self._place(hashes, slots)

    def _merge_chunks(self) -> None:
        """Keep chunks of geometric size: few to look through, each key copied a logarithmic number of times."""
        while len(self._chunks) > 1 and len(self._chunks[-1][0]) * 2 > len(self._chunks[-2][0]):
            a, b = self._chunks[-2], self._chunks[-1]
            if max(x.nbytes + y.nbytes for x, y in zip(a, b, strict=True)) > _MERGE_LIMIT:
                return
            self._chunks[-2:] = [[pa.concat_arrays([x, y]) for x, y in zip(a, b, strict=True)]]


def _first_place(hashes: Hashes, mask: int) -> Slots:
    """Where the search for a hash begins. Not by its low bits: those of all keys of a task are of a few patterns, since
    its key groups are the remainders of their hashes."""
    return ((hashes >> _PLACE_BITS) & np.uint64(mask)).astype(np.int64)


def _rehash(hashes: Hashes) -> Hashes:
    mixed: Hashes = (hashes ^ (hashes >> np.uint64(31))) * _REHASH + np.uint64(1)
    return mixed


def _first_rows(groups: Slots, count: int) -> Slots:
    first = np.empty(count, dtype=np.int64)
    # Backwards, so that the first row of a group is written last.
    first[groups[::-1]] = np.arange(len(groups) - 1, -1, -1)
    return first


def same(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Row by row, whether all columns are equal; null equals null, and NaN equals NaN."""
    result = np.ones(len(left[0]), dtype=bool)
    for a, b in zip(left, right, strict=True):
        equal = pc.equal(a, b)
        if a.null_count or b.null_count:
            equal = pc.or_(pc.fill_null(equal, False), pc.and_(pc.is_null(a), pc.is_null(b)))
        if pa.types.is_floating(a.type):
            nan = pc.and_(pc.fill_null(pc.is_nan(a), False), pc.fill_null(pc.is_nan(b), False))
            equal = pc.or_(equal, nan)
        result &= equal.to_numpy(zero_copy_only=False)
    return result


def _one(chunked: pa.ChunkedArray) -> pa.Array:
    combined = chunked.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
