"""The hash that places keys in key groups: the same on every machine and in every version.

64 bits, over Arrow columns at numpy speed. Integers of any width, booleans, dates and times hash by value; floats
by their double's bits (-0.0 as 0.0, every NaN alike); strings and bytes by 8-byte little-endian lanes and length, those
beyond LONG bytes by BLAKE2b, first 8 bytes, little-endian;
anything else by its string form. It is part of the store's format: changing it is a new format version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SAMPLE = 2048
LONG = 1024

Hashes = npt.NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_NULL = np.uint64(0x27D4EB2F165667C5)
_32, _29 = np.uint64(32), np.uint64(29)


def key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The key group of each row, 0 to max_parallelism - 1."""
    return (hash_rows(columns) % np.uint64(max_parallelism)).astype(np.int32)


def hash_rows(columns: Sequence[pa.Array]) -> Hashes:
    """One hash a row over all key columns, in order; at least one column."""
    total = np.full(len(columns[0]), _P3, dtype=np.uint64)
    for column in columns:
        total = _mix((total * _P1) ^ _hash_column(column))
    return total


def _mix(h: Hashes) -> Hashes:
    h = (h ^ (h >> _32)) * _P2
    h = (h ^ (h >> _29)) * _P3
    return cast(Hashes, h ^ (h >> _32))


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hash_column(column.dictionary_decode())
    if _repeats(column):
        encoded = column.dictionary_encode(null_encoding="encode")
        return cast(Hashes, _hash_column(encoded.dictionary)[encoded.indices.to_numpy()])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _hash_bytes(column, np.dtype("<i4"))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        hashes = _hash_bytes(column, np.dtype("<i8"))
    elif pa.types.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        hashes = _mix(np.where(np.isnan(values), np.nan, values).view(np.uint64) * _P1)
    elif pa.types.is_null(kind):
        return np.full(len(column), _NULL, dtype=np.uint64)
    elif pa.types.is_uint64(kind):
        hashes = _mix(column.fill_null(0).to_numpy(zero_copy_only=False) * _P1)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        hashes = _mix(_integers(column).view(np.uint64) * _P1)
    else:
        return _hash_column(column.cast(pa.string()))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _repeats(column: pa.Array) -> bool:
    """Whether strings occur so often that hashing each distinct one once pays, judged by the first few."""
    if len(column) < 4 * SAMPLE or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    sample = column.slice(0, SAMPLE)
    return len(sample.unique()) * 2 < SAMPLE


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_temporal(column.type) and column.type.bit_width == 32:
        column = column.cast(pa.int32())
    values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype=np.int64)


def _hash_bytes(column: pa.Array, offset_type: np.dtype[np.signedinteger]) -> Hashes:
    _, offset_buffer, data_buffer = column.buffers()
    if len(column) == 0:
        return np.empty(0, dtype=np.uint64)
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)[column.offset : column.offset + len(column) + 1]
    offsets = offsets.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, dtype=np.uint8, count=last - first, offset=first)
    lanes = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))  # eight bytes from each place on
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    hashes = _mix(lengths.astype(np.uint64) * _P2)
    for row in np.flatnonzero(lengths > LONG).tolist():
        whole = data[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "little")
    done = 0
    active = np.flatnonzero((lengths > 0) & (lengths <= LONG))
    while len(active):
        # Most often all texts go on for as long: what is chosen of a column by its rows is a copy.
        rows = slice(None) if len(active) == len(hashes) else active
        left = lengths[rows] - done
        lane = lanes[starts[rows] + done].astype(np.uint64)
        if int(left.min()) < 8:
            unused = (8 - np.minimum(left, 8)).astype(np.uint64) * np.uint64(8)
            lane = (lane << unused) >> unused
        hashes[rows] = _mix((hashes[rows] * _P1) ^ (lane * _P2))
        done += 8
        active = active[left > 8]
    return hashes
