"""Serializer snapshots: what Flink writes of the serializers that state was written with.

A snapshot is `UTF class | i32 version | body`, and the body has no length: to read past it, its grammar must be known.
`Snapshot` is the tree of what was read; `codecs.codec` makes a reader of values of it. A class that is not known here
raises `Unknown`, which says where its body begins, so that whoever reads a list of snapshots can look for the next one.

Source: the snapshot classes of Flink 2.3.0 (and of 1.8 to 1.20, which have the same layouts where they have the class).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import msgspec

from formats.errors import Damaged
from formats.flink.bytes import Reader
from formats.flink.java_object import read_value
from formats.flink.types.logical_types import LogicalType, logical_type
from formats.flink.types.serializer_classes import (
    BASE,
    CLASS_ONLY,
    COMPOSITE,
    FLINK,
    JAVA,
    LINKED,
    PYTHON,
    SCALA,
    SIMPLE,
    TABLE,
    VALUES,
)
from formats.flink.types.strings import read_string

_OUTER: Final = 911108
_NESTED: Final = 1333245
_DEPTH: Final = 48


class Snapshot(msgspec.Struct, frozen=True):
    """One serializer.

    kind: this program's word for it (`string`, `tuple`, `pojo`, ...), or `opaque`.
    name: the class of the snapshot.
    about: the class of the values, where the snapshot says it.
    nested: serializers of the parts.
    names: of fields (Pojo) or constants (enum).
    types: SQL types (table serializers).
    number, number2: a scale, a padding, a flag, as the kind needs it.
    registered: subclasses of a Pojo that were registered, in the order of their tags.
    others: its further subclasses.
    text: a schema (Avro).
    numbers: of the constants (Scala's enumerations).
    """

    kind: str
    name: str
    version: int
    about: str | None = None
    nested: tuple[Snapshot, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[LogicalType, ...] = ()
    number: int = 0
    number2: int = 0
    registered: tuple[tuple[str, Snapshot | None], ...] = ()
    others: tuple[tuple[str, Snapshot | None], ...] = ()
    text: str | None = None
    numbers: tuple[int, ...] = ()

    @property
    def short(self) -> str:
        """The serializer as people call it: `TupleSerializer`, `KryoSerializer`, ..."""
        return short_name(self.name)


def labelled_parts(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot | None]]:
    """The serializers within one, each with the way to it: `.field`, `[]`, `.key`."""
    labels: tuple[str, ...]
    match snapshot.kind:
        case "pojo":
            labels = tuple(f".{name}" for name in snapshot.names)
        case "map" | "nullmap":
            labels = (".key", ".value")
        case "list" | "set" | "array" | "traversable":
            labels = ("[]",)
        case "tuple" | "row" | "rowdata":
            labels = tuple(f".f{i}" for i in range(len(snapshot.nested)))
        case _:
            labels = ("",) * len(snapshot.nested)
    yield from zip(labels, snapshot.nested, strict=True)
    for name, part in (*snapshot.registered, *snapshot.others):
        yield f"({name.rpartition('.')[2]})", part


def short_name(name: str) -> str:
    """`StringSerializer` of `org.apache...StringSerializer$StringSerializerSnapshot`."""
    last = name.rpartition(".")[2]
    outer = [part for part in last.split("$") if part]
    if len(outer) > 1 and outer[-1].endswith("Snapshot"):
        outer = outer[:-1]
    return "$".join(outer).removesuffix("Snapshot")


class Unknown(Exception):
    """A snapshot class whose body this program cannot read.

    name: of the class.
    pos: where the body begins.
    """

    def __init__(self, name: str, pos: int) -> None:
        super().__init__(name)
        self.name = name
        self.pos = pos


def read_snapshot(reader: Reader) -> Snapshot:
    """`i32 2 | versioned`, as it stands in the metadata of a state; Unknown, Damaged."""
    at = reader.pos
    version = reader.i32("snapshot format")
    if version != 2:
        message = f"serializer snapshot format {version}, expected 2"
        if version == 1:
            message += " (format 1 is Java-serialised, of Flink before 1.7)"
        reader.fail(message, "snapshot format", at)
    return read_versioned(reader)


def read_versioned(reader: Reader, depth: int = 0) -> Snapshot:
    """`UTF class | i32 version | body`; Unknown for a class whose body cannot be read."""
    if depth > _DEPTH:
        reader.fail(f"serializers more than {_DEPTH} deep", "serializer snapshot")
    name = reader.utf("snapshot class")
    version = reader.i32("snapshot version")
    kind = SIMPLE.get(name)
    if kind is not None:
        return Snapshot(kind, name, version)
    kind = COMPOSITE.get(name)
    if kind is not None:
        return _composite(reader, kind, name, version, depth)
    if name in CLASS_ONLY:
        about = reader.utf("class of the values")
        return Snapshot(VALUES.get(about, "opaque"), name, version, about)
    body = _BODIES.get(name)
    if body is None:
        raise Unknown(name, reader.pos)
    return body(reader, name, version, depth)


def _nested(reader: Reader, depth: int) -> tuple[Snapshot, ...]:
    at = reader.pos
    magic, version = reader.i32("nested snapshots"), reader.i32("nested snapshots")
    if magic != _NESTED or version != 1:
        reader.fail(f"no list of nested snapshots (magic {magic}, version {version})", "nested snapshots", at)
    n = reader.count(6, "nested snapshots")
    return tuple(read_versioned(reader, depth + 1) for _ in range(n))


_ONE: Final = frozenset(
    {"list", "set", "array", "nullable", "same", "element", "bufferentry", "linkedlist", "windowkey", "rawvalue"}
    | {"option", "lockable", "buffernode", "nodeid", "traversable"}
)
_TWO: Final = frozenset({"try", "map", "nullmap", "either", "timer", "ttl", "union", "twophase"})


def _composite(reader: Reader, kind: str, name: str, version: int, depth: int) -> Snapshot:
    at = reader.pos
    if reader.i32("outer snapshot") != _OUTER:
        reader.fail(f"{short_name(name)}: no outer snapshot", "outer snapshot", at)
    outer = reader.i32("outer snapshot version")
    about: str | None = None
    number = 0
    match kind:
        case "tuple" | "array":
            about = reader.utf("class of the values")
        case "traversable":
            reader.utf("what builds the collection")  # Scala, which the job compiles
        case "row":  # Row before 1.11 (outer version 2) has no row kind; from version 4 on a flag says so
            number = 1 if outer == 3 else int(outer > 3 and reader.flag("row kind"))
        case "nullable":
            number = reader.count(0, "padding of null")
        case "linkedlist":
            number = int(reader.flag("null mask"))
        case "same" if name.endswith("ExternalSerializerSnapshot"):
            read_value(reader)
            number = int(reader.flag("internal input"))
        case "nfastate":
            number = int(outer > 1 and reader.flag("previous timestamps"))
        case "twophase":
            number = 1 if outer == 3 else int(outer > 3 and reader.flag("null transactions"))
        case _:
            pass
    nested = _nested(reader, depth)
    due = 1 if kind in _ONE else 2 if kind in _TWO else None
    if due is not None and len(nested) != due:
        reader.fail(f"{short_name(name)} with {len(nested)} nested serializers, expected {due}", "nested snapshots", at)
    return Snapshot(kind, name, version, about, nested, number=number)


# -- snapshots with a body of their own -------------------------------------------------------------------


def _types(reader: Reader, n: int) -> tuple[LogicalType, ...]:
    types = []
    for _ in range(n):
        at = reader.pos
        try:
            types.append(logical_type(read_value(reader)))
        except (ValueError, RecursionError) as error:
            reader.fail(str(error), "logical type", at)
    return tuple(types)


def _row_data(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    n = reader.count(5, "fields of a row")
    types = _types(reader, n)
    nested = _nested(reader, depth)
    if name.startswith(PYTHON):
        if len(nested) != n:
            reader.fail(f"{n} fields and {len(nested)} serializers", "nested snapshots")
        return Snapshot("maskedrow", name, version, nested=nested, types=types)
    return Snapshot("rowdata", name, version, nested=nested, types=types)


def _array_data(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    types = _types(reader, 1)
    read_value(reader)  # the element serializer, Java-serialised; the type says it all
    return Snapshot("pyarray" if name.startswith(PYTHON) else "arraydata", name, version, types=types)


def _map_data(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    types = _types(reader, 2)
    read_value(reader)
    read_value(reader)
    return Snapshot("pymap" if name.startswith(PYTHON) else "mapdata", name, version, types=types)


def _decimal(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    precision, scale = reader.i32("precision"), reader.i32("scale")
    kind = "utf8" if name.startswith(PYTHON) else "decimaldata"
    return Snapshot(kind, name, version, number=precision, number2=scale)


def _timestamp(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    return Snapshot("timestampdata", name, version, number=reader.i32("precision"))


def _binary_row(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    return Snapshot("binaryrow", name, version, number=reader.i32("number of fields"))


def _row_data_key(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    for field in ("equaliser", "hash function"):
        reader.take(reader.i32(field), field)
    return Snapshot("same", name, version, nested=(read_versioned(reader, depth + 1),))


def _sorted_map(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    read_value(reader)  # the comparator
    nested = _nested(reader, depth)
    if len(nested) != 2:
        reader.fail(f"a map with {len(nested)} nested serializers", "nested snapshots")
    return Snapshot("map", name, version, nested=nested)


def _ttl_aware(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    enabled = reader.flag("time to live")
    return Snapshot("same", name, version, nested=(read_versioned(reader, depth + 1),), number=int(enabled))


def _enum(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    about = reader.utf("enum class")
    n = reader.count(2, "enum constants")
    return Snapshot("enum", name, version, about, names=tuple(reader.utf("enum constant") for _ in range(n)))


def _optional_map(reader: Reader, title: str) -> list[tuple[str, bytes | None]]:
    """`LinkedOptionalMap`: names, and bytes where Flink could write the key and the value."""
    reader.i64(f"{title}: magic")
    entries = []
    for _ in range(reader.count(4, title)):
        name = reader.utf(f"{title}: name")
        if reader.flag(f"{title}: has a key"):
            reader.take(reader.i32(title), title)
        value = reader.take(reader.i32(title), title) if reader.flag(f"{title}: has a value") else None
        entries.append((name, value))
    return entries


def _inner(reader: Reader, data: bytes | None, depth: int) -> Snapshot | None:
    """A snapshot in a frame; of an unknown class it is opaque, and its frame says where it ends."""
    if data is None:
        return None
    inside = Reader(data, reader.path)
    inside.kryo = reader.kryo
    inside.place = [*reader.place, "in a frame"]
    try:
        snapshot = read_versioned(inside, depth + 1)
    except Unknown as unknown:
        return Snapshot("opaque", unknown.name, 0)
    return snapshot if inside.left == 0 else Snapshot("opaque", snapshot.name, snapshot.version, snapshot.about)


def _scala_enum(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    """An `Enumeration`: constants with numbers of their own, which are what is written."""
    about = reader.utf("class of the values")
    n = reader.count(6, "constants")
    constants = [(reader.utf("constant"), reader.i32("number of a constant")) for _ in range(n)]
    return Snapshot(
        "scalaenum", name, version, about, names=tuple(text for text, _ in constants),
        numbers=tuple(number for _, number in constants),
    )  # fmt: skip


def _pojo(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    about = reader.utf("Pojo class")
    fields = _optional_map(reader, "Pojo fields")
    registered = _optional_map(reader, "registered subclasses")
    others = _optional_map(reader, "other subclasses")
    lost = Snapshot("opaque", "", 0, "a field without a serializer")
    return Snapshot(
        "pojo",
        name,
        version,
        about,
        nested=tuple(_inner(reader, value, depth) or lost for _, value in fields),
        names=tuple(field for field, _ in fields),
        registered=tuple((cls, _inner(reader, value, depth)) for cls, value in registered),
        others=tuple((cls, _inner(reader, value, depth)) for cls, value in others),
    )


def _kryo(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    """number: the version of Kryo; names: the classes that were registered, in order; others: those with a serializer
    of the job's own."""
    about = reader.utf("class of the values")
    registered = _optional_map(reader, "Kryo registrations")
    custom = [cls for cls, value in registered if value is None or not _plainly(value, reader)]
    for section in ("default Kryo serializers", "default Kryo serializer classes"):
        custom += [cls for cls, _ in _optional_map(reader, section)]
    return Snapshot(
        "kryo",
        name,
        version,
        about,
        names=tuple(cls for cls, _ in registered),
        others=tuple((cls, None) for cls in custom),
        number=reader.kryo,
    )


def _plainly(value: bytes, reader: Reader) -> bool:
    """Whether a class was registered without a serializer: `UTF class | i32 0`."""
    inside = Reader(value, reader.path)
    inside.utf("registered class")
    return inside.i32("kind of registration") == 0


def _avro(reader: Reader, name: str, version: int, depth: int) -> Snapshot:
    about: str | None = None
    if version == 3:
        about, schema = _string(reader, "class of the values"), _string(reader, "Avro schema")
    elif version == 2:
        about, schema = reader.utf("class of the values"), reader.utf("Avro schema")
    elif version == 1:
        schema = reader.utf("Avro schema")
    else:
        raise Unknown(name, reader.pos)
    return Snapshot("avro", name, version, about, text=schema)


def _string(reader: Reader, field: str) -> str:
    at = reader.pos
    try:
        text, reader.pos = read_string(reader.data, at)
    except (IndexError, ValueError) as error:
        reader.fail(f"{field}: {error}", field, at)
    if text is None or reader.pos > reader.end:
        reader.fail(f"{field} ends too early", field, at)
    return text


_BODIES: Final[dict[str, Callable[[Reader, str, int, int], Snapshot]]] = {
    f"{BASE}EnumSerializer$EnumSerializerSnapshot": _enum,
    f"{SCALA}ScalaEnumSerializerSnapshot": _scala_enum,
    f"{JAVA}PojoSerializerSnapshot": _pojo,
    f"{JAVA}kryo.KryoSerializerSnapshot": _kryo,
    f"{FLINK}runtime.state.ttl.TtlAwareSerializerSnapshot": _ttl_aware,
    f"{FLINK}formats.avro.typeutils.AvroSerializerSnapshot": _avro,
    f"{TABLE}RowDataSerializer$RowDataSerializerSnapshot": _row_data,
    f"{PYTHON}RowDataSerializer$RowDataSerializerSnapshot": _row_data,
    f"{TABLE}ArrayDataSerializer$ArrayDataSerializerSnapshot": _array_data,
    f"{PYTHON}ArrayDataSerializer$ArrayDataSerializerSnapshot": _array_data,
    f"{TABLE}MapDataSerializer$MapDataSerializerSnapshot": _map_data,
    f"{PYTHON}MapDataSerializer$BaseMapSerializerSnapshot": _map_data,
    f"{TABLE}DecimalDataSerializer$DecimalSerializerSnapshot": _decimal,
    f"{PYTHON}DecimalDataSerializer$DecimalSerializerSnapshot": _decimal,
    f"{TABLE}TimestampDataSerializer$TimestampDataSerializerSnapshot": _timestamp,
    f"{PYTHON}TimestampSerializer$TimestampSerializerSnapshot": _timestamp,
    f"{TABLE}BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot": _binary_row,
    f"{TABLE}SortedMapSerializerSnapshot": _sorted_map,
    f"{LINKED}RowDataKeySerializerSnapshot": _row_data_key,
}


def refuse(reader: Reader, unknown: Unknown) -> NoReturn:
    """Turn an unknown class into an error, where nothing can be read without it."""
    raise Damaged(
        f"serializer {unknown.name} is not known (offset {unknown.pos}), so what follows it cannot be found",
        path=reader.path,
    )


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """The tree as plain values, for `raw` views."""
    out: dict[str, Any] = {"serializer": snapshot.short}
    if snapshot.about:
        out["class"] = snapshot.about
    if snapshot.types:
        out["types"] = [str(kind) for kind in snapshot.types]
    if snapshot.names:
        out["names"] = list(snapshot.names)
    if snapshot.nested:
        out["nested"] = [describe(part) for part in snapshot.nested]
    return out
