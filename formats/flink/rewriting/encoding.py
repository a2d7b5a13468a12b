"""Values as bytes: the inverse of codecs, for the types of which the form is plain.

Values are given as `abs state -o json` prints them. An encoder is believed only where its codec reads the value back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from formats.flink.state.key_lookup import binary_row_of
from formats.flink.types.values import BROKEN, Codec

_I32: Final = struct.Struct(">i").pack


class CannotEncode(ValueError):
    """A value that is none of the type, or a type that is not written here; the message says which."""


def encoded(codec: Codec, value: Any) -> bytes:
    """The bytes of a value as the codec's serializer writes them; CannotEncode."""
    try:
        data = _encode(codec, value)
        back, end = codec.read(data, 0)
        again = _encode(codec, _printed(codec, back))
    except (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError) as error:
        raise CannotEncode(f"{value!r} is not a valid {codec.kind}: {error}") from None
    except BROKEN as error:
        if isinstance(error, CannotEncode):
            raise
        raise CannotEncode(f"{value!r} as {codec.kind} cannot be read back: {error}") from None
    if end != len(data) or again != data:
        raise CannotEncode(f"{value!r} as {codec.kind} is read back as {back!r}")
    return data


def _encode(codec: Codec, value: Any) -> bytes:
    if codec.framed is not None:
        return _frame(_encode(codec.framed, value))
    if codec.form is not None and codec.kind in _NUMBERS:
        _check(codec, value, float if codec.form in "fd" else int)
        return struct.pack(">" + codec.form, value)
    match codec.kind:
        case "string":
            return _string(codec, value)
        case "utf8":
            _check(codec, value, str)
            return _frame(value.encode())
        case "boolean":
            _check(codec, value, bool)
            return bytes([value])
        case "bytes":
            return _frame(_bytes(codec, value))
        case "voidnamespace":
            return b"\0"
        case "tuple" | "ttl":
            members = zip(codec.parts, _members(codec, value), strict=True)
            return b"".join(_encode(part, item) for part, item in members)
        case "pojo":
            return _pojo(codec, value)
        case "row":
            return _row(codec, value)
        case "list":
            _check(codec, value, list)
            return _I32(len(value)) + b"".join(_encode(codec.parts[0], item) for item in value)
        case "rowdata" if codec.snapshot is not None:
            row = binary_row_of(codec.snapshot.types, _members(codec, value))
            if row is not None:
                return _frame(row)
    raise CannotEncode(f"values of {codec.kind} are not written here")


_NUMBERS: Final = frozenset({"byte", "short", "int", "long", "float", "double"})


def _check(codec: Codec, value: Any, kind: type) -> None:
    allowed: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise CannotEncode(f"{value!r} is not a valid {codec.kind}")


def _string(codec: Codec, value: Any) -> bytes:
    """As `StringValue` writes it: UTF-16 units after one more than their number, since 0 stands for null."""
    if value is None:
        return b"\0"
    _check(codec, value, str)
    units = value.encode("utf-16-be")
    numbers = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    return b"".join(map(_varint, [len(numbers) + 1, *numbers]))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(codec: Codec, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and value.startswith("0x"):
        return bytes.fromhex(value[2:])
    raise CannotEncode(f"{value!r} is not a valid {codec.kind}: write them as 0x...")


def _frame(data: bytes) -> bytes:
    """Bytes after their length."""
    return _I32(len(data)) + data


def _names(codec: Codec) -> list[str]:
    """The fields of a struct that a value is given for."""
    return [field[0] for field in codec.shape[1] if field[0] != "row_kind"]


def _members(codec: Codec, value: Any) -> Sequence[Any]:
    """The parts of a struct, from a mapping with all of its names, or a list of all."""
    names = _names(codec)
    if isinstance(value, dict):
        if set(value) - {"row_kind"} != set(names):
            raise CannotEncode(f"{value!r} has other fields than {', '.join(names)}")
        return [value[name] for name in names]
    if isinstance(value, list | tuple) and len(value) == len(names):
        return value
    raise CannotEncode(f"{value!r} does not have the fields {', '.join(names)}")


# Flags of `PojoSerializer`: before a value, and before each of its fields.
_NULL: Final = b"\1"
_NOT_NULL: Final = b"\0"
_NO_SUBCLASS: Final = b"\2"


def _pojo(codec: Codec, value: Any) -> bytes:
    if value is None:
        return _NULL
    if codec.snapshot is not None and (codec.snapshot.registered or codec.snapshot.others):
        raise CannotEncode("Pojos with subclasses are not written here")
    if len(_names(codec)) != len(codec.parts):
        raise CannotEncode("Pojos with subclasses are not written here")
    out = [_NO_SUBCLASS]
    for part, item in zip(codec.parts, _members(codec, value), strict=True):
        out.append(_NULL if item is None else _NOT_NULL + _encode(part, item))
    return b"".join(out)


def _row(codec: Codec, value: Any) -> bytes:
    """A mask, a bit a field that is null, and the other fields. Before the fields the mask has two bits for the kind of
    the row, where the row has one; both are 0 for an insertion."""
    items = _members(codec, value)
    kinds = 2 * (len(codec.shape[1]) > len(items))
    if isinstance(value, dict) and value.get("row_kind", "+I") != "+I":
        raise CannotEncode("rows that are not insertions are not written here")
    width = (kinds + len(items) + 7) // 8
    mask = sum(1 << (width * 8 - 1 - kinds - i) for i, item in enumerate(items) if item is None)
    parts = zip(codec.parts, items, strict=True)
    return mask.to_bytes(width, "big") + b"".join(_encode(part, item) for part, item in parts if item is not None)


def _printed(codec: Codec, value: Any) -> Any:
    """A value as it is decoded, in the form in which values are given: structs without the kind of their row."""
    if codec.kind == "row" and value is not None and len(codec.shape[1]) > len(codec.parts):
        value = value[1:]
    if codec.kind in ("tuple", "ttl", "pojo", "row") and value is not None:
        return [_printed(part, item) for part, item in zip(codec.parts, value, strict=True)]
    if codec.kind == "rowdata" and value is not None:
        return list(value)[-len(_names(codec)) :]
    return [_printed(codec.parts[0], item) for item in value] if codec.kind == "list" and value is not None else value


