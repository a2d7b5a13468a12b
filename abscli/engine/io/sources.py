"""Sources: files in splits, each with a position, read in batches."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from abscli.engine.errors import JobFailed, UsageError
from formats.errors import UnsafePath
from formats.ids import TaskId
from formats.job.model import Operator
from formats.view import Position

CHUNK = 1 << 20
"""Bytes read at a time; a batch holds the whole lines among them."""

SOURCE_TYPES = ("text", "jsonl")
LINES = pa.schema([pa.field("line", pa.string())])
"""What a text source reads."""


MAX_LINE = 256 << 20
"""Bytes of a line, which has to fit into memory several times over."""


class Source(Protocol):
    """One source task. positions: per split, offset in bytes and records so far; connector: what else to keep."""

    @property
    def finished(self) -> bool:
        """Whether every split has been read to its end."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """How far each split of this task has been read."""

    @property
    def connector(self) -> dict[str, str] | None:
        """Facts that reading on needs besides positions."""

    def read(self) -> pa.RecordBatch | None:
        """The next rows; None at the end of the input."""

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """Read no further, until it is called again. offsets: by split, the ends of lines; lines: at most so many."""


def _place(position: Position | None, split: str) -> Position:
    """Where reading of a split begins."""
    if position is None:
        return Position(split, 0, 0)
    return Position(split, position.offset or 0, position.records or 0)


class LineFiles:
    """The files of one task, one after the other, in whole lines. A split is a path relative to the job file."""

    def __init__(
        self, splits: Iterable[str], directory: str, task: TaskId, positions: Iterable[Position] | None
    ) -> None:
        by_split = {p.split: p for p in positions or ()}
        names = list(by_split) if positions is not None else list(splits)
        # Kept as they are handed out: with thousands of files, those that stand where they stood are not made anew.
        self._positions = {name: _place(by_split.get(name), name) for name in names}
        self._todo = deque(names)
        self._directory = directory
        self._task = task
        self._ends: Mapping[str, int] | None = None
        self._lines: int | None = None

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(self._positions.values())

    @property
    def finished(self) -> bool:
        return not self._todo

    def next_lines(self) -> tuple[str, bytes] | None:
        """(split, whole lines) or None at the end; the caller reports the rows with `advance`."""
        while (name := self._next_split()) is not None:
            lines = self._read_lines(name, self._offset(name))
            if lines:
                return name, lines if self._lines is None else self._first_lines(lines)
            self._todo.remove(name)  # of which it is the first, or one of a few that may still be read
        return None

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """As of `Source`. A split that is not among the offsets is not read."""
        self._ends, self._lines = offsets, lines

    def _next_split(self) -> str | None:
        if self._lines == 0:
            return None
        if self._ends is None:
            return self._todo[0] if self._todo else None
        # One that may be read no further now is not at its end.
        ends = self._ends
        return next((name for name in self._todo if self._offset(name) < ends.get(name, 0)), None)

    def _first_lines(self, data: bytes) -> bytes:
        """As many lines as may still be read."""
        assert self._lines is not None
        end = 0
        while self._lines and end < len(data):
            end = data.find(b"\n", end) + 1 or len(data)
            self._lines -= 1
        return data[:end]

    def advance(self, split: str, size: int, records: int) -> None:
        """Note that `size` bytes of a split became `records` rows."""
        self._positions[split] = Position(split, self._offset(split) + size, self.records(split) + records)

    def records(self, split: str) -> int:
        """Rows read of a split so far."""
        return self._positions[split].records or 0

    def _offset(self, split: str) -> int:
        return self._positions[split].offset or 0

    def _read_lines(self, name: str, offset: int) -> bytes:
        path = os.path.join(self._directory, name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < offset:
                    raise JobFailed(
                        f"task {self._task}: {path} has {size} bytes, it was read up to {offset} before",
                        hint="a source file must not shrink; put it back, or go back with --from-epoch",
                    )
                file.seek(offset)
                data = self._chunk(file, name)
                while data and not data.endswith(b"\n"):
                    if len(data) > MAX_LINE:
                        raise JobFailed(
                            f"task {self._task}: {path} has a line of more than {MAX_LINE} bytes, at byte {offset}",
                            hint="is it a file of lines?",
                        )
                    more = self._chunk(file, name)
                    if not more:
                        return data
                    whole = more.rfind(b"\n") + 1
                    if whole:
                        return data + more[:whole]
                    data += more
                return data
        except OSError as error:
            raise JobFailed(f"task {self._task}: cannot read {path}: {error.strerror}") from error

    def _chunk(self, file: IO[bytes], name: str) -> bytes:
        return file.read(CHUNK if self._ends is None else min(CHUNK, self._ends[name] - file.tell()))


class _FromLines:
    """What sources that read lines of files leave to these."""

    def __init__(self, files: LineFiles) -> None:
        self._files = files

    @property
    def finished(self) -> bool:
        return self._files.finished

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._files.positions

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        self._files.stop_at(offsets, lines=lines)


class TextSource(_FromLines):
    """One column `line`: UTF-8, invalid bytes replaced, without the line's end (`\\n` or `\\r\\n`)."""

    connector: dict[str, str] | None = None

    def read(self) -> pa.RecordBatch | None:
        texts: list[str] = []
        size = 0
        while size < CHUNK and (chunk := self._files.next_lines()) is not None:
            split, data = chunk
            text = data.decode("utf-8", "replace").removesuffix("\n")
            self._files.advance(split, len(data), text.count("\n") + 1)
            texts.append(text)
            size += len(data)
        if not texts:
            return None
        everything = "\n".join(texts)
        lines = pc.split_pattern(pa.array([everything], pa.large_string()), "\n").flatten().cast(pa.string())
        if "\r" in everything:
            lines = pc.replace_substring_regex(lines, r"\r$", "")
        return pa.record_batch([lines], names=["line"])


class JsonLinesSource(_FromLines):
    """A column per key. The types come from `schema`, else from the first file of all; they are kept in snapshots."""

    def __init__(self, files: LineFiles, schema: pa.Schema, task: TaskId) -> None:
        super().__init__(files)
        self._schema = schema
        self._task = task

    @property
    def connector(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._schema}

    def read(self) -> pa.RecordBatch | None:
        chunk = self._files.next_lines()
        if chunk is None:
            return None
        split, data = chunk
        options = pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore")
        text = _with_numbers(data, self._schema)
        try:
            table = pj.read_json(
                pa.BufferReader(text), pj.ReadOptions(use_threads=False, block_size=len(text) + 1), options
            )
        except pa.ArrowInvalid as error:
            line, bad = _bad_line(text, self._schema)
            raise JobFailed(
                f"task {self._task}: {split}, record {self._files.records(split) + 1 + line}: {bad[:200]!r} "
                f"does not fit the schema: {str(error).splitlines()[0]}"
            ) from None
        self._files.advance(split, len(data), table.num_rows)
        columns = [table.column(f.name).combine_chunks().cast(f.type) for f in self._schema]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        return pa.record_batch(columns, schema=self._schema)


_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _with_numbers(data: bytes, schema: pa.Schema) -> bytes:
    """The lines with a number where a column of floats has the name of one (`"NaN"`), as sinks write it: Arrow reads
    NaN and Infinity themselves, which are no JSON, but not their names. A line that is none is left for Arrow to
    refuse."""
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    if not floats or not any(f'"{name}"'.encode() in data for name in _NAMES):
        return data
    return b"\n".join(_with_numbers_in(line, floats) for line in data.split(b"\n"))


def _with_numbers_in(line: bytes, floats: list[str]) -> bytes:
    if b'NaN"' in line or b'Infinity"' in line:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            names = {name: row[name] for name in floats if name in row and isinstance(row[name], str)}
            numbers = {name: _NAMES[text] for name, text in names.items() if text in _NAMES}
            if numbers:
                return json.dumps({**row, **numbers}).encode()
    return line


def _bad_line(data: bytes, schema: pa.Schema) -> tuple[int, str]:
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    lines = [line for line in data.split(b"\n") if line.strip()]
    for i, line in enumerate(lines):
        try:
            pj.read_json(pa.BufferReader(line), parse_options=options)
        except pa.ArrowInvalid:
            return i, line.decode("utf-8", "replace")
    return 0, lines[0].decode("utf-8", "replace") if lines else ""


_TYPES = {
    "string": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "int64": pa.int64(), "int32": pa.int32(),
    "long": pa.int64(), "float": pa.float64(), "double": pa.float64(), "float64": pa.float64(),
    "timestamp": pa.timestamp("us"), "timestamp[us]": pa.timestamp("us"), "timestamp[s]": pa.timestamp("s"),
    "timestamp[ns]": pa.timestamp("ns"), "date": pa.date32(), "date32[day]": pa.date32(), "null": pa.null(),
}  # fmt: skip


def declared_schema(operator: Operator, kept: dict[str, str] | None = None) -> pa.Schema | None:
    """The columns of a source before a file is looked at; None for a jsonl source without a schema.

    kept: what an epoch has kept of them, in place of the topology file. UsageError for a type of column that is none.
    """
    assert operator.connector is not None
    if operator.connector["type"] == "text":
        return LINES
    declared = kept or operator.connector.get("schema")
    return _schema(declared, f"operator {operator.id}") if declared else None


def _schema(types: dict[str, Any], where: str) -> pa.Schema:
    fields = []
    for name, kind in types.items():
        if kind not in _TYPES:
            raise UsageError(f"{where}: unknown type {kind!r} of column {name!r}", hint=f"one of {', '.join(_TYPES)}")
        fields.append(pa.field(name, _TYPES[kind]))
    return pa.schema(fields)


def infer_schema(path: str) -> pa.Schema:
    """The columns of a file of JSON lines, each with the type of its first values; UsageError if there are none."""
    try:
        schema = pj.read_json(path).schema
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot infer its columns: {str(error).splitlines()[0]}") from None
    return pa.schema([f if str(f.type) in _TYPES else pa.field(f.name, pa.string()) for f in schema])


def find_splits(operator: Operator, directory: str) -> list[str]:
    """All splits of a file source, sorted by path, relative to the job file; UsageError if there is none."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    splits = sorted(
        path
        for path in glob.glob(pattern, root_dir=directory, recursive=True)
        if os.path.isfile(os.path.join(directory, path))
    )
    if not splits:
        hint = f"looked in {directory}"
        if os.path.isdir(os.path.join(directory, pattern)):
            hint += f"; it is a directory there: name its files, such as {os.path.join(pattern, '*')}"
        raise UsageError(f"operator {operator.id}: no file matches {pattern!r}", hint=hint)
    return splits


def _refuse_strangers(operator: Operator, directory: str, positions: Iterable[Position]) -> None:
    """UnsafePath for a split that a store names and the job's source does not: a store must not choose what is read."""
    assert operator.connector is not None
    pattern = operator.connector["path"]
    own = set(glob.glob(pattern, root_dir=directory, recursive=True))
    for position in positions:
        path = os.path.join(directory, position.split)
        if position.split not in own and os.path.lexists(path):  # a file that is gone is told when it is opened
            raise UnsafePath(
                f"the epoch has a position in it, and the source {operator.id} of the job file, {pattern!r}, does not "
                "name it",
                path=path,
                hint="give the source the path that it had; if it has not changed, do not trust this store",
            )


def make_source(
    operator: Operator,
    index: int,
    directory: str,
    positions: Iterable[Position] | None,
    connector: dict[str, str] | None,
) -> Source:
    """The source of subtask `index`. positions: restored ones, or None to begin; UsageError for unknown types."""
    assert operator.connector is not None
    kind, task = operator.connector["type"], TaskId(operator.id, index)
    if kind not in SOURCE_TYPES:
        raise UsageError(f"operator {operator.id}: no source type {kind!r}", hint=" or ".join(SOURCE_TYPES))
    if positions is not None:
        positions = tuple(positions)
        _refuse_strangers(operator, directory, positions)
    splits: list[str] = []
    if positions is None or (kind == "jsonl" and connector is None):
        splits = find_splits(operator, directory)
    files = LineFiles(splits[index :: operator.parallelism], directory, task, positions)
    if kind == "text":
        return TextSource(files)
    schema = declared_schema(operator, connector) or infer_schema(os.path.join(directory, splits[0]))
    return JsonLinesSource(files, schema, task)
