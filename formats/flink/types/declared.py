"""The classes of a job as its next version declares them: from a file, to be held against the snapshot's serializers.

    version: 1
    classes:
      shop.Order: {id: long, user: string, items: "list<shop.Item>", tags: "map<string, long>"}
    rows:
      last-row: [long, string]                    # of the state of this name, a Row or a row of SQL, by position
    ttl:
      count: true                                 # the state of this name has a TTL; false: it has none

or a schema of Avro (`.avsc`), or a list of them.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from formats.bounds import read_user_file
from formats.errors import FormatError
from formats.flink.types.avro_schema import AvroSchema
from formats.flink.types.serializers import Snapshot
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Scalar, Sequence, Spot, read_nodes

VERSION: Final = 1
MAX_BYTES: Final = 16 << 20

_WORDS: Final = {
    "java.lang.String": "string", "java.lang.Long": "long", "java.lang.Integer": "int", "integer": "int",
    "java.lang.Short": "short", "java.lang.Byte": "byte", "java.lang.Boolean": "boolean", "java.lang.Double": "double",
    "java.lang.Float": "float", "java.lang.Character": "char", "bool": "boolean", "java.math.BigDecimal": "bigdec",
    "java.math.BigInteger": "bigint", "java.time.Instant": "instant", "java.time.LocalDate": "localdate",
    "java.time.LocalTime": "localtime", "java.time.LocalDateTime": "localdatetime", "java.util.Date": "date",
    "java.sql.Date": "sqldate", "java.sql.Time": "sqltime", "java.sql.Timestamp": "sqltimestamp",
    "java.util.UUID": "uuid", "java.util.List": "list", "java.util.Map": "map", "java.util.Set": "set",
    "java.util.Collection": "list", "byte[]": "bytes", "long[]": "longs", "int[]": "ints", "short[]": "shorts",
    "double[]": "doubles", "float[]": "floats", "boolean[]": "booleans", "char[]": "chars", "String[]": "strings",
    "java.lang.String[]": "strings", "BigDecimal": "bigdec", "BigInteger": "bigint", "Instant": "instant",
    "LocalDate": "localdate", "LocalTime": "localtime", "LocalDateTime": "localdatetime", "UUID": "uuid",
    "String": "string", "Long": "long", "Integer": "int", "Short": "short", "Byte": "byte", "Boolean": "boolean",
    "Double": "double", "Float": "float", "Character": "char", "List": "list", "Map": "map", "Set": "set",
}  # fmt: skip
"""This program's words for Java's, as sources have them."""

_NAME: Final = re.compile(r"[\w.$]+(?:\[\])?|[<>,]")


class Declared(msgspec.Struct, frozen=True):
    """What the file says.

    classes: fields and their types, as this program calls them, by class.
    avro: schemas by the full name of what they describe.
    rows: types of fields, by the state whose rows have them.
    ttl: whether the job declares a state with a TTL, by its name.
    """

    file: str
    classes: dict[str, dict[str, str]]
    avro: dict[str, AvroSchema]
    rows: dict[str, tuple[str, ...]] = {}
    ttl: dict[str, bool] = {}


def read_declared(path: str) -> Declared:
    """The classes in a file. FormatError, BadFile with every mistake."""
    hint = "give classes with their fields (YAML), or a schema of Avro (JSON)"
    return parse_declared(read_user_file(path, MAX_BYTES, hint=hint), path)


def parse_declared(data: bytes, name: str) -> Declared:
    """As `read_declared`, from the bytes of a file."""
    avro = _avro(data, name)
    if avro is not None:
        return Declared(name, {}, avro)
    mistakes = Mistakes(name)
    root = read_nodes(data, mistakes)
    if not isinstance(root, Mapping) or not {"classes", "rows", "ttl"} & root.pairs.keys():
        spot = root or Spot(1, 1)
        mistakes.fatal(
            spot, "it has neither classes, rows, ttl nor a schema of Avro", "write classes: {CLASS: {FIELD: TYPE}}"
        )
    for key, (place, _) in root.pairs.items():
        if key not in ("version", "classes", "rows", "ttl"):
            mistakes.add(place, f"unknown key {key!r}", "it has version, classes, rows and ttl")
    if "version" in root.pairs:
        version = root.pairs["version"][1]
        if not isinstance(version, Scalar) or version.value != VERSION:
            mistakes.add(version, f"version must be {VERSION}")
    rows, ttl = _rows(root, mistakes), _ttl(root, mistakes)
    if "classes" not in root.pairs:
        mistakes.raise_any()
        return Declared(name, {}, {}, rows, ttl)
    classes: dict[str, dict[str, str]] = {}
    node = root.pairs["classes"][1]
    for word, (place, fields) in node.pairs.items() if isinstance(node, Mapping) else ():
        if not isinstance(fields, Mapping):
            mistakes.add(place, f"class {word} must be a mapping of fields to types")
            continue
        own = classes.setdefault(word, {})
        for field, (_, kind) in fields.pairs.items():
            if isinstance(kind, Scalar) and isinstance(kind.value, str):
                try:
                    own[field] = canonical(kind.value)
                except ValueError as error:
                    mistakes.add(kind, f"{word}.{field}: {error}")
            else:
                mistakes.add(kind, f"{word}.{field} must be a type, such as long or list<string>")
    if not isinstance(node, Mapping):
        mistakes.add(node, "classes must be a mapping of classes to their fields")
    mistakes.raise_any()
    return Declared(name, classes, {}, rows, ttl)


def _rows(root: Mapping, mistakes: Mistakes) -> dict[str, tuple[str, ...]]:
    """Types by position, of states whose rows have them."""
    if "rows" not in root.pairs:
        return {}
    node = root.pairs["rows"][1]
    rows: dict[str, tuple[str, ...]] = {}
    if not isinstance(node, Mapping):
        mistakes.add(node, "rows must be a mapping of states to lists of types")
        return rows
    for state, (place, fields) in node.pairs.items():
        if not isinstance(fields, Sequence) or not all(isinstance(one, Scalar) for one in fields.items):
            mistakes.add(place, f"rows of {state} must be a list of types, such as [long, string]")
            continue
        rows[state] = tuple(str(one.value) for one in fields.items if isinstance(one, Scalar))
    return rows


def _ttl(root: Mapping, mistakes: Mistakes) -> dict[str, bool]:
    """Whether states have a TTL."""
    if "ttl" not in root.pairs:
        return {}
    node = root.pairs["ttl"][1]
    ttl: dict[str, bool] = {}
    if not isinstance(node, Mapping):
        mistakes.add(node, "ttl must be a mapping of states to true or false")
        return ttl
    for state, (place, one) in node.pairs.items():
        if not isinstance(one, Scalar) or not isinstance(one.value, bool):
            mistakes.add(place, f"ttl of {state} must be true or false")
            continue
        ttl[state] = one.value
    return ttl


def _avro(data: bytes, name: str) -> dict[str, AvroSchema] | None:
    """Schemas of Avro; None for a file that is no JSON, or not of them."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return None
    schemas = root if isinstance(root, list) else [root]
    if not schemas or not all(isinstance(schema, dict) and "type" in schema for schema in schemas):
        return None
    by_name: dict[str, AvroSchema] = {}
    for schema in schemas:
        try:
            parsed = AvroSchema(json.dumps(schema))
        except ValueError as error:
            raise FormatError(str(error), path=name) from None
        if parsed.name is None:
            raise FormatError("a schema of Avro without a name cannot be told from others", path=name)
        by_name[parsed.name] = parsed
    return by_name


def canonical(text: str) -> str:
    """A type in this program's words: `List<String>` is `list<string>`. ValueError for what is no type."""
    tokens = _NAME.findall(text)
    if "".join(tokens) != "".join(part.strip() for part in re.split("([<>,])", text)):
        raise ValueError(f"{text!r} is not a type")
    depth = 0
    for token in tokens:
        depth += (token == "<") - (token == ">")
        if depth < 0:
            break
    if depth or not tokens:
        raise ValueError(f"{text!r} is not a type")
    return "".join(_WORDS.get(token, token) for token in tokens)


def type_of(snapshot: Snapshot) -> str:
    """A serializer's type in the same words; of one with a class the class."""
    parts = [type_of(part) for part in snapshot.nested]
    match snapshot.kind:
        case "list" | "set" | "map" | "tuple":
            return f"{snapshot.kind}<{','.join(parts)}>"
        case "linkedlist":
            return f"list<{parts[0]}>"
        case "nullable" | "same":
            return parts[0]
        case "array":
            return f"{parts[0]}[]"
        case "pojo" | "enum" | "kryo" | "avro" | "opaque":
            return _WORDS.get(snapshot.about or "", snapshot.about or snapshot.short)
        case kind:
            return kind


def same_type(before: Snapshot, declared: str) -> bool:
    """Whether a field was declared as it is now. A class may be named without its package."""
    known = type_of(before)
    if known == declared:
        return True
    # Kryo does not say what is in a list or map
    if before.kind == "kryo" and known in ("list", "map", "set"):
        return declared.partition("<")[0] == known
    return _short(known) == _short(declared) and ("." not in declared or "." not in known)


def _short(text: str) -> str:
    """A type without the packages of its classes."""
    return re.sub(r"[\w.$]+", lambda name: _without_package(name[0]), text)


def _without_package(name: str) -> str:
    """Return what follows the last point or dollar sign of a name that has something after it."""
    end = len(name.rstrip(".$"))
    start = max(name.rfind(".", 0, end), name.rfind("$", 0, end)) + 1
    return name[start:] if end else name
