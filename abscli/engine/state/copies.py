"""Copies of a task's keyed state: what one holds, and the stretches between them in which keys change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa


class Intervals:
    """The stretches from one copy of a task to the next, numbered from 0. current: no copy has ended it yet."""

    def __init__(self) -> None:
        self.current = 0
        self._epochs: dict[int, int] = {}

    def end(self, epoch: int) -> None:
        """What changes from now on is not in the copy of `epoch`."""
        self._epochs[self.current] = epoch
        self.current += 1

    def after(self, epoch: int) -> int:
        """The first of which the copy of `epoch` has nothing."""
        return min((number for number, end in self._epochs.items() if end > epoch), default=self.current)

    @property
    def oldest(self) -> int:
        """The first that somebody may still ask for."""
        return min(self._epochs, default=self.current)

    def forget(self, epoch: int) -> None:
        """Nobody asks for what is after an older epoch any more."""
        self._epochs = {number: end for number, end in self._epochs.items() if end > epoch}


@dataclass(frozen=True, slots=True)
class StateCopy:
    """What a copy holds by reference, at least one row. makers: of its tables, each of higher key groups than the one
    before. in_key_order: of each table the rows are."""

    makers: Sequence[Callable[[], pa.Table]]
    in_key_order: bool = False

    def tables(self) -> Iterator[pa.Table]:
        """Its tables (key group, key columns, values), one at a time."""
        return (make() for make in self.makers)
