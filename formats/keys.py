"""Which rows of tables have the same key: null equals null, NaN equals NaN, -0.0 equals 0.0; values, never hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]


def key_arrays(table: pa.Table, key: Sequence[str]) -> list[pa.Array]:
    """The key columns of a table, each one array."""
    return [one_array(table.column(name)) for name in key]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def matches(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Rows:
    """For each row of `right` the row of `left` with the same key, -1 if there is none. Keys in `left` are distinct;
    both sides have the same types."""
    if len(left[0]) == len(right[0]) and all(_same(a, b) for a, b in zip(left, right, strict=True)):
        return np.arange(len(right[0]), dtype=np.int64)
    a, b = _comparable(left, right)
    found = pc.fill_null(pc.index_in(b, value_set=a), -1).to_numpy(zero_copy_only=False)
    return cast(Rows, found.astype(np.int64))


def last_of_each(columns: Sequence[pa.Array]) -> Rows:
    """The last row of every distinct key, ascending."""
    codes = _plain(columns[0]) if len(columns) == 1 else pa.array(_codes(columns))
    encoded = codes.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy()
    last = np.empty(len(encoded.dictionary), dtype=np.int64)
    last[indices] = np.arange(len(indices))  # of rows with one key the last is the one that stays
    return cast(Rows, np.sort(last))


def is_any_of(columns: Sequence[pa.Array], wanted: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Row by row, whether the key is one of `wanted`."""
    a, b = _comparable(wanted, columns)
    return cast("npt.NDArray[np.bool_]", pc.is_in(b, value_set=a).to_numpy(zero_copy_only=False))


def _same(a: pa.Array, b: pa.Array) -> bool:
    """Whether two columns are equal, bit by bit as far as Arrow compares them (NaN never is: then it is looked up)."""
    return bool(a.equals(b))


def _comparable(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """One column a side that is equal where the keys are."""
    if len(left) == 1:
        return _plain(left[0]), _plain(right[0])
    both = [pa.concat_arrays([_plain(a), _plain(b)]) for a, b in zip(left, right, strict=True)]
    codes = pa.array(_codes(both))
    return codes.slice(0, len(left[0])), codes.slice(len(left[0]))


def _codes(columns: Sequence[pa.Array]) -> Rows:
    """A number a row, equal where all columns are. Exact: numbers are made dense again after every column."""
    total: Rows | None = None
    for column in columns:
        encoded = _plain(column).dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        if total is not None:
            dense = pa.array(total * len(encoded.dictionary) + codes).dictionary_encode()
            codes = dense.indices.to_numpy().astype(np.int64)
        total = codes
    assert total is not None
    return total


def _plain(column: pa.Array) -> pa.Array:
    """A column that Arrow's hash tables take, and whose zeros are one."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return pc.add(column.cast(pa.float64()), 0.0)
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column
