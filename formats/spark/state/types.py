"""Spark SQL's types as its JSON schemas name them, and the Arrow types that stand for them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.errors import Damaged, UnsupportedVersion

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST = 64
"""Types nested deeper than this are refused."""

WIDTHS = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4, "year-month": 4, "long": 8}
WIDTHS |= {"double": 8, "timestamp": 8, "timestamp_ntz": 8, "day-time": 8, "time": 8, "void": 8}
"""Bytes of the types that lie in the slot itself; decimals of up to 18 digits take 8 as well."""


@dataclass(frozen=True, slots=True)
class Type:
    """One type.

    kind: a word of `WIDTHS`, or `string`, `binary`, `decimal`, `interval`, `variant`, `struct`, `array`, `map`.
    fields: of a struct; `element` of an array; `key` and `value` of a map.
    precision: digits of a decimal.
    scale: those of them behind its point.
    """

    kind: str
    fields: tuple[Field, ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def width(self) -> int | None:
        """Bytes that a value takes in its slot; None where the slot points to it."""
        if self.kind == "decimal":
            return 8 if self.precision <= 18 else None
        return WIDTHS.get(self.kind)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a struct."""

    name: str
    type: Type


def struct(*fields: Field) -> Type:
    """A struct of these fields."""
    return Type("struct", fields)


def struct_of(text: str, path: str) -> Type:
    """The struct that a JSON schema describes; Damaged, or UnsupportedVersion for a type that is not known here."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged("its schema is not JSON", path=path) from None
    top = _type(parsed, path, 0)
    if top.kind != "struct":
        raise Damaged(f"its schema is of type {top.kind}, not struct", path=path)
    return top


_NAMED = re.compile(
    r"decimal\((-?\d{1,2}),(-?\d{1,3})\)|(string|varchar|char|time)\b.*"
    r"|interval (year|month|day|hour|minute|second)\b.*"
)


def _type(schema: Any, path: str, depth: int) -> Type:
    if depth > DEEPEST:
        raise Damaged(f"its schema nests types deeper than {DEEPEST}", path=path)
    if isinstance(schema, str):
        return _atomic(schema, path)
    if not isinstance(schema, dict):
        raise Damaged("its schema has a type that is neither name nor object", path=path)
    kind = schema.get("type")
    if kind == "struct":
        return struct(*(_field(field, path, depth) for field in _list(schema.get("fields"), path)))
    if kind == "array":
        return Type("array", (Field("element", _type(schema.get("elementType"), path, depth + 1)),))
    if kind == "map":
        key, value = (_type(schema.get(part), path, depth + 1) for part in ("keyType", "valueType"))
        return Type("map", (Field("key", key), Field("value", value)))
    if kind == "udt":
        return _type(schema.get("sqlType"), path, depth + 1)
    raise UnsupportedVersion(f"a column has type {kind!r}, which is not known here", path=path)


def _field(schema: Any, path: str, depth: int) -> Field:
    name = schema.get("name") if isinstance(schema, dict) else None
    if not isinstance(name, str):
        raise Damaged("its schema has a column without a name", path=path)
    return Field(name, _type(schema.get("type"), path, depth + 1))


def _list(fields: Any, path: str) -> list[Any]:
    if not isinstance(fields, list):
        raise Damaged("its schema has a struct without columns", path=path)
    return fields


def _atomic(name: str, path: str) -> Type:
    if name in WIDTHS or name in ("string", "binary", "interval", "variant"):
        return Type(name)
    if name in ("null", "calendarinterval"):
        return Type("void" if name == "null" else "interval")
    match = _NAMED.fullmatch(name)
    if match is None:
        if name == "decimal":
            return Type("decimal", precision=10)
        raise UnsupportedVersion(f"a column has type {name!r}, which is not known here", path=path)
    if match[1] is not None:
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= 38 or not -38 <= scale <= 38:
            raise Damaged(f"a column has type {name}", path=path)
        return Type("decimal", precision=precision, scale=scale)
    if match[3] is not None:
        return Type("time" if match[3] == "time" else "string")
    return Type("year-month" if match[4] in ("year", "month") else "day-time")


def arrow_type(of: Type) -> pa.DataType:
    """The Arrow type of a Spark type. Year-month intervals are months in an int32; variants are two binaries."""
    import pyarrow as pa

    simple = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "year-month": pa.int32(),
        "day-time": pa.duration("us"),
        "time": pa.time64("ns"),
        "void": pa.null(),
        "string": pa.large_string(),
        "binary": pa.large_binary(),
        "interval": pa.month_day_nano_interval(),
        "variant": pa.struct([("value", pa.large_binary()), ("metadata", pa.large_binary())]),
    }
    if of.kind == "decimal":
        return pa.decimal128(of.precision, of.scale)
    if of.kind == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in of.fields])
    if of.kind == "array":
        return pa.large_list(arrow_type(of.fields[0].type))
    if of.kind == "map":
        return pa.map_(arrow_type(of.fields[0].type), arrow_type(of.fields[1].type))
    return simple[of.kind]
