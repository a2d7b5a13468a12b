"""Each schema's shape is tied to its version: `pytest tests/house/test_schema_shapes.py --rewrite` records both."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from formats.version import FORMAT_VERSION, READABLE
from tests.support.schemas import FOLDER, closed

RECORDED = Path(__file__).with_name("schema_shapes.json")
RECORD = "pytest tests/house/test_schema_shapes.py --rewrite"
NOT_SHAPE = {"$schema", "$id", "title", "description", "examples", "default"}


def shape(schema: Any) -> Any:
    """A schema without prose and without its version; equal for two schemas that accept the same documents."""
    if isinstance(schema, list):
        return [shape(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        # The names of members and definitions are not keywords.
        key: {name: shape(member) for name, member in part.items() if name != "version" or "pattern" not in member}
        if key in ("properties", "$defs")
        else sorted(part) if key == "required"
        else shape(part)
        for key, part in schema.items()
        if key not in NOT_SHAPE
    }


def shapes() -> dict[str, dict[str, str]]:
    """The version and the digest of the shape of every schema of a file or output of abs, by name."""
    found = {}
    for file in sorted(FOLDER.glob("abs.*.json")):
        schema = json.loads(file.read_text(encoding="utf-8"))
        text = json.dumps(shape(schema), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        found[file.stem] = {"version": FORMAT_VERSION, "shape": digest}
    return found


def versions_of(schema: dict[str, Any]) -> object:
    """Return the pattern of the versions that a schema accepts; of a file of lines, that of its first line."""
    members = schema["properties"] if "properties" in schema else schema["oneOf"][0]["properties"]
    return members["version"]["pattern"]


def problems(recorded: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> list[str]:
    """Return what has to be done before the shapes may be recorded."""
    versions = {one["version"] for one in found.values()}
    changed = [
        f"the shape of {name} changed under version {now['version']}: raise FORMAT_VERSION"
        for name, now in found.items()
        if (before := recorded.get(name)) is not None
        and before["shape"] != now["shape"]
        and before["version"] == now["version"]
    ]
    removed = [
        f"{name} was removed under version {before['version']}: raise FORMAT_VERSION"
        for name, before in recorded.items()
        if name not in found and before["version"] in versions
    ]
    return changed + removed


def test_no_schema_changes_its_shape_unnoticed(request: pytest.FixtureRequest) -> None:
    recorded, found = json.loads(RECORDED.read_text(encoding="utf-8")), shapes()
    assert problems(recorded, found) == []
    if request.config.getoption("--rewrite"):
        RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return
    names = sorted({*recorded, *found})
    changed = [name for name in names if recorded.get(name) != found.get(name)]
    assert changed == [], f"the shape of {', '.join(changed)} changed: say so in CHANGELOG.md, and run `{RECORD}`"


def test_every_schema_of_our_own_files_accepts_the_versions_that_readers_accept() -> None:
    schemas = [json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("abs.*.json")]
    assert {versions_of(schema) for schema in schemas} == {READABLE}
    assert len(schemas) > 40


def test_prose_is_no_shape_and_a_member_is() -> None:
    members = {"title": {"type": "string", "description": "x"}, "version": {"type": "string", "pattern": READABLE}}
    schema = {"type": "object", "title": "a", "properties": members}
    assert shape(schema) == {"type": "object", "properties": {"title": {"type": "string"}}}
    assert shape({"type": "object", "properties": {**members, "more": {}}}) != shape(schema)


def test_a_changed_shape_under_a_frozen_version_cannot_be_recorded() -> None:
    before = {"a": {"version": "1.0", "shape": "x"}, "b": {"version": "1.0", "shape": "x"}}
    after = {"a": {"version": "1.0", "shape": "y"}, "c": {"version": "1.0", "shape": "new"}}
    assert problems(before, after) == [
        "the shape of a changed under version 1.0: raise FORMAT_VERSION",
        "b was removed under version 1.0: raise FORMAT_VERSION",
    ]
    assert problems(before, {"a": {"version": "2.0", "shape": "y"}, "c": {"version": "2.0", "shape": "new"}}) == []


def test_tests_refuse_members_that_a_schema_does_not_declare() -> None:
    inner = {"type": ["object", "null"], "properties": {"x": {}}}
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    result = closed({"type": "object", "properties": {"inner": inner, "free": free, "any": {"type": "object"}}})
    assert result["additionalProperties"] is False
    assert result["properties"]["inner"]["additionalProperties"] is False
    assert result["properties"]["free"] == free
    assert result["properties"]["any"] == {"type": "object"}
