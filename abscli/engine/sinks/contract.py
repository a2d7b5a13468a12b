"""What a sink of a worker has to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from formats.native.facts import SinkFile


class Sink(Protocol):
    """One sink task. It stages what belongs to an epoch; what is staged shows once the manifest is durable, and not by
    the worker (`outputs`)."""

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """What no complete epoch covers yet, as far as it is cut."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of the part that is open."""

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """End the part of `epoch`: what makes all parts durable that its completion makes visible, and says which
        these are.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""

    def close(self) -> None:
        """Let go of all that no epoch has staged yet: its rows belong to none."""
