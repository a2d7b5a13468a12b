"""Codecs made of other codecs: structs, lists, maps, timers."""

from __future__ import annotations

import struct
from typing import Any, Final

from formats.flink.types.sequences import read_list, read_pairs, sequence
from formats.flink.types.values import Codec, Shape

_U64: Final = struct.Struct(">Q").unpack_from


def members(names: tuple[str, ...], codecs: list[Codec]) -> tuple[tuple[str, Shape], ...]:
    return tuple((name, part.shape) for name, part in zip(names, codecs, strict=True))


def fields(names: tuple[str, ...], codecs: list[Codec]) -> Shape:
    return ("struct", members(names, codecs))


def struct_codec(kind: str, names: tuple[str, ...], parts: list[Codec]) -> Codec:
    """Values one after the other."""
    length = -1 if any(part.length < 0 for part in parts) else sum(part.length for part in parts)
    least = sum(part.least for part in parts)
    return Codec(kind, sequence(parts), fields(names, parts), length=length, least=least, parts=tuple(parts))


def list_codec(item: Codec) -> Codec:
    return Codec("list", read_list(item), ("list", item.shape), least=4, parts=(item,))


def map_codec(key: Codec, value: Codec) -> Codec:
    return Codec("map", read_pairs(key, value), ("map", key.shape, value.shape), least=4, parts=(key, value))


def timer_codec(key: Codec, namespace: Codec) -> Codec:
    """i64 timestamp with its sign bit turned, key, namespace."""
    read_key, read_namespace = key.read, namespace.read

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        at = _U64(buf, pos)[0] - (1 << 63)
        k, pos = read_key(buf, pos + 8)
        n, pos = read_namespace(buf, pos)
        return (at, k, n), pos

    names = (("timestamp", "int64"), ("key", key.shape), ("namespace", namespace.shape))
    return Codec("timer", read, ("struct", names), least=8, parts=(key, namespace))
