"""A few of Arrow's functions without `pyarrow.compute`: that makes wrappers and documentation for three hundred of them
when it is imported, and takes longer over it than to compare a million keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

try:
    from pyarrow._compute import FilterOptions, SetLookupOptions, StructFieldOptions, call_function
except ImportError:  # where a version of pyarrow has them is its own affair
    from pyarrow.compute import FilterOptions, SetLookupOptions, StructFieldOptions, call_function


def call(name: str, arguments: list[Any]) -> Any:
    """A function that needs no options."""
    return call_function(name, arguments)


def equal(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Row by row; null where one is."""
    return call("equal", [a, b])


def is_in(values: pa.Array, among: pa.Array) -> npt.NDArray[np.bool_]:
    """Of each value whether it is among others; nulls are equal."""
    mask: npt.NDArray[np.bool_] = call_function("is_in", [values], SetLookupOptions(among)).to_numpy(
        zero_copy_only=False
    )
    return mask


def index_in(values: pa.Array, among: pa.Array) -> npt.NDArray[np.int32]:
    """Where each value first stands among others, -1 if nowhere; nulls are equal."""
    nullable = call_function("index_in", [values], SetLookupOptions(among))
    places: npt.NDArray[np.int32] = call_function("coalesce", [nullable, pa.scalar(-1, pa.int32())]).to_numpy()
    return places


def take(array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Rows by number."""
    numbers = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows, np.int64))])
    return call_function("take", [array, numbers])


def field_of(table: Any, path: tuple[str, ...]) -> Any:
    """A column of a table or a batch, or a field within a struct."""
    column = table.column(path[0])
    return call_function("struct_field", [column], StructFieldOptions(list(path[1:]))) if path[1:] else column


def rows_where(table: Any, mask: Any) -> Any:
    """The rows of a table or a batch for which a mask is true."""
    return call_function("filter", [table, mask], FilterOptions())
