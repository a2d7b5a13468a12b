"""What survives a crash in the simulator: parts, manifests, staged and visible output. Never changed, only replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from abscli.sim.model import Record
from abscli.sim.task import Part
from formats.ids import ChannelId, TaskId

GAP = 10


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A complete epoch.

    parts: without what only mattered until it was complete.
    seen: what each task had counted, its base and its changes put together.
    waiting: the rows with timers of each task that has such.
    """

    epoch: int
    parts: Mapping[TaskId, Part]
    seen: Mapping[TaskId, Mapping[int, int]]
    waiting: Mapping[TaskId, Mapping[Record, int]] = field(default_factory=dict)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal content."""
        parts = frozenset(self.parts.values())
        seen = frozenset((task, frozenset(counts.items())) for task, counts in self.seen.items())
        waiting = frozenset((task, frozenset(rows.items())) for task, rows in self.waiting.items())
        return self.epoch, parts, seen, waiting

    def received(self, channel: ChannelId) -> int:
        """What a restored receiver has of a channel: the sender's count less the log, which comes (again) first."""
        return self.sent(channel) - len(self.log(channel))

    def sent(self, channel: ChannelId) -> int:
        """What its sender had put on a channel."""
        return dict(self.parts[channel.sender].sent)[channel]

    def log(self, channel: ChannelId) -> tuple[Record, ...]:
        """The state of a channel at the cut."""
        return dict(self.parts[channel.receiver].logs).get(channel, ())

    def by_operator(self) -> dict[str, Counter[int]]:
        """What each operator had counted."""
        seen: dict[str, Counter[int]] = {}
        for task, counts in self.seen.items():
            seen.setdefault(task.operator, Counter()).update(counts)
        return seen


@dataclass(frozen=True)
class Disk:
    """What outlives a crash.

    begun: the highest epoch that was triggered.
    attempt: the newest.
    last: the newest complete epoch of the line that is gone on with, 0 for none.
    triggered: by epoch, the attempt it belongs to.
    complete: since the last crash.
    """

    begun: int = 0
    attempt: int = 0
    last: int = 0
    triggered: Mapping[int, int] = field(default_factory=dict)
    parts: Mapping[tuple[TaskId, int], Part] = field(default_factory=dict)
    complete: Mapping[int, Snapshot] = field(default_factory=dict)
    staged: Mapping[tuple[TaskId, int], tuple[Record, ...]] = field(default_factory=dict)
    visible: Mapping[TaskId, tuple[Record, ...]] = field(default_factory=dict)

    @property
    def base(self) -> Snapshot | None:
        """The snapshot that a new life starts from; None for the empty initial state."""
        return self.complete.get(self.last)

    def next_life(self) -> Disk:
        """A new attempt begins; nobody looks again at parts of epochs that did not complete, nor at older epochs.

        Numbers go on from a round one, so that lives which differ in the numbers only are seen to be the same.
        """
        begun = -(-self.begun // GAP) * GAP
        base = {self.last: self.complete[self.last]} if self.last else {}
        return replace(self, begun=begun, attempt=self.attempt + 1, parts={}, triggered={}, complete=base)

    def rescaled(self, snapshot: Snapshot) -> Disk:
        """A new generation begins from the newest complete epoch, as its tasks restore it."""
        return replace(self, complete={snapshot.epoch: snapshot}, staged={})

    def begins(self, epoch: int, attempt: int) -> Disk:
        """The epoch is on record as triggered."""
        return replace(self, begun=max(self.begun, epoch), triggered={**self.triggered, epoch: attempt})

    def with_part(self, part: Part) -> Disk:
        """A task's part is durable."""
        return replace(self, parts={**self.parts, (part.task, part.epoch): part})

    def part(self, task: TaskId, epoch: int) -> Part | None:
        """A durable part."""
        return self.parts.get((task, epoch))

    def completes(self, epoch: int, parts: tuple[Part, ...]) -> Disk:
        """The manifest is written. Parts of it and of older epochs are no longer kept apart."""
        seen: dict[TaskId, Mapping[int, int]] = {}
        waiting: dict[TaskId, Mapping[Record, int]] = {}
        for part in parts:
            base = self.complete[part.base] if part.base else None
            seen[part.task] = {**(base.seen[part.task] if base else {}), **dict(part.changed)}
            rows = {**(base.waiting.get(part.task, {}) if base else {}), **dict(part.waiting)}
            if left := {row: count for row, count in rows.items() if count}:
                waiting[part.task] = left
        by_task = {part.task: replace(part, attempt=0, base=0, changed=(), waiting=()) for part in parts}
        return replace(
            self,
            last=max(self.last, epoch),
            complete={**self.complete, epoch: Snapshot(epoch, by_task, seen, waiting)},
            parts={key: part for key, part in self.parts.items() if key[1] > epoch},
            triggered={e: attempt for e, attempt in self.triggered.items() if e > epoch},
        )

    def stages(self, task: TaskId, epoch: int, rows: tuple[Record, ...]) -> Disk:
        """A sink's rows of an epoch are on disk, not visible."""
        return replace(self, staged={**self.staged, (task, epoch): rows})

    def reveals(self, task: TaskId, epoch: int) -> Disk:
        """Rows staged by a task up to an epoch become visible."""
        mine = sorted(key for key in self.staged if key[0] == task and key[1] <= epoch)
        if not mine:
            return self
        rows = tuple(sorted((*self.visible.get(task, ()), *(row for key in mine for row in self.staged[key]))))
        left = {key: kept for key, kept in self.staged.items() if key not in mine}
        return replace(self, staged=left, visible={**self.visible, task: rows})

    def settles(self, task: TaskId) -> Disk:
        """A sink task starts again from `last`: what is staged up to it is shown, the rest is dropped."""
        disk = self.reveals(task, self.last)
        return replace(disk, staged={key: rows for key, rows in disk.staged.items() if key[0] != task})
