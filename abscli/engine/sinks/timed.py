"""A sink's task whose steps are timed: a worker reports which of its sinks wait, and for how long."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from abscli.engine.sinks.contract import Sink
from abscli.engine.waits import Doing, StepTimer, Wait
from formats.native.facts import SinkFile
from formats.native.sink import epoch_of_part


class TimedSink:
    """Another `Sink`, timed while it stages rows.

    operator: the id of the sink.
    """

    def __init__(self, sink: Sink, operator: str, steps: StepTimer) -> None:
        self._sink = sink
        self._operator = operator
        self._steps = steps

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """See `Sink.parts`."""
        return self._sink.parts

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Sink.write`."""
        self._sink.write(batch)

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """See `Sink.cut`."""
        stage = self._sink.cut(epoch)
        parts = self._sink.parts
        target = parts[-1].directory if parts else ""
        rows = sum(part.rows for part in parts if epoch_of_part(part.name) == epoch)
        step = Wait(self._operator, Doing.STAGE, target, epoch, rows)

        def timed() -> tuple[SinkFile, ...]:
            with self._steps.run(step):
                return stage()

        return timed

    def commit(self, epoch: int) -> None:
        """See `Sink.commit`."""
        self._sink.commit(epoch)

    def close(self) -> None:
        """See `Sink.close`."""
        self._sink.close()
