"""A delivery that was staged as Parquet, as rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from abscli.engine.sinks.staged.contract import Delivery

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile


@contextlib.contextmanager
def opened(delivery: Delivery) -> Iterator[list[ParquetFile]]:
    """Its parts, which can be read several times meanwhile; Damaged, NotFound."""
    from pyarrow.parquet import ParquetFile

    with contextlib.ExitStack() as files:
        yield [ParquetFile(files.enter_context(delivery.open(part))) for part in delivery.parts]


def batches_of(parts: Sequence[ParquetFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Their rows in order, with these columns, which all of them have; ArrowException where a value does not fit."""
    for part in parts:
        for batch in part.iter_batches():
            yield batch.select(schema.names).cast(schema)
