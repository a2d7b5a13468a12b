"""Where the bytes of rows are that come as record batches: counts and sizes for `formats.statistics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from formats.statistics import LARGEST, Tally

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Sizes = npt.NDArray[np.int64]


def tally_rows(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], place: Callable[[pa.RecordBatch], tuple[Any, Any]],
    made_up: frozenset[str],
) -> Tally:  # fmt: skip
    """Rows and bytes by place, and the largest. A row a key; sizes are those of Arrow, without its offsets.

    key: its columns; place: of a batch the subtask and the key group (-1: none) of each row; made_up: columns that are
    not part of the rows.
    """
    import numpy as np

    tally = Tally()
    for batch in batches:
        if not batch.num_rows:
            continue
        subtasks, groups = place(batch)
        keys = [name for name in batch.schema.names if name in key]
        values = [name for name in batch.schema.names if name not in key and name not in made_up]
        key_sizes, value_sizes = _sizes(batch, keys), _sizes(batch, values)
        both = key_sizes + value_sizes
        at = np.stack([subtasks, groups])
        for subtask, group in np.unique(at, axis=1).T.tolist():
            here = (subtasks == subtask) & (groups == group)
            tally.count(subtask, group, int(here.sum()), int(both[here].sum()))
        largest = {*np.argsort(-both, kind="stable")[:LARGEST].tolist(),
                   *np.argsort(-value_sizes, kind="stable")[:LARGEST].tolist()}  # fmt: skip
        for i in sorted(largest):
            shown = [batch.column(name)[i].as_py() for name in keys]
            group = int(groups[i])
            own = shown[0] if len(shown) == 1 else tuple(shown)
            tally.row(own, group if group >= 0 else -1, int(key_sizes[i]), int(value_sizes[i]))
            tally.end()
    return tally


def _sizes(batch: pa.RecordBatch, names: Sequence[str]) -> Sizes:
    """Bytes of each row in these columns."""
    import numpy as np

    total: Sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        total += _column(batch.column(name))
    return total


def _column(column: pa.Array) -> Sizes:
    """Bytes of each value of a column; of lists, maps and structs of all that they hold."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _column(column.dictionary_decode())
    if pa.types.is_struct(kind):
        own: Sizes = np.zeros(len(column), dtype=np.int64)
        for part in column.flatten():
            own += _column(part)
        return own
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        items = pa.StructArray.from_arrays([column.keys, column.items], ["k", "v"]) if pa.types.is_map(kind) else (
            column.values
        )  # fmt: skip
        ends = np.concatenate([[0], np.cumsum(_column(items))])
        offsets = column.offsets.to_numpy()
        return np.asarray(ends[offsets[1:]] - ends[offsets[:-1]], dtype=np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind) or (
        pa.types.is_large_binary(kind)
    ):  # fmt: skip
        return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    try:
        width = max(1, kind.bit_width // 8)
    except ValueError:  # of null, or of a type that nobody has yet
        width = 0
    return np.full(len(column), width, dtype=np.int64)
