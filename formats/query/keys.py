"""Which rows of tables have the same key: null equals null, NaN equals NaN, -0.0 equals 0.0; values, never hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from formats.query import arrow

Rows = npt.NDArray[np.int64]

NTH = "__nth"
"""The column that numbers rows of one key, where there are several."""


def key_arrays(table: pa.Table, key: Sequence[str]) -> list[pa.Array]:
    """The key columns of a table, each one array."""
    return [one_array(table.column(name)) for name in key]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, copied only if it is in several."""
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def matches(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Rows:
    """For each row of `right` the row of `left` with the same key, -1 if there is none. Keys are distinct
    within each side; both have the same types.

    Rows in the same order on both sides, as those of two epochs are, cost a comparison; only what is left over after
    that is looked up.
    """
    place = np.full(len(right[0]), -1, dtype=np.int64)
    unmatched = np.ones(len(left[0]), dtype=bool)
    for i, j, count in _runs(left, right):
        place[j : j + count] = np.arange(i, i + count)
        unmatched[i : i + count] = False
    rest = np.flatnonzero(place < 0)
    if len(rest) and unmatched.any():
        others = np.flatnonzero(unmatched)
        a, b = _comparable([arrow.take(c, others) for c in left], [arrow.take(c, rest) for c in right])
        index = arrow.index_in(b, a)
        place[rest] = np.where(index < 0, -1, others[index])
    return place


_BLOCK = 512
_WINDOW = 256
_SHIFTS = ((0, 0), (1, 0), (0, 1))
_DENSE = 200


def _runs(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Iterator[tuple[int, int, int]]:
    """Stretches of equal keys: where they begin on each side, and how long they are. Gives up where differences are
    closer than one in _DENSE rows or longer than _WINDOW: then looking the rest up is cheaper."""
    if any(c.null_count or not _is_plain(c.type) for c in (*left, *right)):
        return
    i = j = misses = 0
    block = len(left[0])
    while i < len(left[0]) and j < len(right[0]):
        # The same row, or one more on either side: what a single new or lost key makes of the order.
        for a, b in _SHIFTS:
            if _one_key(left, right, i + a, j + b):
                count = _equal_rows(left, right, i + a, j + b, block)
                yield i + a, j + b, count
                i, j = i + a + count, j + b + count
                # While rows stay equal they are compared in ever larger pieces; after a difference in small ones again.
                block = min(2 * block, len(left[0])) if count == block else _BLOCK
                misses += a + b > 0
                break
        else:
            ahead = _next_pair(left, right, i, j)
            if ahead is None:
                return
            i, j, misses = i + ahead[0], j + ahead[1], misses + 1
        # Differences this close make every stretch short: looking up what is left over costs less.
        if misses > 50 and misses * _DENSE > j:
            return


def _next_pair(left: Sequence[pa.Array], right: Sequence[pa.Array], i: int, j: int) -> tuple[int, int] | None:
    """How far ahead the next rows with one key are; None if they are not near."""
    a, b = _comparable([c.slice(i, _WINDOW) for c in left], [c.slice(j, _WINDOW) for c in right])
    index = arrow.index_in(b, a)
    hits = np.flatnonzero(index >= 0)
    if not len(hits):
        return None
    # Few rows to pass over on both sides together.
    nearest = hits[np.argmin(index[hits] + hits)]
    return int(index[nearest]), int(nearest)


def _one_key(left: Sequence[pa.Array], right: Sequence[pa.Array], i: int, j: int) -> bool:
    """Whether there are such rows and their keys are equal: asked before many are compared, as most are not."""
    if i >= len(left[0]) or j >= len(right[0]):
        return False
    return all(a[i].equals(b[j]) for a, b in zip(left, right, strict=True))


def _equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], i: int, j: int, most: int) -> int:
    """How many rows from these on, the first of which are equal, are equal on both sides."""
    count = min(most, len(left[0]) - i, len(right[0]) - j)
    for a, b in zip(left, right, strict=True):
        if count <= 0:
            return 0
        equal = arrow.equal(a.slice(i, count), b.slice(j, count))
        if equal.false_count:
            count = int(np.argmin(equal.to_numpy(zero_copy_only=False)))
    return count


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow's `equal` says what equal keys are (it does of floats but for NaN, which is looked up)."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind) or types.is_large_string(kind)
        or types.is_binary(kind) or types.is_boolean(kind) or types.is_decimal(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )  # fmt: skip


def incomparable(kind: pa.DataType) -> bool:
    """Whether Arrow neither compares nor casts values of a type: nested ones, and intervals of months, days and time,
    which it counts among the temporal and the primitive ones."""
    types = pa.types
    return bool(types.is_nested(kind) or types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType))


def last_of_each(columns: Sequence[pa.Array]) -> Rows:
    """The last row of every distinct key, ascending."""
    codes = plain_column(columns[0]) if len(columns) == 1 else pa.array(_codes(columns))
    encoded = codes.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy()
    last = np.empty(len(encoded.dictionary), dtype=np.int64)
    last[indices] = np.arange(len(indices))  # of rows with one key the last is the one that stays
    return cast(Rows, np.sort(last))


def is_any_of(columns: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Row by row, whether the key is one of `wanted`."""
    a, b = _comparable(wanted, columns)
    return arrow.is_in(b, a)


def numbered(columns: Sequence[pa.Array]) -> Rows:
    """For each row how many rows with the same key stand before it."""
    if not len(columns[0]):
        return np.empty(0, dtype=np.int64)
    codes = _codes(columns)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.concatenate([first, [len(codes)]]))
    result = np.empty(len(codes), dtype=np.int64)
    result[order] = np.arange(len(codes)) - np.repeat(first, sizes)
    return result


def _comparable(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """One column a side that is equal where the keys are."""
    if len(left) == 1:
        return plain_column(left[0]), plain_column(right[0])
    both = [pa.concat_arrays([plain_column(a), plain_column(b)]) for a, b in zip(left, right, strict=True)]
    codes = pa.array(_codes(both))
    return codes.slice(0, len(left[0])), codes.slice(len(left[0]))


def _codes(columns: Sequence[pa.Array]) -> Rows:
    """A number a row, equal where all columns are. Exact: numbers are made dense again after every column."""
    total: Rows | None = None
    for column in columns:
        encoded = plain_column(column).dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        if total is not None:
            # Dense again after every column: the product of all numbers of values would outgrow 64 bits.
            dense = pa.array(total * len(encoded.dictionary) + codes).dictionary_encode()
            codes = dense.indices.to_numpy().astype(np.int64)
        total = codes
    assert total is not None
    return total


def plain_column(column: pa.Array) -> pa.Array:
    """A column that Arrow's hash tables take, and whose zeros are one."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_column(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return arrow.call("add", [column.cast(pa.float64()), pa.scalar(0.0)])
    if incomparable(kind):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column
