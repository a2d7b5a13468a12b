"""The source of a task, by its type."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from functools import partial

import pyarrow as pa

from abscli.engine.errors import UsageError
from abscli.engine.failures import Failures
from abscli.engine.sources.columns import chosen, schema_of
from abscli.engine.sources.contract import Source
from abscli.engine.sources.event_times import EventTimes
from abscli.engine.sources.files import csv, jsonl, text
from abscli.engine.sources.files.arrow import open_arrow
from abscli.engine.sources.files.csv import CsvForm, CsvSource, infer_csv
from abscli.engine.sources.files.csv_records import CsvRecords
from abscli.engine.sources.files.finding import find_splits, refuse_strangers
from abscli.engine.sources.files.following import Followed, FollowedSplits, FollowingSource
from abscli.engine.sources.files.input_files import UnpackedFile, matching_files, open_text, path_of, status_of
from abscli.engine.sources.files.jsonl import JsonLinesSource, infer_schema
from abscli.engine.sources.files.line_files import LineFiles
from abscli.engine.sources.files.parquet import ParquetRows
from abscli.engine.sources.files.readable import Parsing
from abscli.engine.sources.files.row_files import OpenRowFile, RowFilesSource, kept_schema
from abscli.engine.sources.files.text import LINES, TextSource
from abscli.engine.sources.kafka.records import Rows, schema_of_records
from abscli.engine.sources.kafka.source import KafkaSource
from abscli.engine.sources.kafka.topics import refuse_others
from abscli.engine.sources.made import nexmark
from abscli.engine.sources.made.expressions import rows_maker, rows_schema
from abscli.engine.sources.made.generated import GeneratedSource, split_names
from abscli.engine.sources.numeric_times import NumericTimes
from abscli.engine.sources.postgres.source import PostgresSource
from abscli.engine.sources.splits import FromSplits, Splits
from formats.ids import TaskId
from formats.job.event_time import event_time_of
from formats.job.following import followed_every
from formats.job.model import Operator
from formats.view import Position

ROW_FILES: dict[str, OpenRowFile] = {"parquet": ParquetRows, "arrow": open_arrow}
FILE_TYPES = ("text", "jsonl", "csv", *ROW_FILES)
SOURCE_TYPES = (*FILE_TYPES, "nexmark", "generate", "kafka", "postgres")


def declared_schema(operator: Operator, kept: dict[str, str] | None = None) -> pa.Schema | None:
    """The columns of a source before a file is looked at; None where a file has to say them.

    kept: what an epoch has kept of them, in place of the topology file. UsageError for a type of column that is none.
    """
    assert operator.connector is not None
    kind = operator.connector["type"]
    if kind == "text":
        return LINES
    if kind == "nexmark":
        return nexmark.SCHEMAS[operator.connector["events"]]
    if kind == "generate":
        return rows_schema(operator.connector["columns"], f"operator {operator.id}")
    if kind == "kafka":
        return schema_of_records(operator, kept)
    if kind in ROW_FILES:
        return kept_schema(kept, f"operator {operator.id}") if kept else None
    declared = kept or operator.connector.get("schema")
    return schema_of(declared, f"operator {operator.id}") if declared else None


def columns_of(operator: Operator, path: str) -> pa.Schema:
    """The columns of a source whose first file this is; UsageError where it cannot say them."""
    assert operator.connector is not None
    options, where = operator.connector, f"operator {operator.id}"
    declared, wanted = declared_schema(operator), options.get("columns")
    if declared is not None:
        return declared
    if options["type"] == "csv":
        return infer_csv(path, CsvForm.of(options), wanted, where)
    if options["type"] == "jsonl":
        return infer_schema(path)
    try:
        file = ROW_FILES[options["type"]](path, None)
        schema = file.schema
        file.close()
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{where}: {path} cannot be read as {options['type']}: {reason}") from None
    return chosen(schema, wanted, path)


def extent(operator: Operator, path: str) -> int | None:
    """How far a file can be read now, in the unit of positions; None where it is not there, or is none of its kind."""
    assert operator.connector is not None
    if operator.connector["type"] not in FILE_TYPES:
        return sys.maxsize
    status = status_of(path)
    if status is None:
        return None
    if operator.connector["type"] not in ROW_FILES:
        with open_text(path) as text:  # of a compressed file the end of the text is not known
            return sys.maxsize if isinstance(text, UnpackedFile) else status.size
    try:
        file = ROW_FILES[operator.connector["type"]](path, None)
        rows = file.rows
        file.close()
    except (OSError, pa.ArrowException):
        return None
    return rows


def make_source(
    operator: Operator,
    index: int,
    directory: str,
    positions: Iterable[Position] | None,
    connector: dict[str, str] | None,
    others: Collection[str] = (),
    failures: Failures | None = None,
) -> Source:
    """The source of subtask `index`, with event time where the job looks for that. positions: restored ones, or None to
    begin; others: splits of all its tasks, where they are restored; failures: takes records that cannot be read, None:
    they end the run. UsageError for unknown types."""
    positions = None if positions is None else tuple(positions)
    source: Source = _plain(operator, index, directory, positions, connector, others, failures)
    event_time, task = event_time_of(operator), TaskId(operator.id, index)
    if event_time is None:
        return source
    if event_time.unit is not None:
        source = NumericTimes(source, event_time, task)
    return EventTimes(source, event_time, task, positions)


def _plain(
    operator: Operator,
    index: int,
    directory: str,
    positions: tuple[Position, ...] | None,
    connector: dict[str, str] | None,
    others: Collection[str],
    failures: Failures | None,
) -> Source:
    assert operator.connector is not None
    kind, task = operator.connector["type"], TaskId(operator.id, index)
    if kind not in SOURCE_TYPES:
        hint = f"use {' or '.join(SOURCE_TYPES)}"
        raise UsageError(f"operator {operator.id}: unknown source type {kind!r}", hint=hint)
    if kind == "nexmark":
        return _nexmark(operator, task, positions)
    if kind == "generate":
        return _generated(operator, task, positions)
    if kind == "kafka":
        refuse_others(operator, positions or ())
        return KafkaSource(operator, directory, task, positions, others, Rows(operator, connector, task, failures))
    if kind == "postgres":
        return PostgresSource(operator, task, positions, connector)
    if positions is not None:
        refuse_strangers(operator, directory, positions)
    splits: list[str] = []
    schema = declared_schema(operator, connector)
    every = followed_every(operator)
    if schema is None or (positions is None and every is None):
        splits = find_splits(operator, directory)
    if schema is None:
        schema = columns_of(operator, path_of(directory, splits[0]))
    if every is None:
        mine = Splits(splits[index :: operator.parallelism], positions)
        return _of_files(operator, schema, mine, directory, task, failures)
    look = partial(matching_files, operator.connector["path"], directory)
    followed = Followed(task, operator.parallelism, directory, look, frozenset(others), kind not in ROW_FILES, every)
    growing = FollowedSplits(followed, positions)
    return FollowingSource(_of_files(operator, schema, growing, directory, task, failures), growing, schema)


def _of_files(
    operator: Operator, schema: pa.Schema, splits: Splits, directory: str, task: TaskId, failures: Failures | None
) -> FromSplits:  # fmt: skip
    assert operator.connector is not None
    kind = operator.connector["type"]
    if kind in ROW_FILES:
        return RowFilesSource(ROW_FILES[kind], schema, splits, directory, task)
    if kind == "csv":
        form = CsvForm.of(operator.connector)
        records = CsvRecords(form.delimiter)
        files = LineFiles(splits, directory, task, records, heading=form.header)
        return CsvSource(files, form, schema, Parsing(task, failures, csv.HINT))
    files = LineFiles(splits, directory, task)
    if kind == "text":
        return TextSource(files, Parsing(task, failures, text.HINT))
    return JsonLinesSource(files, schema, Parsing(task, failures, jsonl.HINT))


def _nexmark(operator: Operator, task: TaskId, positions: Iterable[Position] | None) -> Source:
    assert operator.connector is not None
    options = operator.connector
    table, rate = options["events"], options.get("rate")
    return GeneratedSource(
        nexmark.maker(
            table, seed=options.get("seed", 0), rate=rate or nexmark.RATE, out_of_order=options.get("out_of_order"),
            total=options.get("total"),
        ),
        split_names(task.subtask, operator.parallelism),
        task,
        positions,
        total=nexmark.rows_among(options.get("total"), table),
        rate=rate and rate * nexmark.share(table),
    )


def _generated(operator: Operator, task: TaskId, positions: Iterable[Position] | None) -> Source:
    assert operator.connector is not None
    options = operator.connector
    return GeneratedSource(
        rows_maker(options["columns"], options.get("seed", 0), f"operator {operator.id}"),
        split_names(task.subtask, operator.parallelism),
        task,
        positions,
        total=options.get("rows"),
        rate=options.get("rate"),
    )
