"""Rows to a file of the user's: Parquet, Arrow, JSON lines or CSV, by the ending of its name, a batch at a time."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from formats.errors import FormatError
from formats.values import plain

ENDINGS = (".parquet", ".arrow", ".jsonl", ".csv")


class BadExport(FormatError):
    """A name with an unknown ending, or rows that the format cannot hold."""


def check_ending(path: str) -> str:
    """The ending of a name; BadExport for another than those of ENDINGS."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        raise BadExport(f"{path!r} does not say which format", hint=f"end it in {', '.join(ENDINGS)}")
    return ending


def write_rows(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all batches; the number of rows. The file appears whole, under its name, or not at all."""
    ending = check_ending(path)
    fd, temporary = tempfile.mkstemp(prefix=".tmp-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with open(fd, "wb") as raw, ExitStack() as stack:
            write = _writer(ending, schema, raw, stack)
            rows = 0
            for batch in batches:
                write(batch)
                rows += batch.num_rows
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except pa.ArrowException as error:
        raise BadExport(f"cannot be written as {ending[1:]}: {str(error).splitlines()[0]}", path=path) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    return rows


def _writer(ending: str, schema: pa.Schema, raw: Any, stack: ExitStack) -> Callable[[pa.RecordBatch], object]:
    if ending == ".parquet":
        import pyarrow.parquet as pq

        parquet = stack.enter_context(pq.ParquetWriter(raw, schema, compression="zstd"))
        return parquet.write_batch  # type: ignore[no-any-return]
    if ending == ".arrow":
        arrow = stack.enter_context(pa.ipc.new_file(raw, schema))
        return arrow.write_batch  # type: ignore[no-any-return]
    if ending == ".csv":
        import pyarrow.csv as csv

        text = stack.enter_context(csv.CSVWriter(raw, schema))
        return text.write_batch  # type: ignore[no-any-return]

    def lines(batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            raw.write(json.dumps(plain(row), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")

    return lines


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
