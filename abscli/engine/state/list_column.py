"""Lists by slot, without a Python object for each: their values lie one behind the other, as Arrow has them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

NULL = -1
"""The length of a list that is not there."""

SLACK = 1024
"""Values of lists that are gone that lie about at most, beside as many as there are of others."""


class ListColumn:
    """A growable column of lists by slot, null until set. room: for so many at first."""

    def __init__(self, kind: pa.ListType, room: int = 1024) -> None:
        self.type = kind
        self._starts: Numbers = np.zeros(room, dtype=np.int64)
        self._lengths: Numbers = np.full(room, NULL, dtype=np.int64)
        self._chunks: list[pa.Array] = []
        self._size = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        """In memory."""
        values: int = sum(chunk.nbytes for chunk in self._chunks)
        return values + self._starts.nbytes + self._lengths.nbytes

    def take(self, slots: Numbers) -> pa.ListArray:
        """A copy of the lists of these slots."""
        self._reserve(slots)
        lengths = self._lengths[slots]
        places = ranges(self._starts[slots], lengths)
        values = pa.chunked_array(self._chunks, self.type.value_type).take(pa.array(places)).combine_chunks()
        return lists(self.type, values, lengths)

    def put(self, slots: Numbers, values: pa.ListArray) -> None:
        """Set these slots; they are distinct."""
        self._reserve(slots)
        lengths = lengths_of(values)
        present = np.maximum(lengths, 0)
        self._live += int(present.sum() - np.maximum(self._lengths[slots], 0).sum())
        self._starts[slots] = self._size + np.cumsum(present) - present
        self._lengths[slots] = lengths
        self._append(values.flatten())
        if self._size > 2 * self._live + SLACK:
            self._compact()

    def _append(self, values: pa.Array) -> None:
        if not len(values):
            return
        self._chunks.append(values)
        self._size += len(values)
        # A chunk is more than twice as long as the next, so that there are few, and a value is seldom moved.
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]

    def _compact(self) -> None:
        """Let go of the values of lists that are gone."""
        slots = np.arange(len(self._lengths), dtype=np.int64)
        values = self.take(slots).flatten()
        present = np.maximum(self._lengths, 0)
        self._starts = np.cumsum(present) - present
        self._chunks, self._size = [values] if len(values) else [], len(values)

    def _reserve(self, slots: Numbers) -> None:
        need = int(slots.max()) + 1 if len(slots) else 0
        if need > len(self._lengths):
            more = max(need, 2 * len(self._lengths)) - len(self._lengths)
            self._starts = np.concatenate([self._starts, np.zeros(more, dtype=np.int64)])
            self._lengths = np.concatenate([self._lengths, np.full(more, NULL, dtype=np.int64)])


def lengths_of(values: pa.ListArray) -> Numbers:
    """The length of each list, NULL of one that is not there."""
    lengths: Numbers = pc.fill_null(pc.list_value_length(values), NULL).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def lists(kind: pa.ListType, values: pa.Array, lengths: Numbers) -> pa.ListArray:
    """Lists of these lengths. values: of all of them, one behind the other."""
    offsets = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=pa.array(lengths < 0))


def ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """start, start + 1 ... of each, so many as its length says, one behind the other."""
    present = np.maximum(lengths, 0)
    before = np.cumsum(present) - present
    places: Numbers = np.arange(int(present.sum()), dtype=np.int64) + np.repeat(starts - before, present)
    return places
