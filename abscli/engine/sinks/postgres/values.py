"""Rows as `COPY` reads them: each value arrives in its column as it was, or the rows are refused.

PostgreSQL takes most texts for most types, and then rounds, pads or reinterprets them without an error: `0.125` becomes
`0.13` in a `numeric(10,2)`, and the bytes `\\x41` become `A` in a `bytea`. So a column is written only if `FITS` has
its pair of types; a test compares the values of each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.postgres.database import Table
from abscli.engine.sinks.part_files import CsvPart
from abscli.engine.sinks.postgres.epochs import target

if TYPE_CHECKING:
    from abscli.engine.postgres.database import Connection

_TEXTS: Final = frozenset({"text", "varchar"})
_INTEGERS: Final = frozenset({"int2", "int4", "int8"})
FITS: Final[Mapping[str, frozenset[str]]] = {
    "boolean": frozenset({"bool"}) | _TEXTS,
    "integer": _INTEGERS | {"numeric"} | _TEXTS,
    "float": frozenset({"float4", "float8"}),
    "double": frozenset({"float8", "numeric"}) | _TEXTS,
    "decimal": frozenset({"numeric"}) | _TEXTS,
    "text": _TEXTS | {"citext", "json", "jsonb", "uuid", "inet", "cidr", "xml"},
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "timestamp": frozenset({"timestamp", "timestamptz"}),
    "duration": frozenset({"interval"}),
    "binary": frozenset({"bytea"}),
}
"""By the kind of an Arrow type, the base types of columns that keep each of its values."""
_ROUNDED: Final = frozenset({"time", "timestamp", "timestamptz", "interval"})
"""Base types that round their values if they have a precision."""
_SCALE_BITS: Final = 0x7FF
_COLUMNS: Final = """
    with recursive base(name, needed, type, modifier) as (
        select attname, attnotnull and not atthasdef and attidentity = '', atttypid, atttypmod from pg_attribute
        where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped
        union all
        select name, needed, typbasetype, typtypmod from base join pg_type on pg_type.oid = type where typtype = 'd')
    select name, typname, typtype = 'e', format_type(type, modifier), modifier, needed
    from base join pg_type on pg_type.oid = type where typtype <> 'd'"""


class Column(NamedTuple):
    """A column of a table.

    base: the name of its type; of a domain, that of the type it is made of.
    is_enum: whether that is an enum.
    kind: the type with its precision, as the database writes it.
    modifier: the precision as `pg_attribute.atttypmod` has it, -1 without one.
    is_needed: whether each row must have a value for it: it is NOT NULL and has no default.
    """

    base: str
    is_enum: bool
    kind: str
    modifier: int
    is_needed: bool = False

    @property
    def most_characters(self) -> int | None:
        """The limit of a `varchar(n)`; None of other columns."""
        return self.modifier - 4 if self.base == "varchar" and self.modifier != -1 else None

    def fits(self, type: pa.DataType) -> bool:
        """Tell whether the column keeps each value of an Arrow type."""
        kind = kind_of(type)
        if kind == "null":
            return True
        if self.is_enum:
            return kind == "text"
        if kind is None or self.base not in FITS[kind]:
            return False
        if self.base in _ROUNDED:
            return self.modifier == -1
        if self.base == "numeric" and self.modifier != -1:
            scale = (self.modifier - 4) & _SCALE_BITS
            is_negative = scale > _SCALE_BITS // 2
            needed = {"integer": 0, "decimal": type.scale if kind == "decimal" else 0}.get(kind)
            return not is_negative and needed is not None and scale >= needed
        return True


def kind_of(type: pa.DataType) -> str | None:
    """Return the kind of an Arrow type, a key of `FITS`; "null" of a column of nulls; None of other types."""
    types = pa.types
    tests: dict[str, Callable[[pa.DataType], bool]] = {
        "null": types.is_null,
        "boolean": types.is_boolean,
        "integer": types.is_integer,
        "float": lambda type: types.is_float16(type) or types.is_float32(type),
        "double": types.is_float64,
        "decimal": types.is_decimal,
        "text": lambda type: types.is_string(type) or types.is_large_string(type) or types.is_string_view(type),
        "date": types.is_date,
        "time": types.is_time,
        "timestamp": types.is_timestamp,
        "duration": types.is_duration,
        "binary": lambda type: (
            types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type)
            or types.is_fixed_size_binary(type)
        ),
    }  # fmt: skip
    return next((kind for kind, is_kind in tests.items() if is_kind(type)), None)


class ColumnCheck:
    """Compares the columns of rows with those of a table; the same columns once.

    Raises JobFailed if a column of the rows has no column in the table, or one that would change its values;
    EngineStopped if the database does not answer.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._checked: pa.Schema | None = None
        self._limits: dict[str, int] = {}

    def __call__(self, schema: pa.Schema) -> None:
        """Check the columns of rows."""
        if self._checked is not None and schema.equals(self._checked):
            return
        columns = self._table.ask(lambda connection: columns_in(connection, self._table))
        for message, hint in unfit_columns(self._table.title, columns, schema):
            raise JobFailed(f"sink {self._table.operator}: {message}", hint=hint)
        limits = {name: columns[name].most_characters for name in schema.names}
        self._limits = {name: most for name, most in limits.items() if most is not None}
        self._checked = schema

    def check_values(self, batch: pa.RecordBatch) -> None:
        """Raise JobFailed for texts whose trailing blanks PostgreSQL would cut off to make them fit a `varchar(n)`."""
        for name, most in self._limits.items():
            texts = batch.column(name)
            if not pa.types.is_string(texts.type):
                texts = texts.cast(pa.string())
            shortened = pc.less_equal(pc.utf8_length(pc.utf8_rtrim(texts, " ")), most)
            cut = pc.and_(pc.greater(pc.utf8_length(texts), most), shortened)
            if pc.any(cut).as_py():
                raise JobFailed(
                    f"sink {self._table.operator}: column {name!r} of {self._table.title} takes {most} characters: a "
                    "text has trailing blanks beyond them, which PostgreSQL would cut off without an error",
                    hint="change the column to text; or remove the blanks in the job",
                )


def unfit_columns(title: str, columns: Mapping[str, Column], schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each column of rows that has no column in a table, or one that would change its
    values.

    title: what messages call the table. columns: of the table, by name.
    """
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            yield (
                f"{title} has no column {field.name!r} ({field.type})",
                "give the table the same column names as the rows, with compatible types",
            )
        elif not column.fits(field.type):
            fitting = sorted(FITS.get(kind_of(field.type) or "", ()))
            yield (
                f"column {field.name!r} of {title} has the type {column.kind}, which does not keep all values of "
                f"{field.type}",
                f"change the column to one of {', '.join(fitting)}, without a precision; or cast the column in the job"
                if fitting
                else "cast the column in the job, such as to string",
            )


def columns_in(connection: Connection, table: Table) -> dict[str, Column]:
    """Return the columns of a table by name. Raises psycopg.Error."""
    name = target(table).as_string(connection)
    return {str(name): Column(*rest) for name, *rest in connection.execute(_COLUMNS, (name,)).fetchall()}  # type: ignore[arg-type]


class CopyPart(CsvPart):
    """The CSV of `COPY`.

    check: of the table, for columns and values that it cannot hold.
    """

    TYPE = "PostgreSQL"

    def __init__(self, file: IO[bytes], name: str, sink: str, *, check: ColumnCheck) -> None:
        super().__init__(file, name, sink)
        self._check_table = check

    def _check(self, schema: pa.Schema) -> None:
        super()._check(schema)
        self._check_table(schema)

    def _append(self, batch: pa.RecordBatch) -> None:
        self._check_table.check_values(batch)
        try:
            columns = [as_copied(column) for column in batch.columns]
        except pa.ArrowInvalid as error:
            raise JobFailed(
                f"sink {self._sink}: {error}",
                hint="cast the column in the job to microseconds, which is what PostgreSQL keeps",
            ) from None
        super()._append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))


def as_copied(column: pa.Array) -> pa.Array:
    """Return a column with the texts or numbers that `COPY` reads as its values.

    Raises ArrowInvalid for moments and durations with fractions of a microsecond.
    """
    kind = kind_of(column.type)
    if kind == "float":  # as the number that it is: the shortest text of a float is another double
        return column.cast(pa.float64())
    if kind == "timestamp":  # in UTC: texts with another offset lack its seconds, and some columns ignore it
        return column.cast(pa.timestamp("us", None if column.type.tz is None else "UTC"))
    if kind == "time":
        return column.cast(pa.time64("us"))
    if kind == "date":
        return column.cast(pa.date32())
    if kind == "duration":
        return _intervals(column.cast(pa.duration("us")).cast(pa.int64()))
    if kind == "binary":
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())
    if kind == "text":
        return column.cast(pa.string())
    return column


def _intervals(microseconds: pa.Array) -> pa.Array:
    """Return intervals such as `-277:46:40.5`, of which PostgreSQL takes every digit."""

    def text(value: int) -> str:
        seconds, fraction = divmod(abs(value), 1_000_000)
        minutes, hours = seconds // 60 % 60, seconds // 3600
        return f"{'-' if value < 0 else ''}{hours}:{minutes:02}:{seconds % 60:02}.{fraction:06}"

    return pa.array([None if value is None else text(value) for value in microseconds.to_pylist()], pa.string())
