"""MurmurHash3, 128 bits for x64: how Flink makes an operator's id of its uid."""

from __future__ import annotations

from collections.abc import Iterable

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & _MASK


def _mix(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return x ^ x >> 33


def murmur3_128(data: bytes, seed: int = 0) -> bytes:
    """The 16 bytes of the hash, each half little-endian (Austin Appleby's MurmurHash3_x64_128)."""
    h1 = h2 = seed
    whole = len(data) & ~15
    for i in range(0, whole, 16):
        k1, k2 = int.from_bytes(data[i : i + 8], "little"), int.from_bytes(data[i + 8 : i + 16], "little")
        h1 ^= _rotl(k1 * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = ((_rotl(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotl(k2 * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = ((_rotl(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    h2 ^= _rotl(int.from_bytes(rest[8:], "little") * _C2 & _MASK, 33) * _C1 & _MASK
    h1 ^= _rotl(int.from_bytes(rest[:8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _mix(h1), _mix(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def operator_id(uid: str) -> str:
    """The id of an operator that was given this uid: 32 hex digits."""
    return murmur3_128(uid.encode()).hex()


def proved(uids: Iterable[str], ids: Iterable[str]) -> dict[str, str]:
    """Which of the guessed uids are those of operators that are there: id -> uid."""
    there = set(ids)
    return {number: uid for uid in uids if (number := operator_id(uid)) in there}
