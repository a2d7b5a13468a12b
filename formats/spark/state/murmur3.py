"""Spark's own murmur3 of rows, whole columns at a time, and the partition that it gives a key.

A row's hash starts with the seed 42 and runs through its columns, the hash of one being the seed of the next; a null
leaves it as it is. Integers up to 4 bytes are mixed as one word, 8 bytes as two, strings word by word with each byte
of the tail mixed as a signed word of its own (standard murmur3 mixes the tail at once). Spark: `Murmur3Hash`,
`HashPartitioning`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def seeds(count: int) -> Words:
    """Where the hash of `count` rows starts."""
    return np.full(count, SEED, np.uint32)


def hash_int(values: NDArray[Any], seed: Words) -> Words:
    """Of integers of 4 bytes: also booleans, bytes, shorts, dates and the bits of floats."""
    return _final(_mix(seed, values.astype(np.int32, copy=False).view(np.uint32)), np.uint32(4))


def hash_long(values: NDArray[Any], seed: Words) -> Words:
    """Of integers of 8 bytes: also timestamps, short decimals and the bits of doubles."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    low, high = bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    return _final(_mix(_mix(seed, low), high), np.uint32(8))


def hash_float(values: NDArray[np.float32], seed: Words) -> Words:
    """Zeros and NaNs hash alike, whatever their bits."""
    return hash_int(np.where(np.isnan(values), np.float32("nan"), values + np.float32(0)).view(np.int32), seed)


def hash_double(values: NDArray[np.float64], seed: Words) -> Words:
    """Zeros and NaNs hash alike, whatever their bits."""
    return hash_long(np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64), seed)


def hash_bytes(data: NDArray[np.uint8], start: NDArray[np.int64], size: NDArray[np.int64], seed: Words) -> Words:
    """Of byte strings `data[start : start + size]`, all of which lie within `data`."""
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    order = np.argsort(-size, kind="stable")
    starts, sizes, h = start[order], size[order], seed[order]
    whole = sizes // 4
    for i in range(int(whole.max(initial=0))):
        n = int(np.searchsorted(-whole, -i, "left"))  # rows that have more than i whole words
        at = starts[:n] + 4 * i
        word = padded[at].astype(np.uint32)
        for k in (1, 2, 3):
            word |= padded[at + k].astype(np.uint32) << np.uint32(8 * k)
        h[:n] = _mix(h[:n], word)
    for k in range(3):
        left = np.flatnonzero(sizes - 4 * whole > k)
        if len(left):
            tail = padded[starts[left] + 4 * whole[left] + k].view(np.int8).astype(np.int32).view(np.uint32)
            h[left] = _mix(h[left], tail)
    out = np.empty_like(h)
    out[order] = _final(h, sizes.astype(np.uint32))
    return out


def partition_of(hashes: Words, partitions: int) -> NDArray[np.int64]:
    """The partition of each hash: never negative."""
    return hashes.view(np.int32).astype(np.int64) % partitions


def _mix(h: Words, k: Words) -> Words:
    k = k * _C1
    k = (k << np.uint32(15)) | (k >> np.uint32(17))
    h = h ^ (k * _C2)
    h = (h << np.uint32(13)) | (h >> np.uint32(19))
    return h * np.uint32(5) + np.uint32(0xE6546B64)


def _final(h: Words, length: Any) -> Words:
    h = h ^ length
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))
