"""XXH3 of 64 bits, unseeded: the checksum of RocksDB's blocks. Long data is summed a kibibyte at a time by numpy."""

from __future__ import annotations

import numpy as np

_M = (1 << 64) - 1
_P32 = (0, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64 = (
    0,
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_START = (_P32[3], _P64[1], _P64[2], _P64[3], _P64[4], _P32[2], _P64[5], _P32[1])


def xxh3_64(data: bytes) -> int:
    """XXH3_64bits of the bytes."""
    n = len(data)
    if n <= 16:
        return _short(data)
    if n <= 128:
        acc = n * _P64[1]
        for i in range((n - 1) // 32, -1, -1):
            acc += _mix(data, 16 * i, 32 * i) + _mix(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(acc & _M)
    if n <= 240:
        acc = n * _P64[1] + sum(_mix(data, 16 * i, 16 * i) for i in range(8))
        end = sum(_mix(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16)) + _mix(data, n - 16, 119)
        return _avalanche(_avalanche(acc & _M) + end & _M)
    return _long(data)


def _secret(at: int) -> int:
    return int.from_bytes(_SECRET[at : at + 8], "little")


def _word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _M) ^ (product >> 64)


def _mix(data: bytes, at: int, secret: int) -> int:
    return _fold(_word(data, at) ^ _secret(secret), _word(data, at + 8) ^ _secret(secret + 8))


def _avalanche(h: int) -> int:
    h = (h ^ h >> 37) * _MX1 & _M
    return h ^ h >> 32


def _avalanche_64(h: int) -> int:
    h = (h ^ h >> 33) * _P64[2] & _M
    h = (h ^ h >> 29) * _P64[3] & _M
    return h ^ h >> 32


def _rotl(h: int, by: int) -> int:
    return (h << by | h >> (64 - by)) & _M


def _short(data: bytes) -> int:
    n = len(data)
    if n > 8:
        low = _word(data, 0) ^ _secret(24) ^ _secret(32)
        high = _word(data, n - 8) ^ _secret(40) ^ _secret(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((n + swapped + high + _fold(low, high)) & _M)
    if n > 3:
        h = (_word(data, n - 4, 4) + (_word(data, 0, 4) << 32)) ^ _secret(8) ^ _secret(16)
        h ^= _rotl(h, 49) ^ _rotl(h, 24)
        h = h * _MX2 & _M
        h = (h ^ (h >> 35) + n) * _MX2 & _M
        return h ^ h >> 28
    if n:
        word = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche_64(word ^ _word(_SECRET, 0, 4) ^ _word(_SECRET, 4, 4))
    return _avalanche_64(_secret(56) ^ _secret(64))


def _secrets(at: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return np.frombuffer(_SECRET[at : at + 64], "<u8")


_STRIPES = np.stack([_secrets(8 * i) for i in range(16)])
_SWAPPED = [1, 0, 3, 2, 5, 4, 7, 6]


def _long(data: bytes) -> int:
    n = len(data)
    stripes = (n - 1) // 64
    words = np.frombuffer(data, "<u8", stripes * 8).reshape(stripes, 8)
    blocks = (n - 1) // 1024
    acc = np.array(_START, np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for block in range(blocks + 1):
        part = words[16 * block : 16 * block + 16]
        keyed = part ^ _STRIPES[: len(part)]
        acc = acc + part[:, _SWAPPED].sum(0, np.uint64) + ((keyed & low) * (keyed >> half)).sum(0, np.uint64)
        if block < blocks:
            acc = (acc ^ acc >> np.uint64(47) ^ _secrets(128)) * np.uint64(_P32[1])
    last = np.frombuffer(data[n - 64 :], "<u8")
    keyed = last ^ _secrets(121)
    acc = acc + last[_SWAPPED] + (keyed & low) * (keyed >> half)
    lanes = acc.tolist()
    h = n * _P64[1] + sum(
        _fold(lanes[2 * i] ^ _secret(11 + 16 * i), lanes[2 * i + 1] ^ _secret(19 + 16 * i)) for i in range(4)
    )
    return _avalanche(h & _M)
