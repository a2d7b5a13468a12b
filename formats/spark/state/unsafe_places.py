"""Where the values of UnsafeRows lie: bounds are checked first, then columns are places in the bytes.

A row is a bitmap of nulls (8 bytes for each 64 columns begun), a slot of 8 little-endian bytes for each column, and an
area that slots of strings, structs, arrays and so on point into as (offset << 32 | size), from the start of the row.
An array is a count (8 bytes), a bitmap, its elements at their own width, and an area; a map is the size of its array
of keys (8 bytes), that array and the array of values. Spark: `UnsafeRow`, `UnsafeArrayData`, `UnsafeMapData`.

What no healthy row has is a fault of the row: a length that is no multiple of 8, nulls of columns that are not there,
a null or narrow value with other bits in its slot, a slot that points outside, a boolean other than 0 and 1, text that
is not UTF-8, bytes between the end of a text and the next 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats.spark.state.types import Field, Type

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST = 1 << 27
"""Elements of all arrays of a batch of rows; more are a fault."""


class Faults:
    """Which of the rows are not what Spark writes, and why the first of them is not."""

    def __init__(self, rows: int) -> None:
        self.bad: Mask = np.zeros(rows, np.bool_)
        self.why: dict[int, str] = {}

    def mark(self, owners: Ints, wrong: Mask, why: str) -> None:
        """Put faults down to the rows that own the places where they are."""
        if not wrong.any():
            return
        for row in np.unique(owners[wrong]).tolist():
            self.bad[row] = True
            self.why.setdefault(row, why)

    @property
    def first(self) -> tuple[int, str] | None:
        """The first faulty row."""
        return min(self.why.items()) if self.why else None


@dataclass(frozen=True, slots=True)
class Values:
    """A column before it is an Arrow array: places, one an element.

    type: of the column.
    owner: the row that a place belongs to, which is blamed for its faults.
    null: whether there is no value.
    start: where the value begins in the data; of a type of fixed width its own bytes, else those that it points to.
    size: how many bytes it has.
    slot: the 8 bytes of its slot; of elements of an array that have a fixed width they say nothing.
    """

    type: Type
    owner: Ints
    null: Mask
    start: Ints
    size: Ints
    slot: Ints


class Places:
    """Rows laid end to end, to be split into columns. prefix: bytes in front of each row that are not part of it."""

    def __init__(self, rows: list[bytes], type: Type, prefix: int = 0) -> None:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows)) - prefix
        self.faults = Faults(len(rows))
        self.type = type
        n, fixed = len(type.fields), _fixed(len(type.fields))
        own = np.arange(len(rows), dtype=np.int64)
        wrong = (lengths < fixed) | (lengths % 8 != 0)
        if wrong.any():
            self.faults.mark(own, wrong, f"its length is not that of a row of {n} columns")
            # A blank row takes the place of a faulty one: all that follows can go by offsets and stays within the data.
            blank = bytes(fixed + prefix)
            rows = [blank if bad else row for row, bad in zip(rows, wrong.tolist(), strict=True)]
            lengths = np.where(wrong, fixed, lengths)
        if prefix:
            rows = [row[prefix:] for row in rows]
        self.data = np.frombuffer(b"".join(rows), np.uint8) if rows else np.zeros(0, np.uint8)
        self.words = self.data.view(np.int64)
        start = np.cumsum(lengths) - lengths
        self.columns = self._struct(type.fields, own, start, lengths)

    def _struct(self, fields: tuple[Field, ...], owner: Ints, start: Ints, size: Ints) -> list[Values]:
        """The columns of structs that lie within the data, at multiples of 8."""
        bitmap = (len(fields) + 63) // 64
        columns = []
        base = start // 8
        for i in range(bitmap):
            used = min(64, len(fields) - 64 * i)
            if used < 64 and len(base):
                beyond = (self.words[base + i].view(np.uint64) >> np.uint64(used)) != 0
                self.faults.mark(owner, beyond, "it has nulls of columns that it does not have")
        for i, field in enumerate(fields):
            # There is no row: nothing to index into.
            if not len(base):
                empty = np.zeros(0, np.int64)
                columns.append(Values(field.type, owner, np.zeros(0, np.bool_), empty, empty, empty))
                continue
            null = (self.words[base + i // 64] >> (i % 64)) & 1 == 1
            slot = self.words[base + bitmap + i]
            at = start + 8 * (bitmap + i)
            columns.append(self._place(field, owner, null, slot, at, start, size, _fixed(len(fields))))
        return columns

    def _place(
        self, field: Field, owner: Ints, null: Mask, slot: Ints, at: Ints, start: Ints, size: Ints, fixed: int
    ) -> Values:
        width = field.type.width
        if width is not None:
            rest = slot if width == 8 else slot.view(np.uint64) >> np.uint64(8 * width)
            wrong = np.where(null, slot != 0, False if width == 8 else rest != 0)
            if field.type.kind == "boolean":
                wrong |= slot.view(np.uint64) > 1
            if field.type.kind == "void":
                wrong |= ~null
            self.faults.mark(owner, wrong, f"column {field.name}: bits are set that a {field.type.kind} does not have")
            return Values(field.type, owner, null, at, np.full(len(at), width, np.int64), slot)
        return self._pointed(field, owner, null, slot, start, size, fixed)

    def _pointed(
        self, field: Field, owner: Ints, null: Mask, slot: Ints, start: Ints, size: Ints, fixed: Any
    ) -> Values:
        bits = slot.view(np.uint64)
        offset = (bits >> np.uint64(32)).astype(np.int64)
        length: Ints = (bits & np.uint64(0xFFFFFFFF)).astype(np.int64)
        wrong = ~null & ((offset < fixed) | (offset % 8 != 0) | (offset + length > size))
        kind = field.type.kind
        if kind == "decimal":
            wrong |= ~null & ((length < 1) | (length > 16))
        elif kind == "interval":
            wrong |= ~null & (length != 16)
        elif kind == "struct":
            wrong |= ~null & ((length < _fixed(len(field.type.fields))) | (length % 8 != 0))
        elif kind in ("array", "map"):
            wrong |= ~null & ((length < 8) | (length % 8 != 0))
        elif kind == "variant":
            wrong |= ~null & (length < 4)
        self.faults.mark(owner, wrong, f"column {field.name}: points outside its row, or to what no {kind} is")
        there = ~(null | wrong)
        # What is null or points outside becomes empty and lies at 0, so that nobody after this reads outside the data.
        begin, length = np.where(there, start + offset, 0), np.where(there, length, 0)
        if kind in ("string", "binary"):
            self._padding(field, owner, begin, length)
        return Values(field.type, owner, ~there, begin, length, slot)

    def _padding(self, field: Field, owner: Ints, begin: Ints, length: Ints) -> None:
        """Behind a text, up to the next 8 bytes, there are zeros."""
        part = length % 8
        ends = begin + length - part
        inside = (part > 0) & (ends + 8 <= len(self.data))
        if inside.any():
            # Of the last 8 bytes those of the text are shifted out: what is left stands behind it.
            word = self.words[ends[inside] // 8].view(np.uint64) >> (8 * part[inside]).astype(np.uint64)
            wrong = np.zeros(len(part), np.bool_)
            wrong[inside] = word != 0
            self.faults.mark(owner, wrong, f"column {field.name}: bytes behind its end are set")

    def _array(self, field: Field, owner: Ints, start: Ints, size: Ints, there: Mask) -> tuple[Ints, Values]:
        """Counts of the elements of arrays, 0 where there is none, and the elements."""
        count = np.where(there, self.words[np.where(there, start, 0) // 8], 0) if len(self.words) else start * 0
        width = field.type.width or 8
        # An absurd count goes before anything is multiplied with it: a product that wraps round would look small.
        sane = (count >= 0) & (count <= np.maximum(size, 0))
        count = np.where(sane, count, 0)
        head = 8 + (count + 63) // 64 * 8
        wrong = there & (~sane | (head + (count * width + 7) // 8 * 8 > size))
        # Many slots may point to one array, so that even a small file can ask for any number of elements.
        if int(count[~wrong].sum()) > MOST:
            wrong |= count > 0
        self.faults.mark(owner, wrong, f"{field.name}: an array has more elements than it has room for")
        count = np.where(wrong, 0, count)
        # For each element the array that it is of, and its number there.
        of = np.repeat(np.arange(len(count)), count)
        index = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        owners, starts, sizes = owner[of], start[of], size[of]
        if not len(of):
            empty = np.zeros(0, np.int64)
            return count, Values(field.type, owners, np.zeros(0, np.bool_), empty, empty, empty)
        null = (self.words[starts // 8 + 1 + index // 64] >> (index % 64)) & 1 == 1
        at = starts + head[of] + width * index
        if field.type.width is not None:
            places = Values(field.type, owners, null, at, np.full(len(at), width, np.int64), at)
            if field.type.kind == "boolean":
                self.faults.mark(owners, self.data[at] > 1, f"{field.name}: bits are set that a boolean does not have")
            return count, places
        fixed = head[of] + 8 * count[of]
        return count, self._pointed(field, owners, null, self.words[at // 8], starts, sizes, fixed)

    def _map(self, of: Type, places: Values) -> tuple[Ints, Values, Values]:
        """Counts of entries, keys and values of maps."""
        there = ~places.null
        first = (
            np.where(there, self.words[np.where(there, places.start, 0) // 8], 0) if len(self.words) else places.start
        )
        wrong = there & ((first < 8) | (first % 8 != 0) | (first + 16 > places.size))
        self.faults.mark(places.owner, wrong, "a map's keys have no room in it")
        there = there & ~wrong
        keys_size = np.where(there, first, 0)
        key_start, value_start = places.start + 8, places.start + 8 + keys_size
        value_size = places.size - 8 - keys_size
        key, value = of.fields
        count, keys = self._array(key, places.owner, key_start, keys_size, there)
        count_values, values = self._array(value, places.owner, value_start, value_size, there)
        self.faults.mark(places.owner, count != count_values, "a map has not as many keys as values")
        return count, keys, values


def _fixed(columns: int) -> int:
    """Bytes of a row's bitmap and slots."""
    return (columns + 63) // 64 * 8 + 8 * columns
