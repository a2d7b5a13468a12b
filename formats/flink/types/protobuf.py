"""Messages of Protocol Buffers, by a descriptor that the user gives: `--type STATE=protobuf(FILE, package.Message)`.

FILE is a FileDescriptorSet, as `protoc --descriptor_set_out=FILE --include_imports` writes it. Flink has no serializer
of its own for messages: a job keeps them as bytes, or Kryo writes them with a serializer that was registered for them,
which puts the length (a varint) before the message, as those that Flink's documentation names do.

What a message does not hold is null where its absence means something (`optional`, a oneof, messages, all of proto2),
else the default. A message within itself is JSON: Arrow has no such type. Fields that the descriptor does not name are
left out.
Source: the public pages on the encoding and on descriptor.proto.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from formats.bounds import read_user_file
from formats.codec.protobuf import Form, fields
from formats.codec.varint import read_varint, zigzag
from formats.errors import Damaged, FormatError
from formats.flink.types.kryo.bodies import BODIES
from formats.flink.types.kryo.reading import Classes, Reading
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import Codec, HiddenValue, Shape, frame

MOST: Final = 64 << 20
"""Bytes of descriptors that are read."""

_DOUBLE, _FLOAT, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _ENUM = 1, 2, 8, 9, 10, 11, 12, 14
_WHOLE: Final[dict[int, tuple[str, Shape]]] = {
    3: ("int", "int64"), 4: ("uint", "uint64"), 5: ("int", "int32"), 13: ("uint", "uint32"), 17: ("zigzag", "int32"),
    18: ("zigzag", "int64"), 6: ("<Q", "uint64"), 7: ("<I", "uint32"), 15: ("<i", "int32"), 16: ("<q", "int64"),
    _DOUBLE: ("<d", "float64"), _FLOAT: ("<f", "float32"), _BOOL: ("bool", "bool"),
}  # fmt: skip
"""Numbers of descriptor.proto's types, how each is read, and its shape."""
_BITS: Final = {"int32": 32, "uint32": 32}


class Field(msgspec.Struct, frozen=True):
    """One field of a message.

    type: its number in descriptor.proto; of: the full name of a message or enumeration.
    explicit: that it is not there means something.
    """

    name: str
    number: int
    type: int
    of: str
    repeated: bool
    explicit: bool


class MessageType(msgspec.Struct, frozen=True):
    """A message. entry: of a map, which is what holds such messages."""

    name: str
    fields: tuple[Field, ...]
    entry: bool


class Descriptors(msgspec.Struct, frozen=True):
    """All messages and enumerations of a file, by full name."""

    messages: dict[str, MessageType]
    enums: dict[str, dict[int, str]]


# -- descriptors ------------------------------------------------------------------------------------------

_Raw = dict[int, list[Any]]


def _raw(data: bytes, path: str | None) -> _Raw:
    by_number: _Raw = {}
    for number, _, value in fields(data, path):
        by_number.setdefault(number, []).append(value)
    return by_number


def _text(raw: _Raw, number: int) -> str:
    values = raw.get(number)
    return values[-1].decode() if values else ""


def read_descriptors(path: str) -> Descriptors:
    """The types in a FileDescriptorSet. FormatError."""
    data = read_user_file(path, MOST, hint="protoc --include_imports --descriptor_set_out=FILE writes one")
    found = Descriptors({}, {})
    try:
        for file in _raw(data, path).get(1, ()):
            raw = _raw(file, path)
            package, proto3 = _text(raw, 2), _text(raw, 12) == "proto3"
            _collect(raw.get(4, ()), raw.get(5, ()), package, proto3, found, path)
    except (Damaged, KeyError, AttributeError, UnicodeDecodeError, TypeError, IndexError, RecursionError):
        raise FormatError("is not a FileDescriptorSet", path=path) from None
    if not found.messages:
        raise FormatError("is not a FileDescriptorSet: it has no message", path=path)
    return found


def _collect(messages: Any, enums: Any, scope: str, proto3: bool, found: Descriptors, path: str) -> None:
    """Messages and enumerations that stand in a file or in a message. scope: its full name."""
    for data in enums:
        raw = _raw(data, path)
        constants = [_raw(value, path) for value in raw.get(2, ())]
        names = {_signed(one.get(2, [0])[-1]): _text(one, 1) for one in reversed(constants)}
        found.enums[_joined(scope, _text(raw, 1))] = names
    for data in messages:
        raw = _raw(data, path)
        name = _joined(scope, _text(raw, 1))
        entry = any(_raw(options, path).get(7, [0])[-1] for options in raw.get(7, ()))
        own = tuple(_field(_raw(one, path), proto3) for one in raw.get(2, ()))
        found.messages[name] = MessageType(name, own, bool(entry))
        _collect(raw.get(3, ()), raw.get(4, ()), name, proto3, found, path)


def _field(raw: _Raw, proto3: bool) -> Field:
    number, kind = raw[3][-1], raw.get(5, [0])[-1]
    repeated = raw.get(4, [1])[-1] == 3
    explicit = not proto3 or 9 in raw or bool(raw.get(17, [0])[-1]) or kind == _MESSAGE
    return Field(_text(raw, 1), number, kind, _text(raw, 6).lstrip("."), repeated, explicit)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _signed(number: int, bits: int = 32) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


# -- values -----------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """How values of one field are read.

    one: from what the wire has to the value.
    form: what stands for it on the wire; default: where nothing does.
    plain: from a value to what JSON has for it.
    """

    one: Callable[[Any], Any]
    form: Form
    shape: Shape
    default: Any
    plain: Callable[[Any], Any]


class _Message(NamedTuple):
    """read: from the bytes of a message to its value."""

    read: Callable[[bytes], Any]
    shape: Shape
    plain: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


class _Messages:
    """Makes the readers of messages; one within itself is looked up in `_made`."""

    def __init__(self, types: Descriptors) -> None:
        self._types = types
        self._open: set[str] = set()
        self._made: dict[str, _Message] = {}

    def message(self, name: str) -> _Message:
        """The reader of a message. KeyError if a type that it needs is not there."""
        kind = self._types.messages[name]
        self._open.add(name)
        parts = [(field, self._part(field)) for field in kind.fields]
        self._open.discard(name)
        by_number = {field.number: (place, field, part) for place, (field, part) in enumerate(parts)}

        def read(data: bytes) -> tuple[Any, ...]:
            values: list[Any] = [
                [] if field.repeated else None if field.explicit else part.default for field, part in parts
            ]
            for number, form, raw in fields(data):
                if number not in by_number:
                    continue
                place, field, part = by_number[number]
                if field.repeated and isinstance(raw, bytes) and form is Form.BYTES is not part.form:
                    values[place] += [part.one(item) for item in _packed(raw, part.form)]
                elif form is not part.form:
                    raise ValueError(f"field {field.name} is a {form.name}, not a {part.form.name}")
                elif field.repeated:
                    values[place].append(part.one(raw))
                else:
                    values[place] = part.one(raw)
            return tuple(values)

        def plain(value: tuple[Any, ...]) -> dict[str, Any]:
            out: dict[str, Any] = {}
            for (field, part), one in zip(parts, value, strict=True):
                if field.repeated and self._entry(field) is not None:
                    out[field.name] = {
                        str(key): None if item is None else part.plain((key, item)) for key, item in one
                    }
                elif field.repeated:
                    out[field.name] = [part.plain(item) for item in one]
                else:
                    out[field.name] = None if one is None else part.plain(one)
            return out

        self._made[name] = _Message(read, ("struct", tuple((f.name, self._shape(f, p)) for f, p in parts)), plain)
        return self._made[name]

    def _shape(self, field: Field, part: _Part) -> Shape:
        if field.repeated and self._entry(field) is not None:
            return part.shape
        return ("list", part.shape) if field.repeated else part.shape

    def _entry(self, field: Field) -> MessageType | None:
        kind = self._types.messages.get(field.of) if field.type == _MESSAGE else None
        return kind if kind is not None and kind.entry else None

    def _part(self, field: Field) -> _Part:
        entry = self._entry(field)
        if entry is not None:
            return self._map(entry)
        match field.type:
            case 9:
                return _Part(lambda raw: raw.decode(), Form.BYTES, "string", "", _same)
            case 12:
                return _Part(_same, Form.BYTES, "binary", b"", bytes.hex)
            case 14:
                names = self._types.enums[field.of]
                return _Part(
                    lambda raw: names.get(_signed(raw), str(_signed(raw))), Form.VARINT, "string", names.get(0), _same
                )
            case 11:
                return self._nested(field.of)
        if field.type not in _WHOLE:
            raise KeyError(f"field {field.name} is of a type that is not read ({field.type})")
        how, shape = _WHOLE[field.type]
        bits = _BITS.get(str(shape), 64)
        match how:
            case "int":
                return _Part(lambda raw: _signed(raw, bits), Form.VARINT, shape, 0, _same)
            case "uint":
                return _Part(lambda raw: raw & (1 << bits) - 1, Form.VARINT, shape, 0, _same)
            case "zigzag":
                return _Part(zigzag, Form.VARINT, shape, 0, _same)
            case "bool":
                return _Part(bool, Form.VARINT, shape, False, _same)
        layout = struct.Struct(how)
        form = Form.FIXED64 if layout.size == 8 else Form.FIXED32
        return _Part(lambda raw: layout.unpack(raw)[0], form, shape, layout.unpack(bytes(layout.size))[0], _same)

    def _map(self, entry: MessageType) -> _Part:
        """Entries are messages of a key, 1, and a value, 2; what is not there is the default."""
        key, value = (self._part(field) for field in sorted(entry.fields, key=lambda field: field.number))

        def one(data: bytes) -> tuple[Any, Any]:
            own = {1: key.default, 2: value.default}
            for number, form, raw in fields(data):
                part = {1: key, 2: value}.get(number)
                if part is not None and form is part.form:
                    own[number] = part.one(raw)
            return own[1], own[2]

        return _Part(one, Form.BYTES, ("map", key.shape, value.shape), None, lambda pair: value.plain(pair[1]))

    def _nested(self, name: str) -> _Part:
        if name not in self._open:
            message = self.message(name)
            return _Part(message.read, Form.BYTES, message.shape, None, message.plain)

        def one(data: bytes) -> str:
            whole = self._made[name]
            return json.dumps(whole.plain(whole.read(data)), ensure_ascii=False)

        return _Part(one, Form.BYTES, "string", None, json.loads)


def _packed(data: bytes, form: Form) -> list[Any]:
    """The numbers of a repeated field that stand one after the other."""
    if form is not Form.VARINT:
        size = 8 if form is Form.FIXED64 else 4
        if len(data) % size:
            raise ValueError(f"{len(data)} bytes of numbers of {size}")
        return [data[i : i + size] for i in range(0, len(data), size)]
    numbers, pos = [], 0
    while pos < len(data):
        number, pos = read_varint(data, pos)
        numbers.append(number)
    return numbers


# -- in the place of stored values ------------------------------------------------------------------------


def message_type(file: str, name: str) -> Callable[[Codec], Codec]:
    """What puts a message in the place of values that are stored as bytes or by Kryo. FormatError."""
    types = read_descriptors(file)
    if name not in types.messages:
        known = ", ".join(sorted(types.messages)[:8])
        raise FormatError(f"has no message {name}; it has {known}", path=file)
    try:
        message = _Messages(types).message(name)
    except KeyError as error:
        raise FormatError(f"{name}: {error.args[0]} is not in it", path=file, hint="protoc --include_imports") from None

    def decoded(data: bytes) -> Any:
        try:
            return message.read(data)
        except Damaged as error:
            raise ValueError(error.message) from None

    def apply(stored: Codec) -> Codec:
        snapshot = stored.snapshot
        if snapshot is not None and snapshot.kind == "kryo":
            return Codec("protobuf", _by_kryo(snapshot, decoded), message.shape, snapshot=snapshot)
        if stored.kind != "bytes":
            return stored

        def read(buf: bytes, pos: int) -> tuple[Any, int]:
            data, pos = frame(buf, pos)
            return decoded(data), pos

        return Codec("protobuf", read, message.shape, least=4, snapshot=snapshot)

    return apply


def _by_kryo(snapshot: Snapshot, decoded: Callable[[bytes], Any]) -> Callable[[bytes, int], tuple[Any, int]]:
    """Kryo's class and its mark of a new object, then the length and the message."""
    classes = Classes(snapshot.number, BODIES[snapshot.number], snapshot.names, frozenset())

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        reading = Reading(buf, pos, classes)
        if reading.class_name() is None:
            return None, reading.pos
        if (mark := reading.unsigned()) != 1:
            raise ValueError(f"{mark} where 1, a new object, is due")
        length = reading.unsigned()
        end = reading.pos + length
        if end > len(buf):
            raise HiddenValue(f"{snapshot.about} (KryoSerializer)")
        return decoded(buf[reading.pos : end]), end

    return read
