"""JSON against the project's schemas: every test that reads JSON goes through here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import formats

FOLDER = Path(formats.__file__ or "").parent / "schemas"


def checked(data: str | bytes | dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """The object, valid by the schema called `name`, or by the one that it names itself."""
    value: dict[str, Any] = data if isinstance(data, dict) else json.loads(data)
    schema = json.loads((FOLDER / f"{name or value['schema']}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)
    return value
