"""What is asked of keyed state, be all of it in memory (`KeyedState`) or parts of it on disk (`BoundedState`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from abscli.engine.state.copies import StateCopy
from abscli.engine.state.key_table import Slots
from abscli.engine.state.keyed_state import Add, KeyedState, Kinds, Rows, T, Work
from formats.native.state.tables import StateKey


class State(Protocol):
    """The keyed state of a task as its operator and its copies use it, in memory or not.

    keyed_by, key: its key columns.
    kinds: of its values: the types that came first.
    """

    keyed_by: StateKey
    kinds: Kinds

    @property
    def key(self) -> tuple[str, ...]:
        """The names of its key columns."""

    @property
    def rows(self) -> int:
        """Live keys."""

    def divided(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        """All of the rows, now. keys: their key columns."""

    def gathered(self, rows: Rows, keys: Sequence[pa.Array]) -> Work:
        """These rows, or some that came earlier: for who puts out nothing before the epoch ends. keys: as above."""

    def changed_now(self, add: Add) -> Iterator[pa.Table]:
        """The rows that changed since the last copy, in order of key group, then of key, in tables of whole key groups:
        key group, key columns, values. To be gone through to its end before that copy, and nothing else changes
        meanwhile.

        add: is given first what was gathered and has not been given out.
        """

    def due(self, time: int, act: Callable[[KeyedState, Slots], T]) -> Iterator[T]:
        """What is made of the keys that are due by then, in state that expires: in parts, in order of key group.

        act: is given those of each part, which is in memory for that long, and may change them.
        """

    def end_interval(self, epoch: int) -> None:
        """What changes from now on is not in the copy of `epoch`."""

    def copy(self, epoch: int, since: int | None) -> StateCopy | None:
        """Close the interval that ends with `epoch`, and copy what changed after epoch `since` (None: everything).

        None if nothing did. Epochs are those of this attempt; `since` below them all takes every change so far.
        """

    def forget(self, complete: int) -> None:
        """Epoch `complete` and what it refers to hold these changes for good."""

    def load(self, table: pa.Table) -> None:
        """Take over the rows of a state file; they do not count as changed."""

    def close(self) -> None:
        """Let go of memory and files."""
