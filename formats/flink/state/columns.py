"""Rows of state as Arrow record batches, with a schema that follows from the serializers.

Keyed state: the key (`key`, or `key.f0`, `key.f1`, ... of a key with fields), the namespace where there is one
(`window_start` and `window_end` in milliseconds, else `namespace`), `map_key` of map state, then `value`; timers:
`timestamp` in milliseconds. State with a time to live: `value` and `ttl_last_access`. Operator state: `subtask`,
`map_key` of broadcast state, `value`.

A value that only its own class can read is a struct of `class`, `length` and `bytes`: the column itself where all are,
a further column `<column>.opaque` where some may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from formats.errors import FormatError
from formats.flink.state.keyed_tables import RowBlock, Table
from formats.flink.state.operator import OperatorRows
from formats.flink.state.places import placed
from formats.flink.types.values import SUBCLASSES, Codec, Opaque, Shape

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = 8192
"""Rows of a batch, about: batches are put together of whole blocks."""

_OPAQUE: Final[Shape] = ("struct", (("class", "string"), ("length", "int64"), ("bytes", "binary")))


def arrow_type(shape: Shape) -> pa.DataType:
    """The Arrow type of a shape; see `values.Shape`."""
    import pyarrow as pa

    if isinstance(shape, str):
        match shape:
            case "opaque":
                return arrow_type(_OPAQUE)
            case "date32":
                return pa.date32()
            case "time32_ms":
                return pa.time32("ms")
            case _ if shape.startswith("timestamp_"):
                _, unit, *zone = shape.split("_")
                return pa.timestamp(unit, "UTC" if zone else None)
            case "bool":
                return pa.bool_()
            case _:
                return pa.type_for_alias(shape)
    match shape[0]:
        case "list":
            return pa.list_(arrow_type(shape[1]))
        case "map":
            return pa.map_(arrow_type(shape[1]), arrow_type(shape[2]))
        case "decimal":
            return pa.decimal128(shape[1], shape[2])
        case _:
            return pa.struct([(name, arrow_type(part)) for name, part in shape[1]])


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    source: the list of a block's that it is taken from (`keys`, `values`, ...).
    take: from the row's own value to the column's; None: the value itself.
    """

    name: str
    shape: Shape
    source: str
    take: Callable[[Any], Any] | None = None


def _item(i: int) -> Callable[[Any], Any]:
    return lambda value: None if value is None or isinstance(value, Opaque) else value[i]


def _opaque_only(value: Any) -> Any:
    return value if isinstance(value, Opaque) else None


def _not_opaque(value: Any) -> Any:
    return None if isinstance(value, Opaque) else value


def _whole(name: str, codec: Codec, source: str) -> list[Column]:
    """A column for a codec, and one for what it could not read."""
    if codec.kind == "opaque":
        return [Column(name, "opaque", source)]
    if codec.hides is None:
        return [Column(name, codec.shape, source)]
    return [
        Column(name, codec.shape, source, _not_opaque),
        Column(f"{name}.opaque", "opaque", source, _opaque_only),
    ]


def _key(codec: Codec) -> list[Column]:
    if codec.kind == "opaque" or isinstance(codec.shape, str) or codec.shape[0] != "struct":
        return _whole("key", codec, "keys")
    columns = [
        Column(f"key.{name}", shape, "keys", _item(i))
        for i, (name, shape) in enumerate(codec.shape[1])
        if name != "row_kind"
    ]
    plain = codec.hides in (None, SUBCLASSES)
    return columns if plain else [*columns, Column("key.opaque", "opaque", "keys", _opaque_only)]


def _namespace(codec: Codec) -> list[Column]:
    if codec.shape == "null":
        return []
    if codec.kind == "timewindow":
        return [Column(f"window_{part}", "int64", "namespaces", _item(i)) for i, part in enumerate(("start", "end"))]
    return _whole("namespace", codec, "namespaces")


def _value(codec: Codec) -> list[Column]:
    if codec.kind != "ttl":
        return _whole("value", codec, "values")
    columns = [Column("value", codec.parts[1].shape, "values", _item(1))]
    if codec.parts[1].kind == "opaque":
        columns = [Column("value", "opaque", "values", _opaque_only)]
    elif codec.hides is not None:
        columns.append(Column("value.opaque", "opaque", "values", _opaque_only))
    return [*columns, Column("ttl_last_access", "int64", "values", _item(0))]


def keyed_columns(table: Table) -> list[Column]:
    """The columns of keyed state, the key's first."""
    columns = [*_key(table.key), *_namespace(table.namespace)]
    if table.timers:
        return [*columns, Column("timestamp", "int64", "values")]
    if table.user_key is not None:
        return [*columns, *_whole("map_key", table.user_key, "user_keys"), *_value(table.item)]
    return [*columns, *_value(table.value if table.is_list else table.item)]


def operator_columns(rows: OperatorRows) -> list[Column]:
    """The columns of operator state."""
    key = _whole("map_key", rows.key, "keys") if rows.key is not None else []
    return [Column("subtask", "int32", "subtasks"), *key, *_value(rows.value)]


def batch(columns: list[Column], sources: dict[str, list[Any]], subject: str) -> pa.RecordBatch:
    """A batch of columns taken from lists of equal length. what: the state, for messages."""
    import pyarrow as pa

    arrays, fields = [], []
    for column in columns:
        values = sources[column.source]
        if column.take is not None:
            values = [column.take(value) for value in values]
        kind = arrow_type(column.shape)
        try:
            arrays.append(_array(values, kind))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"{subject}: column {column.name} cannot be shown as {kind}: {error}") from None
        fields.append(pa.field(column.name, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, which Java's strings may hold and UTF-8 may not
        return pa.array([_escaped(value) for value in values], kind)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, tuple | list):
        return type(value)(map(_escaped, value)) if not isinstance(value, Opaque) else value
    return value


def keyed_batches(blocks: Iterable[RowBlock], subtask: int | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of the blocks of one state. A problem is raised when the rows before it have been given.

    subtask: whose they are, where that and their key groups are wanted.
    """
    pending: list[RowBlock] = []
    rows = 0
    for block in blocks:
        if block.keys:
            pending.append(block)
            rows += len(block.keys)
        if pending and (rows >= BATCH or block.problem is not None):
            yield _of_blocks(pending, subtask)
            pending, rows = [], 0
        if block.problem is not None:
            raise block.problem
    if pending:
        yield _of_blocks(pending, subtask)


def _of_blocks(blocks: list[RowBlock], subtask: int | None) -> pa.RecordBatch:
    table = blocks[0].table
    sources = {
        "keys": [key for block in blocks for key in block.keys],
        "namespaces": [namespace for block in blocks for namespace in block.namespaces],
        "values": [value for block in blocks for value in block.values],
        "user_keys": [key for block in blocks for key in block.user_keys or ()],
    }
    result = batch(keyed_columns(table), sources, f"state {table.name!r}")
    if subtask is None:
        return result
    return placed(result, [block.group for block in blocks for _ in block.keys], subtask)


def operator_batch(subtask: int, rows: OperatorRows, *, places: bool = False) -> pa.RecordBatch:
    """One subtask's rows of one operator state. places: with the columns of `places`."""
    sources = {"subtasks": [subtask] * len(rows.values), "keys": rows.keys or [], "values": rows.values}
    result = batch(operator_columns(rows), sources, f"state {rows.name!r}")
    return placed(result, [None] * result.num_rows, subtask) if places else result
