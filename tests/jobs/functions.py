"""Functions for jobs of tests: some keep what they must not keep."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def step(batch: Any) -> Any:
    return batch


def further(batch: Any) -> Any:
    return batch


def split(batch: Any) -> Any:
    return pa.record_batch([pc.split_pattern(batch["line"], " ").flatten()], names=["word"])


seen_so_far = 0


def number(batch: Any) -> Any:
    """Each line with how many came before it, which this process alone knows."""
    global seen_so_far
    numbers = pa.array(range(seen_so_far, seen_so_far + batch.num_rows), pa.int64())
    seen_so_far += batch.num_rows
    return pa.record_batch([batch["line"], numbers], names=["line", "number"])


rows_so_far = 0


def numbered_until_18(batch: Any) -> Any:
    """Rows with a number that this process alone knows added to `v`, unless `v` is at least 18."""
    global rows_so_far
    values = batch["v"].to_pylist()
    numbers = [v if v >= 18 else v + (rows_so_far + at) % 7 for at, v in enumerate(values)]
    rows_so_far += len(values)
    return batch.set_column(batch.schema.get_field_index("v"), "v", pa.array(numbers, pa.int64()))


def hashed(batch: Any) -> Any:
    """Each line with its hash, which depends on the process."""
    return pa.record_batch([batch["line"], pa.array(map(hash, batch["line"].to_pylist()))], names=["line", "hash"])


def size_of_batch(batch: Any) -> Any:
    """Each line with a value that it has from its neighbours."""
    sizes = pa.array([batch.num_rows] * batch.num_rows, pa.int64())
    return pa.record_batch([batch["line"], sizes], names=["line", "size"])


def known(batch: Any) -> Any:
    """Whether a word has not come before, as far as this process knows: what `distinct` is for."""
    fresh = []
    for word in batch["word"].to_pylist():
        fresh.append(word not in words_so_far)
        words_so_far.add(word)
    return pa.array(fresh, pa.bool_())


words_so_far: set[str] = set()


def bad_row(batch: Any) -> Any:
    if "poison" in batch["line"].to_pylist():
        raise ValueError("no such line")
    return batch


def leave(batch: Any) -> Any:
    os._exit(3)


def for_ever(batch: Any) -> Any:
    return batch


def third(batch: Any) -> Any:
    return pa.record_batch([batch["k"], pc.divide(pc.cast(batch["v"], pa.float64()), 3.0)], names=["k", "v"])


GRAPH = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": []}


def next_nodes(batch: Any) -> Any:
    pairs = [(row["start"], node) for row in batch.to_pylist() for node in GRAPH[row["node"]]]
    return pa.record_batch(
        [pa.array([start for start, _ in pairs], pa.string()), pa.array([node for _, node in pairs], pa.string())],
        names=["start", "node"],
    )
