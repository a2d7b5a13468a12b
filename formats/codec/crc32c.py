"""CRC-32C (Castagnoli): of one long text in lanes side by side, of many short ones side by side, and masked.

A checksum is linear in its bits: that of two pieces is that of the first, carried over as many zero bytes as the second
has, XOR that of the second begun at zero. So long data falls into lanes that numpy runs together, two bytes a step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

    Words = np.ndarray[Any, np.dtype[np.uint32]]

_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = 0xFFFFFFFF
_IN_LANES: Final = 2048
"""Bytes from which on lanes pay."""
_LEAST_LANE: Final = 32
_LEAST_GROUP: Final = 16
"""Texts of one length from which on running them side by side pays."""


def crc32c(data: bytes, start: int = 0) -> int:
    """The checksum of `data`. start: that of the bytes before it."""
    crc = start ^ _ALL
    if len(data) >= _IN_LANES:
        import numpy as np

        lane = _LEAST_LANE
        while 16 * lane * lane < len(data):  # a step of all lanes costs about as much as joining 16 of them
            lane *= 2
        lanes = len(data) // lane
        columns = np.frombuffer(data, "<u2", lanes * lane // 2).reshape(lanes, lane // 2).T
        first, second, third, fourth = _carry(lane)
        for own in _run(columns, np.zeros(lanes, np.uint32), 16).tolist():
            crc = first[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ fourth[crc >> 24] ^ own
        data = data[lanes * lane :]
    table = _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ALL


def crc32cs(rows: list[bytes]) -> list[int]:
    """The checksum of each of many short texts; those of one length go side by side."""
    import numpy as np

    out = [0] * len(rows)
    by_length: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(i)
    for length, group in by_length.items():
        if len(group) < _LEAST_GROUP:
            for i in group:
                out[i] = crc32c(rows[i])
            continue
        columns = np.frombuffer(b"".join(rows[i] for i in group), np.uint8).reshape(len(group), length).T
        sums = _run(columns, np.full(len(group), _ALL, np.uint32), 8) ^ np.uint32(_ALL)
        for i, own in zip(group, sums.tolist(), strict=True):
            out[i] = own
    return out


def masked(crc: int) -> int:
    """As it stands in a file whose bytes are themselves summed: turned by 15 bits, and a constant added."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ALL


def _run(columns: Iterable[Any], state: Words, bits: int) -> Words:
    """What the sums of many texts become when a column of their bytes (8 bits), or pairs of bytes (16), is added."""
    table, low = _wide_table(bits), (1 << bits) - 1
    for column in columns:
        state = table[(state ^ column) & low] ^ (state >> bits)
    return state


@functools.cache
def _table() -> list[int]:
    """What each byte becomes when it has run through."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table


@functools.cache
def _wide_table(bits: int) -> Words:
    """What each number of `bits` bits becomes when its bytes have run through."""
    import numpy as np

    table = np.array(_table(), np.uint32)
    wide = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits // 8):
        wide = table[wide & 0xFF] ^ (wide >> 8)
    return wide


@functools.cache
def _carry(lane: int) -> tuple[list[int], ...]:
    """What `lane` zero bytes, a power of two, make of each byte of a sum."""
    table = _table()
    bits = [table[1 << bit & 0xFF] ^ 1 << bit >> 8 for bit in range(32)]  # what one zero byte makes of each bit
    for _ in range(lane.bit_length() - 1):
        bits = [_sum(bits, crc) for crc in bits]
    return tuple([_sum(bits[at : at + 8], byte) for byte in range(256)] for at in range(0, 32, 8))


def _sum(bits: list[int], number: int) -> int:
    """Of each bit of a number what it stands for."""
    total = 0
    for at, value in enumerate(bits):
        if number >> at & 1:
            total ^= value
    return total
