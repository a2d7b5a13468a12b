"""The JSON Schemas of a native store's fact files, of Spark's plans and of topology files, made from what reads them.

`python -m formats.schema` writes them to `formats/schemas/`; a test makes them again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from formats.job import file as topology_file
from formats.native import sink
from formats.native.facts import FORMAT_VERSION, SCHEMAS
from formats.spark import plan as spark

FOLDER = Path(__file__).parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def fact_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of one kind of sealed file; minor versions of the format may add members."""
    return _schema(kind, SCHEMAS[kind], f"[1-{FORMAT_VERSION.partition('.')[0]}]")


def _schema(kind: type[msgspec.Struct], name: str, major: str) -> dict[str, Any]:
    """major: the pattern of the versions that are read."""
    (root,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = {name: components[name] for name in sorted(components)}
    facts = definitions.pop(root["$ref"].rpartition("/")[2])
    members = facts["properties"]
    members["schema"] = {"const": name}
    members["version"] = {"type": "string", "pattern": rf"^{major}\.[0-9]+$"}
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


def texts() -> dict[str, str]:
    """The text of every generated schema, by file name."""
    found = {name: fact_schema(kind) for kind, name in SCHEMAS.items()}
    found[sink.CLAIM_SCHEMA] = _schema(sink.SinkClaim, sink.CLAIM_SCHEMA, FORMAT_VERSION.partition(".")[0])
    found[spark.SCHEMA] = _schema(spark.SparkPlan, spark.SCHEMA, spark.VERSION.partition(".")[0])
    found["topology-file"] = topology_file.SCHEMA
    return {f"{name}.json": json.dumps(schema, indent=2) + "\n" for name, schema in found.items()}


def main() -> None:
    """Write them all."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
