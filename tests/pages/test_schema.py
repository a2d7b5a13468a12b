"""The schema of the facts of a report is that of the structs: `pytest tests/pages --rewrite` renews it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from abscli.pages.facts import SCHEMA, Report
from formats.version import READABLE
from tests.support.schemas import FOLDER


def schema() -> dict[str, Any]:
    (root,), parts = msgspec.json.schema_components([Report], ref_template="#/$defs/{name}")
    parts = {name: _plain(part) for name, part in parts.items()}
    whole = parts.pop("Report")
    assert root == {"$ref": "#/$defs/Report"}
    whole["properties"]["schema"] = {"const": SCHEMA}
    whole["properties"]["version"] = {"type": "string", "pattern": READABLE}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMA}.json",
        "title": SCHEMA,
        "description": "What `abs report -o json` prints, and what stands in its page. null is an unknown fact, sizes "
        "are bytes, durations seconds, times RFC 3339 in UTC.",
        **{name: value for name, value in whole.items() if name not in ("title", "description")},
        "$defs": parts,
    }  # fmt: skip


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A struct whose members are all there, whatever their defaults; its text in lines that a reader would write."""
    if "properties" in part:
        part["required"] = list(part["properties"])
        part["properties"] = {
            name: {key: value for key, value in member.items() if key != "default"}
            for name, member in part["properties"].items()
        }
    if "description" in part:
        part["description"] = " ".join(part["description"].split())
    part.pop("title", None)
    return part


def test_the_schema_is_that_of_the_facts(request: pytest.FixtureRequest) -> None:
    file = FOLDER / f"{SCHEMA}.json"
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if request.config.getoption("--rewrite"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
