"""Two tables of keyed rows, compared: keys that came, went, changed and stayed. Pure, and vectorised throughout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from formats.query.keys import incomparable, key_arrays, matches, one_array
from formats.select import HIDDEN

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class Counts(NamedTuple):
    """Keys, by what became of them."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Compared(NamedTuple):
    """Counts, and where they were asked for the changes: columns `change`, `key`, `from`, `to` (structs)."""

    counts: Counts
    rows: pa.Table | None = None


def compare(left: pa.Table, right: pa.Table, key: Sequence[str], *, rows: bool) -> Compared:
    """Keys are distinct within each side and of the same types on both; other columns are the values, by name.

    A column that only one side has is not compared. NaN equals NaN, null equals null.
    """
    place = matches(key_arrays(left, key), key_arrays(right, key))
    matched = place >= 0
    both = int(np.count_nonzero(matched))
    # Epochs that follow each other mostly have the same keys in the same order: then columns are compared as they are,
    # without a copy of the rows that match.
    aligned = both == len(place) == left.num_rows and _counts_up(place)
    differs = _differs(left, right, key, place, matched, aligned=aligned)
    changed = int(np.count_nonzero(differs))
    counts = Counts(len(place) - both, left.num_rows - both, changed, both - changed)
    return Compared(counts, _rows(left, right, key, place, matched, differs) if rows else None)


def change_schema(left: pa.Schema, right: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The columns of `Compared.rows`."""
    return pa.schema(
        [
            ("change", pa.string()),
            ("key", _struct(right, shown(key))),
            ("from", _struct(left, values_of(left, key))),
            ("to", _struct(right, values_of(right, key))),
        ]
    )


def shown(key: Sequence[str]) -> list[str]:
    """The key columns that are not made up here."""
    return [name for name in key if name not in HIDDEN]


def values_of(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns that are neither key nor the format's own."""
    return [name for name in schema.names if name not in key and name not in HIDDEN]


def _struct(schema: pa.Schema, names: Sequence[str]) -> pa.DataType:
    return pa.struct([schema.field(name) for name in names]) if names else pa.null()


def _counts_up(place: Rows) -> bool:
    return not len(place) or bool(place[0] == 0 and place[-1] == len(place) - 1 and (np.diff(place) == 1).all())


def _differs(
    left: pa.Table, right: pa.Table, key: Sequence[str], place: Rows, matched: Mask, *, aligned: bool
) -> Mask:
    """Of each row on the right, whether its key is on the left with other values."""
    names = [name for name in values_of(right.schema, key) if name in left.schema.names]
    result = np.zeros(len(place), dtype=bool)
    if not names or not matched.any():
        return result
    rows = None if aligned else np.flatnonzero(matched)
    differs = np.zeros(len(place) if rows is None else len(rows), dtype=bool)
    at = None if rows is None else (place[rows], rows)
    for name in names:
        differs |= _unequal(one_array(left.column(name)), one_array(right.column(name)), at)
    if rows is None:
        return differs
    result[rows] = differs
    return result


def _unequal(a: pa.Array, b: pa.Array, at: tuple[Rows, Rows] | None) -> Mask:
    """Row by row; at: which rows of each."""
    if a.type != b.type:
        a, b = _alike(a, b)
    kind = a.type
    if pa.types.is_primitive(kind) and not (pa.types.is_interval(kind) or a.null_count or b.null_count):
        x, y = a.to_numpy(zero_copy_only=False), b.to_numpy(zero_copy_only=False)
        if at is not None:
            x, y = x[at[0]], y[at[1]]
        unequal = x != y
        if pa.types.is_floating(kind):
            # NaN is not equal to itself, and a value that stayed NaN has not changed.
            unequal &= ~(np.isnan(x) & np.isnan(y))
        return cast(Mask, unequal)
    if at is not None:
        a, b = a.take(pa.array(at[0])), b.take(pa.array(at[1]))
    # The usual column has not changed at all, which is cheaper to see than row by row.
    elif a.equals(b):
        return np.zeros(len(a), dtype=bool)
    if pa.types.is_null(kind):
        return np.zeros(len(a), dtype=bool)
    if incomparable(kind) or pa.types.is_dictionary(kind):
        # As texts NaN equals NaN in nested values, too.
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return np.fromiter((repr(x) != repr(y) for x, y in pairs), dtype=bool, count=len(a))
    import pyarrow.compute as pc

    # Null against anything is null here: not equal, but for two nulls, which come next.
    equal = pc.fill_null(pc.equal(a, b), False)
    if a.null_count and b.null_count:
        equal = pc.or_(equal, pc.and_(a.is_null(), b.is_null()))
    if pa.types.is_floating(kind):
        nan = pc.and_(pc.fill_null(pc.is_nan(a), False), pc.fill_null(pc.is_nan(b), False))
        equal = pc.or_(equal, nan)
    return cast(Mask, ~equal.to_numpy(zero_copy_only=False))


def _alike(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both of one type: the right one's if the left fits into it, else as text."""
    try:
        return a.cast(b.type), b
    except pa.ArrowException:
        return pa.array([_text(x) for x in a.to_pylist()]), pa.array([_text(x) for x in b.to_pylist()])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _rows(left: pa.Table, right: pa.Table, key: Sequence[str], place: Rows, matched: Mask, differs: Mask) -> pa.Table:
    here = np.flatnonzero(differs | ~matched)
    # Whatever no row on the right matches is gone.
    gone = np.ones(left.num_rows, dtype=bool)
    gone[place[matched]] = False
    lost = np.flatnonzero(gone)
    words = np.where(matched[here], "changed", "added").tolist() + ["removed"] * len(lost)
    before = np.concatenate([place[here], lost])  # -1: added
    after = np.concatenate([here, np.full(len(lost), -1)])
    names = shown(key)
    keys = pa.concat_tables([right.select(names).take(pa.array(here)), left.select(names).take(pa.array(lost))])
    schema = change_schema(left.schema, right.schema, key)
    columns = [
        pa.array(words, pa.string()),
        _packed(keys, schema.field("key").type, np.zeros(len(words), dtype=bool)),
        _packed(_taken(left, values_of(left.schema, key), before), schema.field("from").type, before < 0),
        _packed(_taken(right, values_of(right.schema, key), after), schema.field("to").type, after < 0),
    ]
    return pa.table(columns, schema=schema)


def _taken(table: pa.Table, names: Sequence[str], rows: Rows) -> pa.Table:
    """Rows by number; null where it is negative."""
    return table.select(names).take(pa.array(np.maximum(rows, 0), mask=rows < 0))


def _packed(table: pa.Table, kind: pa.DataType, absent: Mask) -> pa.Array:
    """The columns as one struct, null where it is absent; nulls alone where there are no columns."""
    if pa.types.is_null(kind):
        return pa.nulls(len(absent))
    return pa.StructArray.from_arrays([one_array(c) for c in table.columns], fields=list(kind), mask=pa.array(absent))
