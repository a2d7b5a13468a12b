"""A delivery that was staged as Parquet, as rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from abscli.engine.sinks.staged.contract import Delivery

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


@contextlib.contextmanager
def opened(delivery: Delivery) -> Iterator[list[ParquetFile]]:
    """Its parts, which can be read several times meanwhile; Damaged, NotFound."""
    from pyarrow.parquet import ParquetFile

    with contextlib.ExitStack() as files:
        yield [ParquetFile(files.enter_context(delivery.open(part))) for part in delivery.parts]
