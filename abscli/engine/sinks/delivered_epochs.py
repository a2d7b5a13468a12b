"""The newest epoch that each sink of a running attempt has delivered, to notice a target that loses rows meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from abscli.engine.errors import EngineStopped
from formats.ids import EpochId


class DeliveredEpochs:
    """By sink: the newest epoch whose rows its target has, as far as this attempt has written or found them."""

    def __init__(self) -> None:
        self._newest: dict[str, EpochId] = {}

    def newest(self, operator: str) -> EpochId | None:
        """Return the newest epoch of a sink; None if it has delivered none."""
        return self._newest.get(operator)

    def note(self, operator: str, epoch: EpochId) -> None:
        """Note that the target has the rows of an epoch."""
        self._newest[operator] = epoch

    def check(self, operator: str, title: str, has: Callable[[EpochId], bool]) -> None:
        """Raise EngineStopped if the target has become an older copy of itself, as after a failover.

        has: see `Target.has`.
        """
        newest = self._newest.get(operator)
        if newest is not None and not has(newest):
            raise EngineStopped(
                f"sink {operator}: {title} contained the rows of epoch {newest.number}, but lost them while the job "
                "ran",
                hint="if the server was replaced by an older copy, restore the newer copy; `abs run --resume` then "
                "delivers the rows that are still in the store, and reports missing rows",
            )
