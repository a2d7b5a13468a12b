"""Rows of a topic's records: a column for each key of a JSON value, or its text; the record's key, and its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from abscli.engine.sources.columns import schema_of
from abscli.engine.sources.json_rows import parse_objects
from abscli.engine.sources.text_records import Spans
from formats.ids import TaskId
from formats.job.model import Operator

VALUE = "value"
"""The column of the text of values, where no schema says what they are."""


class Record(NamedTuple):
    """As a broker has it. time: milliseconds since 1970, None where it has none."""

    offset: int
    key: bytes | None
    value: bytes | None
    time: int | None


def schema_of_values(operator: Operator, kept: dict[str, str] | None = None) -> pa.Schema:
    """The columns that values have. kept: what an epoch has kept of them. UsageError for a type that is none."""
    declared = kept or (operator.connector or {}).get("schema")
    if declared is None:
        return pa.schema([pa.field(VALUE, pa.string())])
    return schema_of(declared, f"operator {operator.id}")


def schema_of_records(operator: Operator, kept: dict[str, str] | None = None) -> pa.Schema:
    """All columns of a source; UsageError."""
    options, fields = operator.connector or {}, [*schema_of_values(operator, kept)]
    if "key" in options:
        fields.append(pa.field(options["key"], pa.string()))
    if "timestamp" in options:
        fields.append(pa.field(options["timestamp"], pa.timestamp("us")))
    return pa.schema(fields)


class Rows:
    """Makes rows of records. kept: as of `schema_of_values`; failures: takes records that cannot be read, None: they
    end the run."""

    def __init__(
        self, operator: Operator, kept: dict[str, str] | None, task: TaskId, failures: Failures | None
    ) -> None:  # fmt: skip
        options = operator.connector or {}
        self.schema = schema_of_records(operator, kept)
        self._values = schema_of_values(operator, kept)
        self._is_json = "schema" in options
        self._has_key, self._has_time = "key" in options, "timestamp" in options
        self._task = task
        self._failures = failures

    @property
    def connector(self) -> dict[str, str] | None:
        """What an epoch keeps: the columns of JSON values."""
        return {field.name: str(field.type) for field in self._values} if self._is_json else None

    def of(self, split: str, records: Sequence[Record]) -> pa.RecordBatch:
        """A row for each record that can be read."""
        batches = [*self._readable(split, records)]
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        return (table.to_batches() or [pa.RecordBatch.from_pylist([], self.schema)])[0]

    def _readable(self, split: str, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
        """Those that cannot be read are looked for by halves."""
        if not records:
            return
        try:
            batch = self._parsed(records)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if len(records) > 1:
                middle = len(records) // 2
                yield from self._readable(split, records[:middle])
                yield from self._readable(split, records[middle:])
            else:
                self._fails(split, records[0], error)
        else:
            yield batch

    def _parsed(self, records: Sequence[Record]) -> pa.RecordBatch:
        if self._is_json:
            columns = self._columns([record.value for record in records])
        else:
            columns = [_texts([record.value for record in records])]
        if self._has_key:
            columns.append(_texts([record.key for record in records]))
        if self._has_time:
            times = [None if record.time is None else record.time * 1000 for record in records]
            columns.append(pa.array(times, pa.timestamp("us")))
        return pa.record_batch(columns, schema=self.schema)

    def _columns(self, values: Sequence[bytes | None]) -> list[pa.Array]:
        """Of JSON; a value that is not there, as where a key was removed, has nulls alone."""
        there = [value.strip() for value in values if value is not None]
        table = parse_objects(Spans.of_values(there), self._values)
        columns = [table.column(f.name).cast(f.type).combine_chunks() for f in self._values]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        if len(there) == len(values):
            return columns
        rows = iter(range(len(there)))
        places = pa.array([None if value is None else next(rows) for value in values], pa.int64())
        return [column.take(places) for column in columns]

    def _fails(self, split: str, record: Record, error: Exception) -> None:
        text = record.value or b""
        if self._failures is not None:
            self._failures.add_text(text, split, record.offset, error)
            return
        shown = text.decode("utf-8", "replace")
        reason = (str(error).splitlines() or [""])[0]
        wanted = "does not fit the schema" if self._is_json else "is not text"
        raise JobFailed(
            f"task {self._task}: {split}, offset {record.offset}: {shown[:200]!r} {wanted}: {reason}",
            hint="skip such records with `on_error: skip` or a dead letter; or correct the schema of the source, "
            "and run the job with a new store",
        ) from None


def _texts(values: Sequence[bytes | None]) -> pa.Array:
    """UnicodeDecodeError."""
    return pa.array([None if value is None else value.decode() for value in values], pa.string())
