"""JSON against the project's schemas: every test that reads JSON goes through here."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

import formats

FOLDER = Path(formats.__file__ or "").parent / "schemas"

CLOSED = frozenset({"abs.state"})
"""Outputs whose schemas declare every member that commands print. Tests refuse any other member of these."""

_APPLICATORS = ("allOf", "anyOf", "oneOf", "if", "$ref")


def checked(data: str | bytes | dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """The object, valid by the schema called `name`, or by the one that it names itself. A member that a schema in
    `CLOSED` does not declare fails, though the published schema allows it."""
    value: dict[str, Any] = data if isinstance(data, dict) else json.loads(data)
    _validator(name or value["schema"]).validate(value)
    return value


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    return jsonschema.Draft202012Validator(closed(schema) if name in CLOSED else schema)


def closed(schema: Any) -> Any:
    """Make a schema refuse members that it does not declare, wherever it declares the members of an object."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        # The names of members are not keywords.
        key: {name: closed(member) for name, member in part.items()} if key == "properties" else closed(part)
        for key, part in schema.items()
    }
    types = schema.get("type", ())
    if "properties" in schema and "object" in ([types] if isinstance(types, str) else types):
        word = "unevaluatedProperties" if any(key in schema for key in _APPLICATORS) else "additionalProperties"
        if not any(key in schema for key in ("additionalProperties", "patternProperties")):
            result[word] = False
    return result
