"""State that Python wrote: types that the user names, for values that Flink keeps as bytes.

PyFlink's state holds byte arrays; which coder wrote them is not stored. `--type NAME=TYPE` says it, in the words of
PyFlink's `Types`: `long`, `string`, `row(long, string)`, `row(id: long, name: string)`, `tuple(..)`, `list(..)`,
`array(..)`, `map(string, long)`. The same words read values of Java state where its serializer is not known. What is
`pickled` stays bytes: nothing is ever unpickled.

Source: PyFlink 2.3.0, `fn_execution/coders.py` and `coder_impl_slow.py`; checked on bytes that they wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from formats.flink.types.composites import list_codec, map_codec, members, struct_codec
from formats.flink.types.rows import timestamp_data
from formats.flink.types.sequences import masked, maybe, read_list
from formats.flink.types.values import Codec, Opaque, frame, plain

_PLAIN: Final = {
    "string": "utf8",
    "char": "utf8",
    "decimal": "utf8",
    "big_dec": "utf8",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "int",
    "integer": "int",
    "long": "long",
    "bigint": "long",
    "big_int": "long",
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "binary": "bytes",
    "date": "days",
    "sql_date": "days",
    "time": "millisofday",
    "sql_time": "millisofday",
    "instant": "instant",
    "local_date": "localdate",
    "local_time": "localtime",
    "local_datetime": "localdatetime",
    "java_string": "string",
    "java_decimal": "bigdec",
}

WORDS: Final = (
    *sorted(_PLAIN), "timestamp", "pickled", "row(..)", "tuple(..)", "list(..)", "array(..)", "map(k, v)",
    "protobuf(FILE, MESSAGE)",
)  # fmt: skip

_MESSAGE_NAME: Final = re.compile(r"[\w.]+")
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[(),:<>])")
_DEEP: Final = 32


def read_type(text: str) -> Codec:
    """The codec that a type's text stands for; ValueError says what is wrong with it."""
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"type {text!r}: {text[at:].strip()[:10]!r} is neither a name nor a sign")
        tokens.append({"<": "(", ">": ")"}.get(token[1], token[1]))
        at = token.end()
    parser = _Parser(tokens, text)
    codec = parser.type(0)
    if parser.tokens:
        raise ValueError(f"type {text!r}: {parser.tokens[0]!r} after its end")
    return codec


class _Parser:
    def __init__(self, tokens: list[str], text: str) -> None:
        self.tokens = tokens
        self.text = text

    def _next(self) -> str:
        if not self.tokens:
            raise ValueError(f"type {self.text!r} ends too early")
        return self.tokens.pop(0)

    def _take(self, sign: str) -> None:
        token = self._next()
        if token != sign:
            raise ValueError(f"type {self.text!r}: {token!r} where {sign!r} is due")

    def type(self, depth: int) -> Codec:
        if depth > _DEEP:
            raise ValueError(f"type {self.text!r} is more than {_DEEP} deep")
        name = self._next().lower()
        kind = _PLAIN.get(name)
        if kind is not None:
            plain_codec = plain(kind)
            assert plain_codec is not None
            return plain_codec
        match name:
            case "timestamp" | "sql_timestamp":
                return Codec("timestampdata", timestamp_data(3), "timestamp_ms", length=8, least=8)
            case "pickled" | "pickle":
                return Codec("pickled", _pickled, "opaque", least=4)
            case "row" | "tuple":
                return self._struct(name, depth)
            case "list" | "primitive_array":
                return list_codec(self._arguments(1, depth)[0])
            case "array" | "basic_array" | "object_array":
                item = self._arguments(1, depth)[0]
                inner = Codec("nullable", maybe(item, present=1), item.shape)
                return Codec("array", read_list(inner), ("list", item.shape), least=4, parts=(item,))
            case "map":
                key, value = self._arguments(2, depth)
                return map_codec(key, value)
        raise ValueError(f"type {self.text!r}: {name!r} is none of {', '.join(WORDS)}")

    def _arguments(self, n: int, depth: int) -> list[Codec]:
        self._take("(")
        arguments = [self.type(depth + 1)]
        while len(arguments) < n:
            self._take(",")
            arguments.append(self.type(depth + 1))
        self._take(")")
        return arguments

    def _struct(self, name: str, depth: int) -> Codec:
        self._take("(")
        names: list[str] = []
        parts: list[Codec] = []
        while True:
            named = len(self.tokens) > 1 and self.tokens[1] == ":"
            names.append(self._next() if named else f"f{len(parts)}")
            if named:
                self._take(":")
            parts.append(self.type(depth + 1))
            sign = self._next()
            if sign == ")":
                break
            if sign != ",":
                raise ValueError(f"type {self.text!r}: {sign!r} where ',' or ')' is due")
        if len(set(names)) != len(names):
            raise ValueError(f"type {self.text!r}: two fields of one name")
        if name == "tuple":
            return struct_codec("tuple", tuple(names), parts)
        shape = ("struct", (("row_kind", "string"), *members(tuple(names), parts)))
        return Codec("row", masked(parts, 2), shape, parts=tuple(parts))


def _pickled(buf: bytes, pos: int) -> tuple[Opaque, int]:
    data, pos = frame(buf, pos)
    return Opaque("pickle", len(data), data), pos


def named_types(texts: dict[str, str]) -> dict[str, Callable[[Codec], Codec]]:
    """State name -> what puts the user's type in the place of the stored bytes; ValueError for a text that is no type.

    The type is that of an element of list state, of the value of other state; of map state it is `map(key, value)`.
    """
    return {name: _named(name, text) for name, text in texts.items()}


def _named(state: str, text: str) -> Callable[[Codec], Codec]:
    message = _message(text)
    if message is not None:
        from formats.flink.types.protobuf import message_type

        return _applied(message_type(*message))
    named = read_type(text)
    apply = _applied(lambda stored: _in_place(stored, named, state))

    def of_map(stored: Codec) -> Codec:
        if stored.kind != "map" or named.kind != "map":
            return apply(stored)
        key, value = stored.parts
        return map_codec(_in_place(key, named.parts[0], state), _in_place(value, named.parts[1], state))

    return of_map


def _message(text: str) -> tuple[str, str] | None:
    """Return the file and the message name of `protobuf(FILE, MESSAGE)`; None for any other text."""
    if not (text.startswith("protobuf(") and text.endswith(")")):
        return None
    file, _, name = (part.strip() for part in text[len("protobuf(") : -1].rpartition(","))
    return (file, name) if file and _MESSAGE_NAME.fullmatch(name) else None


def _applied(put: Callable[[Codec], Codec]) -> Callable[[Codec], Codec]:
    """The same for what holds such values. put: what puts the type in the place of a value."""

    def apply(stored: Codec) -> Codec:
        if stored.kind == "ttl":
            access, value = stored.parts
            return struct_codec("ttl", ("last_access", "value"), [access, apply(value)])
        if stored.kind == "list":
            return list_codec(apply(stored.parts[0]))
        if stored.kind == "map":
            return map_codec(stored.parts[0], apply(stored.parts[1]))
        return put(stored)

    return apply


def _in_place(stored: Codec, named: Codec, state: str) -> Codec:
    """Bytes with a length are read by the named type, to their end; what has none is read by it as it stands."""
    if stored.kind != "bytes":
        return named
    one = named.read

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        data, end = frame(buf, pos)
        value, used = one(data, 0)
        if used != len(data):
            raise ValueError(f"{len(data)} bytes, of which the type named for {state!r} uses {used}")
        return value, end

    return Codec(named.kind, read, named.shape, least=4, parts=named.parts, framed=named)
