"""Spark's UnsafeRow, many rows at a time: bounds are checked first, then columns become Arrow arrays.

A row is a bitmap of nulls (8 bytes for each 64 columns begun), a slot of 8 little-endian bytes for each column, and an
area that slots of strings, structs, arrays and so on point into as (offset << 32 | size), from the start of the row.
An array is a count (8 bytes), a bitmap, its elements at their own width, and an area; a map is the size of its array
of keys (8 bytes), that array and the array of values. Spark: `UnsafeRow`, `UnsafeArrayData`, `UnsafeMapData`.

What no healthy row has is a fault of the row: a length that is no multiple of 8, nulls of columns that are not there,
a null or narrow value with other bits in its slot, a slot that points outside, a boolean other than 0 and 1, text that
is not UTF-8, bytes between the end of a text and the next 8.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from formats.spark import murmur3
from formats.spark.types import Field, Type, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
MOST = 1 << 27
"""Elements of all arrays of a batch of rows; more are a fault."""

_DTYPES: dict[str, Any] = {
    "boolean": np.uint8,
    "byte": np.int8,
    "short": np.int16,
    "integer": np.int32,
    "date": np.int32,
    "year-month": np.int32,
    "float": np.float32,
    "double": np.float64,
}


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
    """A column before it is an Arrow array: for each place the row that owns it, whether it is null, and its 8 bytes
    (fixed: at their own width from `start`) or where it lies (`start`, `size`)."""

    type: Type
    owner: Ints
    null: Mask
    start: Ints
    size: Ints
    slot: Ints


class Rows:
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
            blank = bytes(fixed + prefix)
            rows = [blank if bad else row for row, bad in zip(rows, wrong.tolist(), strict=True)]
            lengths = np.where(wrong, fixed, lengths)
        if prefix:
            rows = [row[prefix:] for row in rows]
        self.data = np.frombuffer(b"".join(rows), np.uint8) if rows else np.zeros(0, np.uint8)
        self.words = self.data.view(np.int64)
        start = np.cumsum(lengths) - lengths
        self.columns = self._struct(type.fields, own, start, lengths)

    # From slots to places

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
            word = self.words[ends[inside] // 8].view(np.uint64) >> (8 * part[inside]).astype(np.uint64)
            wrong = np.zeros(len(part), np.bool_)
            wrong[inside] = word != 0
            self.faults.mark(owner, wrong, f"column {field.name}: bytes behind its end are set")

    def _array(self, field: Field, owner: Ints, start: Ints, size: Ints, there: Mask) -> tuple[Ints, Values]:
        """Counts of the elements of arrays, 0 where there is none, and the elements."""
        count = np.where(there, self.words[np.where(there, start, 0) // 8], 0) if len(self.words) else start * 0
        width = field.type.width or 8
        sane = (count >= 0) & (count <= np.maximum(size, 0))
        count = np.where(sane, count, 0)
        head = 8 + (count + 63) // 64 * 8
        wrong = there & (~sane | (head + (count * width + 7) // 8 * 8 > size))
        if int(count[~wrong].sum()) > MOST:
            wrong |= count > 0
        self.faults.mark(owner, wrong, f"{field.name}: an array has more elements than it has room for")
        count = np.where(wrong, 0, count)
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

    # From places to Arrow

    def arrays(self) -> list[pa.Array]:
        """The columns as Arrow arrays. Rows with faults have nulls or nonsense in them: look at `faults` first."""
        return [self._arrow(values) for values in self.columns]

    def check(self) -> Faults:
        """The faults of the rows, text and nested values included."""
        self.arrays()
        return self.faults

    def _fixed_width(self, values: Values) -> NDArray[Any]:
        dtype = np.dtype(_DTYPES.get(values.type.kind, np.int64))
        if not len(values.start):
            return np.zeros(0, dtype)
        found: NDArray[Any] = self.data.view(dtype)[values.start // dtype.itemsize]
        return found

    def _arrow(self, values: Values) -> pa.Array:
        import pyarrow as pa

        kind, null = values.type.kind, values.null
        to = arrow_type(values.type)
        if kind == "void":
            return pa.nulls(len(null))
        if values.type.width is not None:
            fixed = self._fixed_width(values)
            if kind == "decimal":
                return _decimals(fixed, fixed >> 63, null, to)
            if kind == "boolean":
                return pa.array(fixed != 0, to, mask=null)
            return pa.array(fixed, mask=null).cast(to) if kind in ("date", "time") else _view(fixed, null, to)
        if kind in ("string", "binary"):
            return self._bytes(values, to)
        if kind == "decimal":
            return self._wide_decimals(values, to)
        if kind == "interval":
            return self._intervals(values, to)
        if kind == "variant":
            return self._variants(values, to)
        if kind == "struct":
            there = np.flatnonzero(~null)
            parts = self._struct(values.type.fields, values.owner[there], values.start[there], values.size[there])
            dense = [self._arrow(part) for part in parts]
            take = pa.array(np.cumsum(~null) - 1, mask=null)
            spread = [array.take(take) for array in dense]
            return (
                pa.StructArray.from_arrays(spread, fields=list(to), mask=pa.array(null)) if spread else _no_fields(null)
            )
        if kind == "array":
            count, elements = self._array(values.type.fields[0], values.owner, values.start, values.size, ~null)
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
            inner = self._arrow(elements)
            return pa.LargeListArray.from_arrays(pa.array(ends), inner, type=to, mask=pa.array(null))
        count, keys, items = self._map(values.type, values)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)]).astype(np.int32)
        if len(items.null) != len(keys.null):
            return pa.nulls(len(null), to)
        entries = [self._arrow(keys), self._arrow(items)]
        if keys.null.any():
            self.faults.mark(keys.owner, keys.null, "a map has a key that is null")
            return pa.nulls(len(null), to)
        buffers = [_bits(~null), pa.py_buffer(ends)]
        inside = pa.StructArray.from_arrays(entries, fields=[to.key_field, to.item_field])
        return pa.Array.from_buffers(to, len(null), buffers, children=[inside])

    def _gather(self, values: Values) -> tuple[NDArray[np.uint8], Ints]:
        """The bytes that the values point to, end to end, and where each ends."""
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(values.size)])
        index = np.arange(ends[-1]) + np.repeat(values.start - ends[:-1], values.size)
        return self.data[index], ends

    def _bytes(self, values: Values, to: pa.DataType) -> pa.Array:
        import pyarrow as pa

        data, ends = self._gather(values)
        bits = None if not values.null.any() else _bits(~values.null)
        made = pa.Array.from_buffers(to, len(values.null), [bits, pa.py_buffer(ends), pa.py_buffer(data)])
        if values.type.kind == "string":
            try:
                made.validate(full=True)
            except pa.ArrowInvalid:
                raw = data.tobytes()
                wrong = np.array([not _is_text(raw[a:b]) for a, b in itertools.pairwise(ends)])
                self.faults.mark(values.owner, wrong, "a text is not UTF-8")
                return pa.nulls(len(values.null), to)
        return made

    def _wide_decimals(self, values: Values, to: pa.DataType) -> pa.Array:
        """Big-endian two's complement of 1 to 16 bytes, made little-endian of 16."""
        data, ends = self._gather(values)
        wide = np.zeros((len(values.null), 16), np.uint8)
        if len(data):
            sign = np.where(values.size > 0, data[np.minimum(ends[:-1], len(data) - 1)] >> 7, 0)
            wide[sign == 1] = 0xFF
            of = np.repeat(np.arange(len(values.null)), values.size)
            wide[of, np.repeat(ends[1:], values.size) - 1 - np.arange(len(data))] = data
        halves = wide.view(np.int64)
        return _decimals(halves[:, 0].copy(), halves[:, 1].copy(), values.null, to)

    def _intervals(self, values: Values, to: pa.DataType) -> pa.Array:
        import pyarrow as pa

        data, _ = self._gather(values)
        out = np.zeros((len(values.null), 2), np.int64)
        out[~values.null] = data.view(np.int64).reshape(-1, 2)
        out[:, 1] *= 1000  # microseconds to nanoseconds
        return pa.Array.from_buffers(to, len(out), [_bits(~values.null), pa.py_buffer(out)])

    def _variants(self, values: Values, to: pa.DataType) -> pa.Array:
        import pyarrow as pa

        data, ends = self._gather(values)
        raw = data.tobytes()
        out: list[dict[str, bytes] | None] = []
        for i, gone in enumerate(values.null.tolist()):
            body = raw[int(ends[i]) : int(ends[i + 1])]
            size = int.from_bytes(body[:4], "little")
            if not gone and size > len(body) - 4:
                self.faults.mark(values.owner[i : i + 1], np.ones(1, np.bool_), "a variant is longer than its place")
            out.append(None if gone else {"value": body[4 : 4 + size], "metadata": body[4 + size :]})
        return pa.array(out, to)

    # From places to hashes

    def hashes(self, columns: list[Values] | None = None, seed: murmur3.Words | None = None) -> murmur3.Words | None:
        """Spark's hash of the rows, or of some columns of them; None if one is of a type that has none."""
        h = murmur3.seeds(len(self.faults.bad)) if seed is None else seed
        for values in self.columns if columns is None else columns:
            done = self._hash(values, h)
            if done is None:
                return None
            h = done
        return h

    def inner(self, values: Values) -> list[Values] | None:
        """The columns of a struct column; None if it is none, or null in some row."""
        if values.type.kind != "struct" or values.null.any():
            return None
        return self._struct(values.type.fields, values.owner, values.start, values.size)

    def _hash(self, values: Values, seed: murmur3.Words) -> murmur3.Words | None:
        kind, null = values.type.kind, values.null
        if kind == "void" or null.all():
            return seed
        if kind in ("map", "variant") or (kind == "decimal" and values.type.width is None and values.type.scale < 0):
            return None
        if values.type.width is not None:
            fixed = self._fixed_width(values)
            by: Any = {1: murmur3.hash_int, 2: murmur3.hash_int, 4: murmur3.hash_int, 8: murmur3.hash_long}
            hash_of = {"float": murmur3.hash_float, "double": murmur3.hash_double}.get(kind, by[values.type.width])
            return np.where(null, seed, hash_of(fixed, seed))
        if kind in ("string", "binary", "decimal"):
            return np.where(null, seed, murmur3.hash_bytes(self.data, values.start, values.size, seed))
        there = np.flatnonzero(~null)
        if kind == "struct":
            part = seed[there]
            inside = self._struct(values.type.fields, values.owner[there], values.start[there], values.size[there])
            for field in inside:
                done = self._hash(field, part)
                if done is None:
                    return None
                part = done
            out = seed.copy()
            out[there] = part
            return out
        if kind == "array":
            return self._hash_array(values, seed)
        return self._hash_interval(values, seed)

    def _hash_array(self, values: Values, seed: murmur3.Words) -> murmur3.Words | None:
        count, elements = self._array(values.type.fields[0], values.owner, values.start, values.size, ~values.null)
        first = np.cumsum(count) - count
        out = seed.copy()
        for i in range(int(count.max(initial=0))):
            of = np.flatnonzero(count > i)
            at = first[of] + i
            part = Values(
                elements.type,
                elements.owner[at],
                elements.null[at],
                elements.start[at],
                elements.size[at],
                elements.slot[at],
            )
            done = self._hash(part, out[of])
            if done is None:
                return None
            out[of] = done
        return out

    def _hash_interval(self, values: Values, seed: murmur3.Words) -> murmur3.Words:
        base = np.where(values.null, 0, values.start)
        pair = self.words[base // 8]
        months, days = pair.astype(np.int32), (pair >> 32).astype(np.int32)
        h = murmur3.hash_long(self.words[base // 8 + 1], seed)
        return np.where(values.null, seed, murmur3.hash_int(months, murmur3.hash_int(days, h)))


def _fixed(columns: int) -> int:
    """Bytes of a row's bitmap and slots."""
    return (columns + 63) // 64 * 8 + 8 * columns


def _bits(valid: Mask) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _view(fixed: NDArray[Any], null: Mask, to: pa.DataType) -> pa.Array:
    """An Arrow array over numbers whose bits are already those of the type."""
    import pyarrow as pa

    bits = _bits(~null) if null.any() else None
    return pa.Array.from_buffers(to, len(fixed), [bits, pa.py_buffer(np.ascontiguousarray(fixed))])


def _decimals(low: NDArray[Any], high: NDArray[Any], null: Mask, to: pa.DataType) -> pa.Array:
    import pyarrow as pa

    pairs = np.stack([low.astype(np.int64), high.astype(np.int64)], axis=1)
    pairs[null] = 0
    return pa.Array.from_buffers(to, len(low), [_bits(~null), pa.py_buffer(np.ascontiguousarray(pairs))])


def _no_fields(null: Mask) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if gone else {} for gone in null.tolist()], pa.struct([]))


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
