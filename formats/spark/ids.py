"""What state is divided into, partitions of operators and of their stores; what the view calls them, and sources."""

from __future__ import annotations

from typing import NamedTuple

from formats.ids import TaskId


class StateTask(NamedTuple):
    """One partition of an operator, which is a task of Spark's: both by number."""

    operator: int
    partition: int

    @property
    def id(self) -> TaskId:
        """What the view calls it."""
        return TaskId(str(self.operator), self.partition)


class StorePartition(NamedTuple):
    """One partition of one of an operator's stores."""

    operator: int
    partition: int
    store: str

    @property
    def task(self) -> StateTask:
        """The task that reads and writes it."""
        return StateTask(self.operator, self.partition)


def source_task(name: str) -> TaskId:
    """The only task of a source, which the log knows as `0`, `1`, ..., and the view as the operator `source-0`."""
    return TaskId(f"source-{name}", 0)
