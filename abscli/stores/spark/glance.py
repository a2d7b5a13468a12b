"""What a shell offers from a checkpoint of Spark: from names, and the metadata of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.spark.checkpoint import Checkpoint, is_spark
from formats.spark.ids import source_task
from formats.storage import Storage


class SparkGlance(NamedTuple):
    """A checkpoint of Spark as `abscli.stores.base.Glance`."""

    checkpoint: Checkpoint

    def epochs(self) -> Iterator[int]:
        return reversed(self.checkpoint.numbers())

    def tags(self) -> Iterator[str]:
        return iter(())

    def operators(self, epoch: int | str | None, *, stateful: bool = False) -> dict[str, int]:
        """Operators with state, then sources: the two kinds that the view has."""
        operators = {str(number): len(self.checkpoint.partitions(number)) for number in self.checkpoint.operators()}
        if stateful:
            return operators
        batch = epoch if isinstance(epoch, int) else next(self.epochs(), None)
        sources = () if batch is None else self.checkpoint.offsets(batch).sources
        return operators | {source_task(name).operator: 1 for name in sources}


def glance(storage: Storage) -> SparkGlance | None:
    """The checkpoint; None if none of Spark's lies there."""
    return SparkGlance(Checkpoint(storage)) if is_spark(storage) else None
