"""Where Spark's hash puts a key, and how a column family is coded: decided by names and schemas alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.spark.state.schema import StateSchema, of_sessions
from formats.spark.state.types import Type


@dataclass(frozen=True, slots=True)
class Coding:
    """How one column family is written.

    family: its id, None without column families.
    listed: values are lists.
    avro: if rows are written as Avro, the types of values by the number of their schema.
    """

    schema: StateSchema
    rocks: bool
    family: int | None = None
    listed: bool = False
    avro: Mapping[int, Type] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Which part of a state key its partition goes by: all columns but the last few, or the struct in one column (the
    first struct within that: `twice`). Spark: `StatePartitionKeyExtractor`."""

    drop_last: int = 0
    inner: int | None = None
    twice: bool = False


_WHOLE = {"stateStoreSave", "dedupe", "dedupeWithinWatermark", "flatMapGroupsWithState", "applyInPandasWithState"}
_JOIN = {"keyToNumValues": 0, "keyWithIndexToValue": 1, "keyWithTsToValues": 1, "tsWithKey": 1}


def partition_rule(operator: str | None, store: str, schema: StateSchema) -> Rule | None:
    """The rule for an operator's store or column family; None where it is not known, or there is no key to go by."""
    if not schema.key.fields or not schema.decodable:
        return None
    if operator is None:
        operator = _keeper(store, schema)
    if operator in _WHOLE:
        return Rule()
    if operator == "symmetricHashJoin":
        name = (schema.name if store == "default" else store).partition("-")[2]
        drop = _JOIN.get(name)
        return None if drop is None else Rule(drop_last=drop)
    if operator in ("sessionWindowStateStoreSaveExec", "sessionWindowStateStoreSave"):
        return Rule(drop_last=1) if len(schema.key.fields) > 1 else None
    if operator is not None and operator.startswith("transformWithState"):
        return _variable(schema)
    return None


def _keeper(store: str, schema: StateSchema) -> str | None:
    """What keeps a store, by its columns, where the operator's metadata is lost or older than Spark 4.0."""
    if store.startswith(("left-", "right-")):
        return "symmetricHashJoin"
    if schema.name != "default" or schema.key.fields[0].type.kind == "void":  # a limit: all in partition 0
        return None
    return "sessionWindowStateStoreSaveExec" if of_sessions(schema.key) else "stateStoreSave"


def composite(key: Type) -> bool:
    """Whether a key is one of the query's and one of the user's, or a time, side by side."""
    return tuple(field.name for field in key.fields) in (("key", "userKey"), ("key", "expiryTimestampMs"))


def _variable(schema: StateSchema) -> Rule:
    """Of `transformWithState`: keys of maps hold the user's key as well, those of timers and times to live a time."""
    names = tuple(field.name for field in schema.key.fields)
    if composite(schema.key) and schema.key.fields[0].type.kind == "struct":
        return Rule(inner=0)
    if len(names) == 2 and names[0] in ("expiryTimestampMs", "expirationMs"):
        inside = schema.key.fields[1].type
        if inside.kind == "struct":
            return Rule(inner=1, twice=composite(inside))
    return Rule()
