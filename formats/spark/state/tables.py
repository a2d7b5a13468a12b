"""State rows as Arrow: the columns of the key, those of the value, and `partition_id`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from formats.errors import Damaged
from formats.spark.state.families import Keys, list_items, value_rows
from formats.spark.state.rules import Coding, composite
from formats.spark.state.types import Type

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 16
PARTITION = "partition_id"


def batches(rows: dict[bytes, bytes], coding: Coding, partition: int, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of one column family of one partition, some at a time; Damaged where one is not what Spark writes.

    A list has a row for each of its values. Columns of one name get a number from the second on: `sum`, `sum_2`.
    """
    own = rows if coding.family is None else own_rows(rows, coding.family)
    keys, values = list(own), list(own.values())
    if coding.listed:
        keys, values = _listed(keys, values, path)
    for at in range(0, len(keys), BATCH):
        yield _batch(keys[at : at + BATCH], values[at : at + BATCH], coding, partition, path)


def count(rows: dict[bytes, bytes], coding: Coding) -> int:
    """How many rows of the map belong to a column family; lists count once."""
    return len(rows if coding.family is None else own_rows(rows, coding.family))


def listed_count(value: bytes, path: str) -> int:
    """How many values a list has; Damaged."""
    return len(_listed([b""], [value], path)[0])


def own_rows(rows: dict[bytes, bytes], family: int) -> dict[bytes, bytes]:
    """Those of a column family."""
    head = family.to_bytes(2, "little")
    return {key: value for key, value in rows.items() if key[:2] == head}


def _listed(keys: list[bytes], values: list[bytes], path: str) -> tuple[list[bytes], list[bytes]]:
    out_keys: list[bytes] = []
    out_values: list[bytes] = []
    for key, value in zip(keys, values, strict=True):
        items = list_items(value)
        if items is None:
            raise Damaged("a list in it is not a list", path=path)
        out_keys += [key] * len(items)
        out_values += items
    return out_keys, out_values


def _batch(keys: list[bytes], values: list[bytes], coding: Coding, partition: int, path: str) -> pa.RecordBatch:
    import pyarrow as pa

    key_rows, rows = Keys(keys, coding), value_rows(values, coding)
    columns = key_rows.arrays()
    columns += list(zip(coding.schema.value.fields, rows.arrays(), strict=True))
    for side, faults in (("key", key_rows.faults), ("value", rows.faults)):
        if faults.first is not None:
            raise Damaged(f"the {side} of a row is not what Spark writes: {faults.first[1]}", path=path)
    fields = unique([field.name for field, _ in columns])
    arrays = [array for _, array in columns] + [pa.array([partition] * len(keys), pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, names=[*fields, PARTITION])


def key_names(key: Type) -> tuple[str, ...]:
    """The columns that a key has in a batch; of a key and a user's key, the columns of both."""
    flat = composite(key)
    fields = [inner for field in key.fields for inner in ((flat and field.type.fields) or (field,))]
    return tuple(unique([field.name for field in fields]))


def unique(names: Iterable[str]) -> list[str]:
    """The names of columns, each made the only one of its name."""
    taken = {PARTITION}
    out = []
    for own in names:
        name, n = own, 1
        while name in taken:
            n += 1
            name = f"{own}_{n}"
        taken.add(name)
        out.append(name)
    return out
