"""In which key group a key belongs: Java's `hashCode` of it, Flink's murmur of that, modulo max parallelism.

Known for keys whose `hashCode` the Java language, the class library or Flink defines. A Pojo's is the user's, an
enum's is its address: keys of such types are counted as unchecked, never as right.

Source: `KeyGroupRangeAssignment`, `MathUtils.murmurHash`, `MurmurHashUtils`, `RowUtils`; checked on keys of real state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from formats.flink.state.time_keys import date_hash, date_time_hash, instant_hash, millis_hash, time_hash, uuid_hash
from formats.flink.types.values import Codec, Read

_M32: Final = 0xFFFFFFFF
Hash: TypeAlias = Callable[[bytes, int, int, Any], int]
"""(buffer, begin, end, value) to the 32 bits of `hashCode`."""


def key_group(hash_code: int, max_parallelism: int) -> int:
    """`MathUtils.murmurHash(hashCode) % maxParallelism`."""
    code = hash_code * 0xCC9E2D51 & _M32
    code = (code << 15 | code >> 17) & _M32
    code = code * 0x1B873593 & _M32
    code = (code << 13 | code >> 19) & _M32
    code = (code * 5 + 0xE6546B64 & _M32) ^ 4
    code = _mix(code)
    # Java's `int` is signed: its absolute value is taken, and the lowest number, which has none, is 0
    if code & 0x80000000:
        code = 0 if code == 0x80000000 else (-code) & _M32
    return code % max_parallelism


def _mix(code: int) -> int:
    code ^= code >> 16
    code = code * 0x85EBCA6B & _M32
    code ^= code >> 13
    code = code * 0xC2B2AE35 & _M32
    return code ^ code >> 16


def string_hash(text: str) -> int:
    """`String.hashCode`: 31-adic over UTF-16 units."""
    units = text.encode("latin-1") if text.isascii() else None
    h = 0
    if units is None:
        data = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(data), 2):
            h = (h * 31 + (data[i] << 8 | data[i + 1])) & _M32
        return h
    for unit in units:
        h = (h * 31 + unit) & _M32
    return h


def long_hash(value: int) -> int:
    """`Long.hashCode`."""
    value &= 0xFFFFFFFFFFFFFFFF
    return (value ^ value >> 32) & _M32


def double_hash(value: float) -> int:
    """`Double.hashCode`: every NaN is one."""
    return long_hash(0x7FF8 << 48 if value != value else struct.unpack(">q", struct.pack(">d", value))[0])


def float_hash(value: float) -> int:
    """`Float.hashCode`."""
    bits: int = 0x7FC00000 if value != value else struct.unpack(">i", struct.pack(">f", value))[0]
    return bits & _M32


def bigint_hash(value: int) -> int:
    """`BigInteger.hashCode`: over the 32-bit digits of its size."""
    size, h = abs(value), 0
    for shift in range((size.bit_length() + 31) // 32 * 32 - 32, -1, -32):
        h = (31 * h + (size >> shift & _M32)) & _M32
    return h if value >= 0 else -h & _M32


def bigdec_hash(text: str) -> int:
    """`BigDecimal.hashCode`: short ones (64 bits) by another rule than long ones."""
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    scale = -int(exponent)
    if -(1 << 63) < unscaled < 1 << 63:
        size = abs(unscaled)
        h = ((size >> 32) * 31 + (size & _M32)) & _M32
        return (31 * (h if unscaled >= 0 else -h) + scale) & _M32
    return (31 * bigint_hash(unscaled) + scale) & _M32


def words_hash(data: bytes) -> int:
    """`MurmurHashUtils.hashBytesByWords` with its seed 42: how binary rows hash. Whole words, as rows have."""
    h = 42
    for (k,) in struct.iter_unpack("<I", data):
        k = k * 0xCC9E2D51 & _M32
        k = (k << 15 | k >> 17) & _M32
        h ^= k * 0x1B873593 & _M32
        h = (h << 13 | h >> 19) & _M32
        h = (h * 5 + 0xE6546B64) & _M32
    return _mix(h ^ len(data))


def _of_value(hash_value: Callable[[Any], int]) -> Hash:
    return lambda buf, begin, end, value: 0 if value is None else hash_value(value)


def bytes_hash(value: bytes) -> int:
    """`Arrays.hashCode(byte[])`, which a byte array has within a Row."""
    h = 1
    for byte in value:
        h = (31 * h + (byte if byte < 128 else byte - 256)) & _M32
    return h


def _fields(codec: Codec) -> list[Callable[[Any], int]] | None:
    hashes = [value_hash(part) for part in codec.parts]
    return None if any(one is None for one in hashes) else [one for one in hashes if one is not None]


def value_hash(codec: Codec) -> Callable[[Any], int] | None:
    """`hashCode` of a decoded value; None where the class is not known to have one that stays the same."""
    kind = codec.kind
    if kind == "kryo" and codec.snapshot is not None:
        kind = _KRYO.get(codec.snapshot.about or "", kind)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return lambda value: 0 if value is None else simple(value)
    if codec.kind == "tuple" and codec.snapshot is not None and (codec.snapshot.about or "").startswith(_TUPLE):
        fields = _fields(codec)
        if fields is None:
            return None

        def tuple_hash(value: Any) -> int:
            h = 0
            for one, field in zip(fields, value, strict=True):
                h = (31 * h + one(field)) & _M32
            return h

        return tuple_hash
    if codec.kind == "row":
        hashes = [bytes_hash if part.kind == "bytes" else value_hash(part) for part in codec.parts]
        parts = [one for one in hashes if one is not None]
        if len(parts) != len(hashes):
            return None
        kinds = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
        has_kind = len(codec.shape[1]) > len(parts)

        def row_hash(value: Any) -> int:
            kind, rest = (kinds[value[0]], value[1:]) if has_kind else (0, value)
            h = 1
            for one, field in zip(parts, rest, strict=True):
                h = (31 * h + (0 if field is None else 31 + one(field))) & _M32
            return (31 * kind + h) & _M32

        return row_hash
    return None


_TUPLE: Final = "org.apache.flink.api.java.tuple.Tuple"

_SIMPLE: Final[dict[str, Callable[[Any], int]]] = {
    "string": string_hash,
    "long": long_hash,
    "int": lambda value: value & _M32,
    "short": lambda value: value & _M32,
    "byte": lambda value: value & _M32,
    "char": ord,
    "boolean": lambda value: 1231 if value else 1237,
    "double": double_hash,
    "float": float_hash,
    "bigint": lambda value: bigint_hash(int(Decimal(value))),
    "bigdec": bigdec_hash,
    "uuid": uuid_hash,
    "localdate": date_hash,
    "localtime": time_hash,
    "localdatetime": date_time_hash,
    "instant": instant_hash,
    "date": millis_hash,
}

_KRYO: Final = {
    "java.math.BigInteger": "bigint",
    "java.math.BigDecimal": "bigdec",
    "java.time.Instant": "instant",
    "java.time.LocalDate": "localdate",
    "java.time.LocalDateTime": "localdatetime",
    "java.time.LocalTime": "localtime",
    "java.util.Date": "date",
    "java.util.UUID": "uuid",
}
"""Classes that Kryo wrote, as the kind that is shown, and hashes, the same."""


def hash_of(codec: Codec) -> Hash | None:
    """How keys of a codec hash; None if that is not known."""
    if codec.kind == "rowdata":  # the bytes of the row, behind their length
        return lambda buf, begin, end, value: words_hash(buf[begin + 4 : end])
    hash_value = value_hash(codec)
    return None if hash_value is None else _of_value(hash_value)


class GroupOf:
    """Puts the key group that a key's hash gives in the place of the key, and counts. Equal bytes are worked out once.

    checked: keys whose hash is known.
    unchecked: the others; None stands in their place.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.max_parallelism = max_parallelism
        self.checked = 0
        self.unchecked = 0

    def __call__(self, codec: Codec) -> Codec:
        """The codec, reading key groups."""
        hash_key, inner = hash_of(codec), codec.read
        groups: dict[bytes, int] = {}

        def skip(buf: bytes, pos: int) -> tuple[Any, int]:
            _, end = inner(buf, pos)
            self.unchecked += 1
            return None, end

        def read(buf: bytes, pos: int) -> tuple[Any, int]:
            value, end = inner(buf, pos)
            self.checked += 1
            data = buf[pos:end]
            group = groups.get(data)
            if group is None:
                assert hash_key is not None
                group = key_group(hash_key(buf, pos, end, value), self.max_parallelism)
                # bounded: keys that never come again would only fill the memory
                if len(groups) < 100_000:
                    groups[data] = group
            return group, end

        chosen: Read = skip if hash_key is None else read
        return Codec(codec.kind, chosen, codec.shape, length=codec.length, least=codec.least, hides=codec.hides)
