"""Operator metadata: names of stateful operators, their stores and partitions (Spark 4.0 on)."""

from __future__ import annotations

from typing import Any

import msgspec

from formats.errors import Damaged
from formats.spark import layout
from formats.spark.logs import log as logs

NEWEST = 2


class StoreInfo(msgspec.Struct, frozen=True):
    """One state store of an operator.

    prefix: key columns that a prefix scan goes by; None where no metadata says it.
    schemas: absolute paths of its schema files (version 2), oldest first.
    """

    name: str
    prefix: int | None
    partitions: int
    schemas: tuple[str, ...]


class OperatorInfo(msgspec.Struct, frozen=True):
    """One stateful operator.

    name: Spark's own.
    properties: of `transformWithState`, as JSON text.
    path: of the file that says so; None where there is none and the folders have to do.
    """

    id: int
    name: str | None
    stores: tuple[StoreInfo, ...]
    properties: str | None
    path: str | None


def metadata_path(operator: int) -> str:
    """Of version 1."""
    return f"{layout.operator_dir(operator)}/_metadata/metadata"


def metadata_v2_dir(operator: int) -> str:
    """Of version 2: one file a batch that changed it."""
    return f"{layout.operator_dir(operator)}/_metadata/v2"


def parse_operator(data: bytes, path: str, operator: int) -> OperatorInfo:
    """The bytes of an operator's metadata; EmptyLog, Damaged, UnsupportedVersion."""
    _, rest = logs.lines(data, path, NEWEST)
    fields = logs.parse("\n".join(rest), path)
    info = fields.get("operatorInfo")
    if not isinstance(info, dict) or info.get("operatorId") != operator:
        raise Damaged(f"is not of operator {operator}", path=path)
    stores = fields.get("stateStoreInfo")
    if not isinstance(stores, list) or not stores:
        raise Damaged("names no state store", path=path)
    name, properties = info.get("operatorName"), fields.get("operatorPropertiesJson")
    return OperatorInfo(
        operator,
        name if isinstance(name, str) else None,
        tuple(_store(store, path) for store in stores),
        properties if isinstance(properties, str) and properties else None,
        path,
    )


def _store(fields: Any, path: str) -> StoreInfo:
    if not isinstance(fields, dict) or not isinstance(fields.get("storeName"), str):
        raise Damaged("has a state store without a name", path=path)
    name = fields["storeName"]
    if "/" in name or name in ("", ".", ".."):
        raise Damaged(f"names a state store {name!r}", path=path)
    partitions, prefix = logs.number(fields, "numPartitions", path), logs.number(fields, "numColsPrefixKey", path)
    if partitions is None or not 0 < partitions < 1 << 20:
        raise Damaged(f"gives store {name} {partitions} partitions", path=path)
    schemas = fields.get("stateSchemaFilePaths", [])
    if not isinstance(schemas, list) or not all(isinstance(schema, str) for schema in schemas):
        raise Damaged(f"names schema files of store {name} that are not strings", path=path)
    return StoreInfo(name, prefix or 0, partitions, tuple(schemas))


def schema_here(absolute: str) -> str | None:
    """Where in the checkpoint a schema file lies that metadata names by its absolute path; None if it has no place."""
    marker = f"/{layout.STATE}/"
    at = absolute.rfind(marker)
    relative = absolute[at + 1 :]
    return relative if at >= 0 and not any(part in ("", ".", "..") for part in relative.split("/")) else None
