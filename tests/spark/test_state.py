"""State rows of real Spark checkpoints, against what Spark's own reader says of them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from formats.errors import Damaged, FormatError, NotFound
from formats.spark.store import SparkStore
from formats.storage import LocalStorage
from tests.support.spark.data import CASES, Case, unpack

READ = [(case, i) for case in CASES for i in range(len(case.truth["reads"]))]


def store_of(case: Case) -> SparkStore:
    return SparkStore(LocalStorage(unpack(case)))


@pytest.mark.parametrize(("case", "number"), READ, ids=lambda value: str(value))
def test_rows_are_those_that_sparks_reader_gives(case: Case, number: int) -> None:
    """Every read that Spark answered is answered alike; what it refuses is refused or, where abs knows more, read."""
    read = case.truth["reads"][number]
    store = store_of(case)
    options = read["options"]
    epoch = options.get("batchId", store.latest())
    name = options.get("stateVarName", options.get("storeName"))
    if "readRegisteredTimers" in options:
        name = next(f.name for f in store.families(epoch) if (f.name or "").endswith("Timers_keyToTimestamp"))
    if "error" in read:
        if case.name.startswith("broken"):
            with pytest.raises((Damaged, NotFound)):
                rows(store, epoch, str(options["operatorId"]), name)
        return
    got = rows(store, epoch, str(options["operatorId"]), name)
    if "#" not in json.dumps(read["rows"]):  # this truth has the last of several columns of one name
        got = [{part: hidden(value) for part, value in row.items()} for row in got]
    assert Counter(map(fingerprint, got)) == Counter(fingerprint(row) for row in read["rows"])


def rows(store: SparkStore, epoch: int, operator: str, name: str | None) -> list[dict[str, Any]]:
    """The rows of a state in the shape of Spark's reader: a key, a value, and the partition."""
    name = None if name == "default" else name
    families = [f for f in store.families(epoch) if str(f.operator.id) == operator and f.name == name]
    schema = families[0].schema
    composite = [field.name for field in schema.key.fields] == ["key", "userKey"]
    out = []
    for batch in store.state(epoch, operator, name):
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            *both, partition = row
            if families[0].kind == "timers":
                *key_of, time, _ = both
                key = named([field.name for field in schema.key.fields[0].type.fields], key_of)
                out.append({"key": key, "expiration_timestamp_ms": time, "partition_id": partition})
                continue
            values = list(both[len(both) - len(schema.value.fields) :])
            keys = list(both[: len(both) - len(values)])
            value = named([field.name for field in schema.value.fields], values)
            if composite:
                first, second = (field.type.fields for field in schema.key.fields)
                key = named([f.name for f in first], keys[: len(first)])
                user = named([f.name for f in second], keys[len(first) :])
                out.append({"key": key, "user_map_key": user, "user_map_value": value, "partition_id": partition})
                continue
            key = named([field.name for field in schema.key.fields], keys)
            what = "list_element" if families[0].kind == "list" else "value"
            out.append({"key": key, what: value, "partition_id": partition})
    return out


def named(names: list[str], values: list[Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        n = sum(known.partition("#")[0] == name for known in out)
        out[f"{name}#{n}" if n else name] = value
    return out


def hidden(value: Any) -> Any:
    """A row as a dictionary by names alone has it: later columns hide earlier ones."""
    return {key.partition("#")[0]: item for key, item in value.items()} if isinstance(value, dict) else value


def fingerprint(row: Any) -> str:
    """One text for what Arrow and PySpark call by different names."""
    return json.dumps(plain(row), sort_keys=True, default=str)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):  # a map
            return {str(key): plain(item) for key, item in value}
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    return str(value) if isinstance(value, bytes) else value


def test_a_state_is_found_by_the_operators_number_or_its_name() -> None:
    store = store_of(Case.of("multi_op"))
    by_number = list(store.state(2, "1"))
    assert [batch.to_pylist() for batch in store.state(2, "dedupe")] == [batch.to_pylist() for batch in by_number]


@pytest.mark.parametrize(
    ("case", "epoch", "operator", "name", "said"),
    [
        ("multi_op", 2, "7", None, "no stateful operator 7; there are: 0 (stateStoreSave), 1 (dedupe)"),
        ("ss_join", 2, "0", None, "several states: name one"),
        ("ss_join", 2, "0", "middle", "no state middle"),
        ("ss_join", 99, "0", None, "no batch 99; it has 0 to 7"),
        ("broken_missing_sst", 3, "0", None, "is not there"),
        ("broken_flip_delta", 6, "0", None, "checksum"),
    ],
)
def test_a_state_that_cannot_be_had_is_refused_in_one_line(
    case: str, epoch: int, operator: str, name: str | None, said: str
) -> None:
    with pytest.raises(FormatError) as caught:
        list(store_of(Case.of(case)).state(epoch, operator, name))
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_columns_of_one_name_get_numbers() -> None:
    batch = next(iter(store_of(Case.of("window_append")).state(2, "0")))
    assert batch.schema.names == ["window", "u", "sum", "sum_2", "count", "partition_id"]
