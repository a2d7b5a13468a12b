"""Reading one value that Kryo wrote: classes by number and name, objects that come again, arrays.

A class is a varint: 0 null, 1 a class by its name (a varint numbers the names of a value; a new one follows as text),
else 2 + the number that it was registered with. A class that is not a box of a primitive has a varint before its body:
1 says that the body follows, more that it is an object that came before (0: null, where null may be). Registered are
Kryo's own primitives and String from 0, twelve classes of Flink's from 73, and from 85 on what the job registered, in
the order of its snapshot.

Source: `Kryo`, `DefaultClassResolver`, `MapReferenceResolver` of 2.24.0 and 5.6.2; `FlinkChillPackageRegistrar`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from formats.flink.types.kryo.input import NEW, KryoInput
from formats.flink.types.kryo.names import BOXES, ENUMS, FINAL
from formats.flink.types.values import HiddenValue

Body: TypeAlias = "Callable[[Reading], Any]"
"""Reads the body of an object."""

_FIRST: Final = 85
_DEPTH: Final = 200
"""Objects within objects beyond which bytes are no value."""

_PRIMITIVES: Final = (
    "java.lang.Integer",
    "java.lang.String",
    "java.lang.Float",
    "java.lang.Boolean",
    "java.lang.Byte",
    "java.lang.Character",
    "java.lang.Short",
    "java.lang.Long",
    "java.lang.Double",
    "java.lang.Void",
)
_CHILL: Final = (
    "java.util.Arrays$ArrayList",
    "java.util.BitSet",
    "java.util.PriorityQueue",
    "java.util.regex.Pattern",
    "java.sql.Date",
    "java.sql.Time",
    "java.sql.Timestamp",
    "java.net.URI",
    "java.net.InetSocketAddress",
    "java.util.UUID",
    "java.util.Locale",
    "java.text.SimpleDateFormat",
)


class _Pending:
    """An object whose body is being read, should a part of it refer to it."""


class Classes:
    """What the numbers of classes mean in one serializer.

    bodies: what reads the body of a class, by its name.
    registered: classes that the job registered, in order.
    custom: classes with a serializer of the job's own.
    """

    def __init__(
        self, version: int, bodies: Mapping[str, Body], registered: tuple[str, ...], custom: frozenset[str]
    ) -> None:
        self.version = version
        self.bodies = bodies
        self.custom = custom
        # a serializer of the job's own for an interface of the JDK would be used for all that implement it
        self.foreign = any(name.startswith("java.") and name not in bodies for name in custom)
        # the newer Kryo has no number for Void
        self.names: dict[int, str] = dict(enumerate(_PRIMITIVES if version < NEW else _PRIMITIVES[:-1]))
        self.names.update(enumerate(_CHILL, 73))
        numbered = set(self.names.values())
        number = _FIRST
        for name in registered:
            if name not in numbered or name in custom:
                self.names[number] = name
                numbered.add(name)
                number += 1

    def body(self, name: str) -> Body:
        """What reads the body of a class; HiddenValue if only the job can."""
        if self.foreign or name in self.custom:
            raise HiddenValue(f"{name} (KryoSerializer)")
        body = self.bodies.get(name)
        if body is None:
            raise HiddenValue(f"{name} (KryoSerializer)")
        return body


class Reading(KryoInput):
    """One value being read: the classes that it named and the objects that it held so far."""

    __slots__ = ("classes", "depth", "named", "objects")

    def __init__(self, data: bytes, pos: int, classes: Classes) -> None:
        super().__init__(data, pos, classes.version)
        self.classes = classes
        self.named: list[str] = []
        self.objects: list[Any] = []
        self.depth = 0

    def class_name(self) -> str | None:
        """The class that follows, by its name; None for null."""
        number = self.unsigned()
        if number == 0:
            return None
        if number > 1:
            name = self.classes.names.get(number - 2)
            if name is None and number - 2 > max(self.classes.names):
                raise ValueError(f"class {number - 2}, the last that is registered is {max(self.classes.names)}")
            if name is None:  # with Scala on its class path Flink 1.x registers some from 10 to 72
                raise HiddenValue(f"the class that is registered as {number - 2} (KryoSerializer)")
            return name
        number = self.unsigned()
        if number < len(self.named):
            return self.named[number]
        if number > len(self.named):
            raise ValueError(f"class name {number}, there are {len(self.named)}")
        self.named.append(self.words())
        return self.named[-1]

    def any(self) -> Any:
        """A class and its object."""
        name = self.class_name()
        return None if name is None else self.object(name)

    def object(self, name: str, *, nullable: bool = False) -> Any:
        """An object of a class that is known. nullable: whether null may stand here."""
        # never referred back to: only a mark of null stands before them, and that only where null may be
        if name in BOXES or (self.version >= NEW and name in ENUMS):
            if nullable:
                mark = self.unsigned()
                if mark > 1:
                    raise ValueError(f"{mark} where 0 or 1 is due")
                if mark == 0:
                    return None
            return self._body(name)
        mark = self.unsigned()
        if mark == 0:
            if nullable:
                return None
            raise ValueError("null where none may be")
        if mark > 1:
            if mark - 2 >= len(self.objects):
                raise ValueError(f"object {mark - 2}, there are {len(self.objects)}")
            value = self.objects[mark - 2]
            return "(itself)" if value is _Pending else value
        # numbered before its body is read, for parts of it may refer to it
        slot = len(self.objects)
        self.objects.append(_Pending)
        value = self.objects[slot] = self._body(name)
        return value

    def _body(self, name: str) -> Any:
        if self.depth >= _DEPTH:
            raise ValueError(f"objects more than {_DEPTH} deep")
        self.depth += 1
        value = self._array(name) if name.startswith("[") else self.classes.body(name)(self)
        self.depth -= 1
        return value

    def _array(self, name: str) -> Any:
        """A length + 1, and the elements: bare where no other class can stand there."""
        primitive = self.classes.bodies.get(name)
        if primitive is not None:
            return primitive(self)
        item = name[1:]
        if item.startswith("L") and item.endswith(";"):
            item = item[1:-1]
        length = self.unsigned() - 1
        if length < 0:
            return None
        self.check(length)
        # nothing extends these, so no class stands before an element, only its mark
        if item.startswith("[") or item in FINAL:
            return [self.object(item, nullable=True) for _ in range(length)]
        return [self.any() for _ in range(length)]
