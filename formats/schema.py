"""The JSON Schemas of a native store's fact files, of plans, of topology files and of files of changes, made from what
reads them.

`python -m formats.schema` writes them to `formats/schemas/`; a test makes them again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from formats.flink.plan import FlinkPlan
from formats.flink.rewriting import changes as flink_changes
from formats.job import file as topology_file
from formats.native import sink
from formats.native.facts import SCHEMAS
from formats.native.plan import NativePlan
from formats.plan import SCHEMA as PLAN
from formats.plan import Body, Plan
from formats.spark.plan import SparkPlan
from formats.version import READABLE

FOLDER = Path(__file__).parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def fact_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of one kind of sealed file."""
    return _schema(kind, SCHEMAS[kind])


def _schema(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = {name: components[name] for name in sorted(components)}
    facts = definitions.pop(root["$ref"].rpartition("/")[2])
    members = facts["properties"]
    members["schema"] = {"const": name}
    members["version"] = {"type": "string", "pattern": READABLE}
    members["sha256"] = {**_DIGEST, "description": "SHA-256 of every byte before this last member's comma."}
    result = {
        "$schema": DIALECT,
        "$id": f"{name}.json",
        "title": name,
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": members,
        "required": [*facts["required"], "sha256"],
    }
    if definitions:
        result["$defs"] = definitions
    return result


BODIES: dict[str, type[Body]] = {"abs": NativePlan, "flink": FlinkPlan, "spark": SparkPlan}
"""What a plan says of a system, by the system's name."""

_WITHOUT_STORE = {
    "if": {"properties": {"system": {"const": "abs"}, "body": {"properties": {"kind": {"const": "partial"}}}}},
    "else": {
        "properties": {
            "store": {"type": "string"},
            "body": {"properties": {"epoch": {"type": "integer"}, "base_epoch": {"type": "integer"}}},
        }
    },
}
"""Only a plan for a part of a running job can be made without a store (`NativePlan.needs_store`)."""


def plan_schema() -> dict[str, Any]:
    """The schema of plans: one envelope, and by the system that it names, which body is in it."""
    result = _schema(Plan[NativePlan], PLAN)
    _, components = msgspec.json.schema_components(BODIES.values(), ref_template="#/$defs/{name}")
    members = result["properties"]
    members["system"] = {"enum": list(BODIES)}
    members["body"] = {"type": "object"}
    result["description"] = " ".join((Plan.__doc__ or "").split()).partition(" Raises ")[0]
    result["required"] = list(members)
    result["$defs"] = {name: _portable(value) for name, value in sorted({**result["$defs"], **components}.items())}
    result["properties"] = _portable(members)
    result["allOf"] = [
        {
            "if": {"properties": {"system": {"const": system}}},
            "then": {"properties": {"body": {"$ref": f"#/$defs/{body.__name__}"}}},
        }
        for system, body in BODIES.items()
    ] + [_WITHOUT_STORE]
    return result


def _portable(value: Any) -> Any:
    """A schema without the one word of its patterns that only Python has: `\\Z`, where others say `$`."""
    if isinstance(value, dict):
        return {
            name: part.replace("\\Z", "$") if name == "pattern" and isinstance(part, str) else _portable(part)
            for name, part in value.items()
        }
    return [_portable(part) for part in value] if isinstance(value, list) else value


def texts() -> dict[str, str]:
    """The text of every generated schema, by file name."""
    schemas = {name: fact_schema(kind) for kind, name in SCHEMAS.items()}
    schemas[sink.CLAIM_SCHEMA] = _schema(sink.SinkClaim, sink.CLAIM_SCHEMA)
    schemas["topology-file"] = topology_file.SCHEMA
    schemas["flink-changes"] = flink_changes.SCHEMA
    schemas[PLAN] = plan_schema()
    return {f"{name}.json": json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}


def main() -> None:
    """Write them all."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
