"""A sink that has had other ids: what its target has is marked by the id that the sink had at the time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

import pyarrow as pa

from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, StagedPartName, Target, Unmet
from formats.ids import EpochId


def ids_of(promises: Promises, operator: str, before: Mapping[str, str]) -> tuple[str, ...]:
    """The sink's id, then those that it had in epochs that are kept, on whichever branch. before: by sink, its id in
    the epoch that is gone on from."""
    same = [(after, id) for origins in (before, *promises.origins.values()) for after, id in origins.items()]
    ids = [operator]
    for id in ids:  # which grows meanwhile
        ids += {other for pair in same if id in pair for other in pair} - set(ids)
    return tuple(ids)


class Renamed:
    """The `Target` of a sink that had other ids: one target per id, that of today first.

    The rows of an epoch are written under the id that the sink had in it: so the target shows whether they were
    written, and a driver of that time is shut out.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self.operator = targets[0].operator
        self.title = targets[0].title
        self.remembers = targets[0].remembers

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the target under every id."""
        with ExitStack() as stack:
            for target in self._targets:
                stack.enter_context(target.hold())
            yield

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """List what the target lacks, which is the same under every id."""
        return self._targets[0].unmet(columns)

    def try_rows(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses; see `Target.try_rows`."""
        self._targets[0].try_rows(rows)

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""
        return [epoch for target in self._targets[::-1] for epoch in target.markers()]

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""
        return any(target.has(epoch) for target in self._targets)

    def identity(self) -> str | None:
        """Return the identity of the target, which is the same under every id."""
        return self._targets[0].identity()

    def undone(self, identity: str | None) -> str | None:
        """Return how the target lost commits, whichever id wrote the newest of them."""
        written = [target for target in self._targets if target.markers()] or self._targets[:1]
        problems = [target.undone(identity) for target in written]
        return None if None in problems else problems[0]

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's; see `Target.take`."""
        for target in self._targets:
            target.take(attempt_id, left, oldest)

    def unfinished(self) -> frozenset[EpochId]:
        """Return the epochs of which not all parts are committed, under any id."""
        return frozenset().union(*(target.unfinished() for target in self._targets))

    def lost(self, delivery: Delivery) -> list[StagedPart]:
        """Return the parts that are neither committed nor staged any more."""
        return self._made_by(delivery).lost(delivery)

    def discard(self, goes: Callable[[StagedPartName], bool]) -> None:
        """Remove rows that wait in the target, and that no manifest can name any more, under every id."""
        for target in self._targets:
            target.discard(goes)

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery under the id that the sink had then; see `Target.publish`."""
        self._made_by(delivery).publish(delivery)

    def _made_by(self, delivery: Delivery) -> Target:
        id = delivery.parts[0].id.operator
        return next((target for target in self._targets if target.operator == id), self._targets[0])
