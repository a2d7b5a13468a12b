"""Spark's UnsafeRow, many rows at a time: columns become Arrow arrays, and hashes as Spark makes them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from formats.spark.state import murmur3
from formats.spark.state.types import arrow_type
from formats.spark.state.unsafe_places import Faults, Ints, Mask, Places, Values

if TYPE_CHECKING:
    import pyarrow as pa

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

LONG = 64
"""Bytes of a value on average from which on values are copied one by one: an index of their bytes takes eight times
their room."""


class Rows(Places):
    """Rows whose columns can be had as arrays."""

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
        # Values begin at multiples of their own width: the bytes, seen as numbers of it, can be picked from.
        column: NDArray[Any] = self.data.view(dtype)[values.start // dtype.itemsize]
        return column

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
            # Null structs have no bytes to be split. `take`: for each row, which of those that are there it is.
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
        # Counts that differ have been marked as a fault; no array of Arrow can hold them.
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
        if ends[-1] > LONG * len(values.size):
            view = self.data.data
            starts = values.start.tolist()
            pieces = [view[at : at + size] for at, size in zip(starts, values.size.tolist(), strict=True)]
            return np.frombuffer(b"".join(pieces), np.uint8), ends
        # Where each byte of the result lies: byte after byte, and from one value to the next a leap to its start.
        index = np.arange(ends[-1]) + np.repeat(values.start - ends[:-1], values.size)
        return self.data[index], ends

    def _bytes(self, values: Values, to: pa.DataType) -> pa.Array:
        import pyarrow as pa

        data, ends = self._gather(values)
        bits = None if not values.null.any() else _bits(~values.null)
        array = pa.Array.from_buffers(to, len(values.null), [bits, pa.py_buffer(ends), pa.py_buffer(data)])
        if values.type.kind == "string":
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                # Arrow says only that some text is wrong: now each by itself, to blame its row.
                raw = data.tobytes()
                wrong = np.array([not _is_text(raw[a:b]) for a, b in itertools.pairwise(ends)])
                self.faults.mark(values.owner, wrong, "a text is not UTF-8")
                return pa.nulls(len(values.null), to)
        return array

    def _wide_decimals(self, values: Values, to: pa.DataType) -> pa.Array:
        """Big-endian two's complement of 1 to 16 bytes, made little-endian of 16."""
        data, ends = self._gather(values)
        wide = np.zeros((len(values.null), 16), np.uint8)
        if len(data):
            # All bytes get the sign first; then those that are there, from the last to the first, come over them.
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
            # The hash of one column is the seed of the next, as in Spark: their order counts.
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
        # An element is hashed with the hash of those before it as its seed: the first of all arrays, then the second.
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
        # A null has no place: it is hashed as if it lay at 0, and its hash is thrown away.
        base = np.where(values.null, 0, values.start)
        pair = self.words[base // 8]
        months, days = pair.astype(np.int32), (pair >> 32).astype(np.int32)
        # Spark hashes an interval from the end: microseconds, days, months.
        h = murmur3.hash_long(self.words[base // 8 + 1], seed)
        return np.where(values.null, seed, murmur3.hash_int(months, murmur3.hash_int(days, h)))


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
