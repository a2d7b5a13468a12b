"""Values of several values: tuples, lists, maps, rows, and those behind a flag, as readers of `values`."""

from __future__ import annotations

import struct
from typing import Any, Final

from formats.flink.types.values import ROW_KINDS, Codec, Read, boolean

_I32: Final = struct.Struct(">i").unpack_from
_EMPTY_ITEMS: Final = 1 << 16  # values of no bytes that a count may promise


def sequence(codecs: list[Codec]) -> Read:
    """A tuple of values, one after the other."""
    if codecs and all(codec.form for codec in codecs):
        layout = struct.Struct(">" + "".join(codec.form or "" for codec in codecs))
        unpack, size = layout.unpack_from, layout.size
        return lambda buf, pos: (unpack(buf, pos), pos + size)
    reads = [codec.read for codec in codecs]
    if len(reads) == 2:
        first, second = reads

        def pair(buf: bytes, pos: int) -> tuple[Any, int]:
            a, pos = first(buf, pos)
            b, pos = second(buf, pos)
            return (a, b), pos

        return pair

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        out = []
        for one in reads:
            value, pos = one(buf, pos)
            out.append(value)
        return tuple(out), pos

    return read


def _count(buf: bytes, pos: int, least: int) -> int:
    n: int = _I32(buf, pos)[0]
    if n < 0 or n * least > len(buf) - pos - 4 or (not least and n > _EMPTY_ITEMS):
        raise ValueError(f"{n} values in {len(buf) - pos - 4} bytes")
    return n


def read_list(item: Codec) -> Read:
    """`i32 n | n values`."""
    one, least, form = item.read, item.least, item.form
    if form:
        size = struct.calcsize(">" + form)

        def numbers(buf: bytes, pos: int) -> tuple[Any, int]:
            n = _count(buf, pos, size)
            return list(struct.unpack_from(f">{n}{form}", buf, pos + 4)), pos + 4 + n * size

        return numbers

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        n = _count(buf, pos, least)
        pos += 4
        out = []
        for _ in range(n):
            value, pos = one(buf, pos)
            out.append(value)
        return out, pos

    return read


def read_pairs(key: Codec, value: Codec) -> Read:
    """`i32 n | n x (key, u8 whether the value is null, [value])`."""
    read_key, read_value_, least = key.read, value.read, key.least + 1

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        n = _count(buf, pos, least)
        pos += 4
        out = []
        for _ in range(n):
            k, pos = read_key(buf, pos)
            if boolean(buf, pos):
                out.append((k, None))
                pos += 1
            else:
                v, pos = read_value_(buf, pos + 1)
                out.append((k, v))
        return out, pos

    return read


def maybe(item: Codec, *, present: int, padding: int = 0) -> Read:
    """A flag, then the value if the flag is `present`; else `padding` bytes."""
    one = item.read

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        if boolean(buf, pos) == present:
            return one(buf, pos + 1)
        if padding > len(buf) - pos - 1:
            raise IndexError("a null ends too early")
        return None, pos + 1 + padding

    return read


def either(tags: tuple[int, int], first: Codec, second: Codec) -> Read:
    """A byte that says which of two values follows; the result has both, one of them None."""
    one, two = first.read, second.read
    left, right = tags

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        tag = buf[pos]
        if tag == left:
            value, pos = one(buf, pos + 1)
            return (value, None), pos
        if tag != right:
            raise ValueError(f"{tag} where {left} or {right} is due")
        value, pos = two(buf, pos + 1)
        return (None, value), pos

    return read


def masked(codecs: list[Codec], kinds: int) -> Read:
    """`Row`: bits, the highest first: `kinds` (0 or 2) of the row kind, one per null field; then the other fields."""
    total = kinds + len(codecs)
    width = (total + 7) // 8
    top = width * 8 - 1
    nulls = [(1 << (top - kinds - i), codec.read) for i, codec in enumerate(codecs)]
    bit0, bit1 = 1 << top, 1 << (top - 1)
    whole = sequence(codecs)

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        end = pos + width
        mask = int.from_bytes(buf[pos:end], "big")
        if end > len(buf):
            raise IndexError("a row ends too early")
        kind: tuple[str, ...] = ()
        if kinds:
            kind = (ROW_KINDS[(1 if mask & bit0 else 0) + (2 if mask & bit1 else 0)],)
            mask &= ~(bit0 | bit1)
        if not mask:
            values, pos = whole(buf, end)
            return kind + values, pos
        out: list[Any] = []
        pos = end
        for bit, one in nulls:
            if mask & bit:
                out.append(None)
            else:
                value, pos = one(buf, pos)
                out.append(value)
        return kind + tuple(out), pos

    return read
