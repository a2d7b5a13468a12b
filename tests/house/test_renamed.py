"""The renamed public names of CHANGELOG.md: no public surface has an old name, and each new name is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from abscli.cli import exits
from abscli.cli.generate import pages
from abscli.engine.telemetry import metrics
from tests.support.schemas import FOLDER

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| ([^|]+) \|$", re.MULTILINE)
TABLE = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("### Renamed")[2].partition("\n#")[0]
RENAMED = ROW.findall(TABLE)
TEXT = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "man/guide/pages").rglob("*.md")))
)


def rows(kind: str) -> list[tuple[str, ...]]:
    """Old and new name of each row of a kind, and the group of the kind in parentheses."""
    found = [(old, new, re.match(rf"{kind}(?: \((\S+).*\))?$", text)) for old, new, text in RENAMED]
    return [(old, new, match[1] or "") for old, new, match in found if match]


def keys_and_values(schema: Any) -> tuple[set[str], set[str]]:
    """The names of all members that a schema declares, and all values of its enumerations."""
    keys, values = set[str](), set[str]()
    if isinstance(schema, dict):
        properties = schema.get("properties")
        keys |= set(properties) if isinstance(properties, dict) else set()
        values |= {str(value) for value in schema["enum"]} if isinstance(schema.get("enum"), list) else set()
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        more = keys_and_values(part)
        keys, values = keys | more[0], values | more[1]
    return keys, values


def of_schema(name: str) -> tuple[set[str], set[str]]:
    return keys_and_values(json.loads((FOLDER / f"abs.{name}.json").read_text(encoding="utf-8")))


def test_the_table_has_rows_of_every_kind() -> None:
    options = ("option", "option value", "Python API keyword")
    kinds = (*options, "metric label", "log event", "folder", "JSON key", "JSON value")
    assert all(rows(kind) for kind in kinds)
    assert sum(len(rows(kind)) for kind in kinds) == len(RENAMED)


def test_options() -> None:
    options = {name for page in pages() for option in page.options for name in option.names}
    for old, new, _ in rows("option"):
        assert old not in options
        assert new in options
        assert old not in TEXT + repr(exits.MEANING)
    for old, _, _ in rows("option value"):
        assert old not in TEXT


def test_folders() -> None:
    for old, new, _ in rows("folder"):
        assert f"/{old}" not in TEXT
        assert f"`{old}" not in TEXT
        assert new in TEXT


def test_python_keywords() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "abscli/api").glob("*.py")))
    for old, new, _ in rows("Python API keyword"):
        assert not re.search(rf"\b{old}\b", source + TEXT)
        assert re.search(rf"\b{new}\b", source)


def test_metric_labels() -> None:
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    for old, new, _ in rows("metric label"):
        assert old not in TEXT
        assert f'"{old.split(chr(34))[1]}"' not in source
        assert f'"{new.split(chr(34))[1]}"' in source


def test_log_events() -> None:
    _, values = of_schema("log")
    for old, new, _ in rows("log event"):
        assert old not in values
        assert new in values


@pytest.mark.parametrize(("old", "new", "schema"), rows("JSON key"))
def test_keys(old: str, new: str, schema: str) -> None:
    keys, _ = of_schema(schema)
    assert new in keys
    assert old not in keys


@pytest.mark.parametrize(("old", "new", "schema"), rows("JSON value"))
def test_values(old: str, new: str, schema: str) -> None:
    _, values = of_schema(schema)
    assert new in values
    assert old not in values
