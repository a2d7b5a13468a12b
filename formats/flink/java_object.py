"""Java's object serialisation, read as plain values: no class is loaded, nothing is run.

Just what Flink writes: one object with its classes, strings, enums, arrays and references. A class that writes itself
(`writeObject`) is read as its fields and its annotations, in order. The reader stops after the one value, so it can be
used in the middle of a stream. Source: Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from formats.flink.bytes import Reader

STREAM_MAGIC: Final = b"\xac\xed\x00\x05"
_BASE: Final = 0x7E0000
_DEPTH: Final = 64

_NULL, _REFERENCE, _CLASSDESC, _OBJECT, _STRING, _ARRAY, _CLASS, _BLOCK, _END = range(0x70, 0x79)
_RESET, _BLOCK_LONG, _EXCEPTION, _STRING_LONG, _PROXY, _ENUM = range(0x79, 0x7F)
_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _BLOCK_DATA, _IS_ENUM = 1, 2, 4, 8, 16

_PRIMITIVES: Final = {"B": ">b", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "C": ">H", "Z": ">?"}


class JavaEnum(msgspec.Struct, frozen=True):
    """A constant of an enum."""

    class_name: str
    constant: str


class JavaClass(msgspec.Struct):
    """A class as the stream describes it.

    fields: (type code, name).
    parent: its serialisable superclass.
    """

    name: str
    uid: int
    flags: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    parent: JavaClass | None = None

    def line(self) -> list[JavaClass]:
        """This class and its superclasses, the highest first: the order of the data."""
        classes: list[JavaClass] = []
        at: JavaClass | None = self
        while at is not None:
            classes.append(at)
            at = at.parent
        return classes[::-1]


class JavaObject(msgspec.Struct):
    """An object.

    fields: of all its classes, by name.
    extra: what its classes wrote themselves, in order.
    """

    class_name: str
    fields: dict[str, Any]
    extra: list[Any]


def read_value(reader: Reader, *, magic: bool = True) -> Any:
    """One value: None, str, JavaObject, JavaEnum, JavaClass or a list (an array). Damaged if it is none.

    magic: whether the four bytes of a stream's beginning come first.
    """
    at = reader.pos
    if magic and reader.take(4, "Java stream magic") != STREAM_MAGIC:
        raise reader.error("no Java object stream", "Java stream magic", at)
    return _Stream(reader).value(0)


class _Stream:
    """References count from 0 in the order in which things are first met."""

    def __init__(self, reader: Reader) -> None:
        self.r = reader
        self.handles: list[Any] = []
        self.kinds: dict[int, Callable[[int], Any]] = {
            _NULL: lambda _: None,
            _REFERENCE: self._reference,
            _CLASSDESC: self._class_desc,
            _OBJECT: self._object,
            _STRING: self._string,
            _STRING_LONG: self._string_long,
            _ARRAY: self._array,
            _CLASS: self._class,
            _ENUM: self._enum,
        }

    def value(self, depth: int) -> Any:
        return self._tagged(self.r.u8("Java type"), depth)

    def _tagged(self, tag: int, depth: int) -> Any:
        kind = self.kinds.get(tag)
        if kind is None:
            raise self.r.error(f"Java type 0x{tag:02x}, which is none that Flink writes", "Java type", self.r.pos - 1)
        if depth > _DEPTH:
            raise self.r.error(f"Java objects more than {_DEPTH} deep", "Java object")
        return kind(depth + 1)

    def _reference(self, _: int) -> Any:
        number = self.r.i32("Java reference") - _BASE
        count = len(self.handles)
        if not 0 <= number < count:
            raise self.r.error(f"a reference to value {number} of {count}", "Java reference", self.r.pos - 4)
        return self.handles[number]

    def _class_of(self, depth: int) -> JavaClass | None:
        at = self.r.pos
        java_class = self.value(depth)
        if java_class is not None and not isinstance(java_class, JavaClass):
            raise self.r.error("a value where a class is due", "Java class", at)
        return java_class

    def _class_desc(self, depth: int) -> JavaClass:
        java_class = JavaClass(self.r.utf("Java class name"), self.r.i64("serialVersionUID"))
        # numbered before its fields are read, as Java does: what they refer to is counted from here
        self.handles.append(java_class)
        java_class.flags = self.r.u8("Java class flags")
        fields = []
        for _ in range(self.r.u16("Java field count")):
            code, name = chr(self.r.u8("Java field type")), self.r.utf("Java field name")
            if code in "[L":
                self.value(depth)  # the type's name, which nobody needs
            elif code not in _PRIMITIVES:
                raise self.r.error(f"a field of type {code!r}", "Java field type")
            fields.append((code, name))
        java_class.fields = tuple(fields)
        self._annotations(depth)
        parent = self._class_of(depth)
        if parent is not None and any(part is java_class for part in parent.line()):
            raise self.r.error(f"class {java_class.name} above itself", "Java class")
        java_class.parent = parent
        return java_class

    def _annotations(self, depth: int) -> list[Any]:
        annotations: list[Any] = []
        while True:
            tag = self.r.u8("Java annotation")
            if tag == _END:
                return annotations
            if tag == _BLOCK:
                annotations.append(self.r.take(self.r.u8("Java block length"), "Java block"))
            elif tag == _BLOCK_LONG:
                annotations.append(self.r.take(self.r.i32("Java block length"), "Java block"))
            else:
                annotations.append(self._tagged(tag, depth))

    def _field(self, code: str, depth: int) -> Any:
        if code in "[L":
            return self.value(depth)
        form = _PRIMITIVES[code]
        return struct.unpack(form, self.r.take(struct.calcsize(form), "Java field"))[0]

    def _object(self, depth: int) -> JavaObject:
        kind = self._class_of(depth)
        if kind is None:
            raise self.r.error("an object without a class", "Java object")
        instance = JavaObject(kind.name, {}, [])
        self.handles.append(instance)
        for part in kind.line():
            if part.flags & _SERIALIZABLE:
                for code, name in part.fields:
                    instance.fields[name] = self._field(code, depth)
                if part.flags & _WRITE_METHOD:
                    instance.extra += self._annotations(depth)
            elif part.flags & _EXTERNALIZABLE and part.flags & _BLOCK_DATA:
                instance.extra += self._annotations(depth)
            else:
                raise self.r.error(f"class {part.name} writes itself in a way that cannot be skipped", "Java object")
        return instance

    def _text(self, length: int) -> str:
        text = self.r.text(length, "Java string")
        self.handles.append(text)
        return text

    def _string(self, _: int) -> str:
        return self._text(self.r.u16("Java string"))

    def _string_long(self, _: int) -> str:
        return self._text(self.r.i64("Java string"))

    def _array(self, depth: int) -> list[Any]:
        kind = self._class_of(depth)
        if kind is None or not kind.name.startswith("[") or kind.name[1:2] not in {"L", "[", *_PRIMITIVES}:
            raise self.r.error("an array of no type", "Java array")
        items: list[Any] = []
        self.handles.append(items)
        code = kind.name[1]
        width = 1 if code in "[L" else struct.calcsize(_PRIMITIVES[code])
        for _ in range(self.r.count(width, "Java array length")):
            items.append(self._field(code, depth))
        return items

    def _class(self, depth: int) -> JavaClass | None:
        java_class = self._class_of(depth)
        self.handles.append(java_class)
        return java_class

    def _enum(self, depth: int) -> JavaEnum:
        kind = self._class_of(depth)
        place = len(self.handles)
        # a place for it: the text of its constant is numbered after it
        self.handles.append(None)
        constant = self.value(depth)
        if kind is None or not isinstance(constant, str):
            raise self.r.error("an enum without a constant", "Java enum")
        java_enum = JavaEnum(kind.name, constant)
        self.handles[place] = java_enum
        return java_enum
