"""Whether a schema of Avro reads what another one wrote: Avro's schema resolution, with what stands in the way.

Source: the Avro specification 1.11, "Schema Resolution"; `SchemaCompatibility` of Avro for Java, which Flink asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_PROMOTED: Final = {
    "int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"},
    "bytes": {"string"},
}  # fmt: skip
"""What values of a type may be read as, beside itself."""

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class Difference(NamedTuple):
    """A difference between two schemas.

    path: the way to it, such as `.items[].price`.
    message: in words.
    readable: whether values that were written are read all the same.
    """

    path: str
    message: str
    readable: bool


class AvroSchema:
    """A schema with its named types. ValueError for what is none."""

    def __init__(self, text: str) -> None:
        try:
            self.root = json.loads(text)
            self.named: dict[str, dict[str, Any]] = {}
            self._collect(self.root, "")
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no schema of Avro: {error}") from None

    @property
    def name(self) -> str | None:
        """The full name of a record, enum or fixed; None of what has none."""
        return full_name(self.root, "") if kind_of(self.root) in _NAMED else None

    def _collect(self, schema: Any, space: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, space)
            return
        if not isinstance(schema, dict):
            return
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            name = full_name(schema, space)
            space = name.rpartition(".")[0]
            self.named[name] = schema
            schema["namespace"], schema["name"] = space, name.rpartition(".")[2]
        if kind in ("record", "error"):
            for field in schema["fields"]:
                field["type"] = self._resolved_names(field["type"], space)
                self._collect(field["type"], space)
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            schema[part] = self._resolved_names(schema[part], space)
            self._collect(schema[part], space)
        elif isinstance(kind, dict | list):
            self._collect(kind, space)

    @staticmethod
    def _resolved_names(schema: Any, space: str) -> Any:
        """A name of a type in full, so that it can be looked up wherever it stands."""
        if isinstance(schema, list):
            return [AvroSchema._resolved_names(branch, space) for branch in schema]
        if isinstance(schema, str) and schema not in _PRIMITIVES and "." not in schema and space:
            return f"{space}.{schema}"
        return schema

    def look_up(self, schema: Any) -> Any:
        """The schema that a name stands for."""
        while isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        if isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            return self.look_up(schema["type"])
        return schema


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def full_name(schema: dict[str, Any], space: str) -> str:
    """The name of a record, enum or fixed with its namespace. space: the one that it stands in."""
    name = str(schema["name"])
    if "." in name:
        return name
    space = schema.get("namespace", space)
    return f"{space}.{name}" if space else name


def kind_of(schema: Any) -> str:
    """`record`, `union`, `long`, ...; a name that is not described as it is."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def differences(writer: AvroSchema, reader: AvroSchema) -> list[Difference]:
    """What has changed, from the schema that values were written with to the one that is to read them."""
    return list(_Comparison(writer, reader).compare(writer.root, reader.root, ""))


class _Comparison:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader
        self._open: set[tuple[str, str]] = set()

    def compare(self, writer: Any, reader: Any, path: str) -> Iterator[Difference]:
        writer, reader = self._writer.look_up(writer), self._reader.look_up(reader)
        before, after = kind_of(writer), kind_of(reader)
        if before == "union":
            for branch in writer:
                yield from self._branch(branch, reader, path)
        elif after == "union":
            yield from self._branch(writer, reader, path)
        elif before != after:
            read = after in _PROMOTED.get(before, ())
            yield Difference(path, f"{before} -> {after}", read)
        elif before in _NAMED:
            yield from self._named(writer, reader, path)
        elif before == "array":
            yield from self.compare(writer["items"], reader["items"], f"{path}[]")
        elif before == "map":
            yield from self.compare(writer["values"], reader["values"], f"{path}.values")

    def _branch(self, writer: Any, reader: Any, path: str) -> Iterator[Difference]:
        """A value of one type where a union may be read: its first branch that reads it."""
        choices = reader if kind_of(reader) == "union" else [reader]
        tried = [list(self.compare(writer, choice, path)) for choice in choices]
        best = next((one for one in tried if not one), None)
        if best is None:
            best = next((one for one in tried if all(difference.readable for difference in one)), None)
        if best is not None:
            yield from best
        elif len(tried) == 1:
            yield from tried[0]
        else:
            kind = kind_of(self._writer.look_up(writer))
            words = ", ".join(kind_of(self._reader.look_up(choice)) for choice in choices)
            yield Difference(path, f"{kind} is none of {words}", False)

    def _named(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> Iterator[Difference]:
        names = full_name(writer, ""), full_name(reader, "")
        if names in self._open:  # a type within itself
            return
        aliases = {alias if "." in alias else f"{reader['namespace']}.{alias}" for alias in reader.get("aliases", ())}
        if names[0] != names[1] and names[0] not in aliases:
            yield Difference(path, f"{names[0]} is called {names[1]}", False)
            return
        self._open.add(names)
        kind = kind_of(writer)
        if kind == "enum":
            lost = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if lost:
                yield Difference(path, f"symbols that are gone: {', '.join(lost)}", "default" in reader)
        elif kind == "fixed":
            if writer["size"] != reader["size"]:
                yield Difference(path, f"{writer['size']} bytes -> {reader['size']} bytes", False)
        else:
            yield from self._fields(writer, reader, path)
        self._open.discard(names)

    def _fields(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> Iterator[Difference]:
        before = {field["name"]: field for field in writer["fields"]}
        read = set()
        for field in reader["fields"]:
            name = next((name for name in (field["name"], *field.get("aliases", ())) if name in before), None)
            if name is not None:
                read.add(name)
                yield from self.compare(before[name]["type"], field["type"], f"{path}.{field['name']}")
            elif "default" in field:
                default = json.dumps(field["default"])
                yield Difference(f"{path}.{field['name']}", f"new, it will be {default}", True)
            else:
                yield Difference(f"{path}.{field['name']}", "new, and without a default", False)
        for name in before:
            if name not in read:
                yield Difference(f"{path}.{name}", "gone: its values are dropped", True)
