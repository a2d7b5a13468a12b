"""One schema for the rows of a state over all subtasks.

A subtask describes a subclass of a POJO only once it has met it, so that subtasks of one state can have different
structs. Readers of a whole state need one schema: it has the fields of every subtask, and null where a row has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def united(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema with the columns of all. If types have nothing in common, the first one stays."""
    import pyarrow as pa

    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            before = fields.setdefault(field.name, field)
            if not before.equals(field):
                try:
                    fields[field.name] = pa.unify_schemas([pa.schema([before]), pa.schema([field])]).field(0)
                except pa.ArrowException:
                    continue
    return pa.schema(list(fields.values()))


def alike(batches: Iterable[pa.RecordBatch], schema: Callable[[], pa.Schema]) -> Iterator[pa.RecordBatch]:
    """Yield batches with one schema. schema: is called once, and only if the rows have a type that may differ."""
    whole: pa.Schema | None = None
    for batch in batches:
        if whole is None and may_differ(batch.schema):
            whole = schema()
        yield batch if whole is None or batch.schema.equals(whole) else _as(batch, whole)


def may_differ(schema: pa.Schema) -> bool:
    """Tell whether subtasks can have different types of a column: of a struct, at any depth."""
    import pyarrow as pa

    return any(pa.types.is_nested(field.type) for field in schema)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, then those that only the batch has; as it is if types do not go."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    try:
        for field in schema:
            if field.name in batch.schema.names:
                columns[field.name] = batch.column(field.name).cast(field.type)
            else:
                columns[field.name] = pa.nulls(batch.num_rows, field.type)
    except pa.ArrowException:
        return batch
    added = {name: batch.column(name) for name in batch.schema.names if name not in columns}
    fields = [*schema, *(batch.schema.field(name) for name in added)]
    return pa.RecordBatch.from_arrays([*columns.values(), *added.values()], schema=pa.schema(fields))
