"""One simulated task: the real protocol machine around a stand-in operator. Events go in, effects come out.

It touches nothing outside itself, so that a step of it can be looked up when it has been made before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

from abscli.protocol.events import (
    Ack,
    Block,
    CaughtUp,
    Commit,
    Copy,
    Discard,
    EndOfInput,
    Flush,
    Forward,
    Log,
    PeersRestarted,
    Persist,
    Process,
    Sent,
    TaskEvent,
    Triggered,
    Unblock,
    Watermarked,
)
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.sim.model import Model, Record
from formats.ids import ChannelId, TaskId
from formats.job.model import Partition
from formats.watermark import END


class Item(NamedTuple):
    """A record on a channel, with its number there."""

    number: int
    record: Record


class Barrier(NamedTuple):
    """A barrier on a channel. watermark: that it carries."""

    epoch: int
    watermark: int | None = None


class Counts(dict[ChannelId, int]):
    """Counters by channel that are never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


@dataclass(frozen=True, slots=True)
class Part:
    """A task's durable part of an epoch.

    changed: of what it has seen, only what changed since the complete epoch `base`.
    waiting: rows with timers, and how many are alike, where that changed since then; 0: none any more.
    """

    task: TaskId
    epoch: int
    attempt: int
    base: int
    changed: tuple[tuple[int, int], ...]
    positions: tuple[tuple[int, int], ...]
    finished: bool
    turns: tuple[tuple[int, int], ...]
    sent: tuple[tuple[ChannelId, int], ...]
    received: tuple[tuple[ChannelId, int], ...]
    logs: tuple[tuple[ChannelId, tuple[Record, ...]], ...]
    waiting: tuple[tuple[Record, int], ...] = ()
    watermark: int | None = None
    behind: bool = False


# -- effects: what a task asks of the world ---------------------------------------------------------------------


class Put(NamedTuple):
    """Append to a channel."""

    channel: ChannelId
    item: Item | Barrier


class Write(NamedTuple):
    """Make the part durable, in the background."""

    part: Part


class Staged(NamedTuple):
    """A sink's rows of an epoch are on disk, not visible yet."""

    epoch: int
    rows: tuple[Record, ...]


class Reveal(NamedTuple):
    """Make visible what is staged up to an epoch."""

    epoch: int


class Tell(NamedTuple):
    """A message to the coordinator: `ack` of an epoch, `ended`, or `caught-up` with a channel."""

    kind: str
    subject: int | TaskId | ChannelId
    attempt: int


Effect = Put | Write | Staged | Reveal | Tell


@dataclass(slots=True)
class Draft:
    """A copy whose part is not written yet."""

    part: Part
    logs: dict[ChannelId, list[Record]] = field(default_factory=dict)


class SimulatedTask:
    """One task of one attempt.

    restored, seen, waiting: its part of the epoch it starts from, all that it had counted, and its rows with timers.
    """

    def __init__(
        self,
        model: Model,
        task: TaskId,
        policy: Policy,
        attempt: int,
        first_epoch: int,
        base: int = 0,
        restored: Part | None = None,
        seen: Mapping[int, int] | None = None,
        waiting: Mapping[Record, int] | None = None,
        received: Mapping[ChannelId, int] | None = None,
    ) -> None:
        self.model = model
        self.attempt = attempt
        self.base = base
        self.seen = Counter(seen or {})
        self.changed: dict[int, int] = {}
        self.waiting = Counter(waiting or {})
        self.touched: dict[Record, int] = {}
        self.positions = dict(restored.positions) if restored else {}
        self.owed: list[Record] = []
        self.turns = dict(restored.turns) if restored else {}
        self.pending: list[Record] = []
        self.drafts: dict[int, Draft | None] = {}
        channels = model.inputs[task]
        self.machine = Task(
            task,
            [c.id for c in channels],
            [c.id for c in model.outputs[task]],
            [c.id for c in channels if c.back],
            policy=policy,
            first_epoch=first_epoch,
            sent=dict(restored.sent) if restored else None,
            received=received,
            finished=restored.finished if restored else False,
            watermark=restored.watermark if restored else None,
        )

    @property
    def name(self) -> TaskId:
        """The task's."""
        return self.machine.name

    def handle(self, event: TaskEvent) -> list[Effect]:
        """Tell the machine, do what it says here, and return what it asks of others, in order."""
        effects: list[Effect] = []
        if isinstance(event, PeersRestarted):
            self.attempt = event.attempt
        if isinstance(event, Triggered) and self.machine.is_source and (watermark := self._look()) is not None:
            self.machine.on(Watermarked(watermark))
        for action in self.machine.on(event):
            match action:
                case Process(_, _, batch, skip):
                    assert isinstance(batch, tuple)
                    effects += self._process(batch[skip:])
                case Log(channel, epochs, _, batch, skip):
                    assert isinstance(batch, tuple)
                    for epoch in epochs:
                        self._draft(epoch).logs.setdefault(channel, []).extend(batch[skip:])
                case Flush(_, watermark):
                    owed, self.owed = self.owed, []
                    effects += self._emit([*owed, *self._fire(watermark)])
                case Copy(epoch):
                    effects += self._copy(epoch)
                case Forward(epoch, watermark):
                    effects += [Put(channel, Barrier(epoch, watermark)) for channel in self.machine.outputs]
                case Persist(epoch):
                    effects.append(self._persist(epoch))
                case Ack(epoch):
                    effects.append(Tell("ack", epoch, self.attempt))
                case CaughtUp(channel):
                    effects.append(Tell("caught-up", channel, self.attempt))
                case Commit(epoch):
                    effects += self._commit(epoch)
                case Discard(epoch):
                    self.drafts.pop(epoch, None)
                case Block(_) | Unblock(_):
                    pass
                case _:
                    assert_never(action)
        return effects

    def _look(self) -> int | None:
        """How far a source has come: values are event times, and ascend in a split."""
        latest = []
        for split in self.model.splits_of(self.name):
            rows, at = self.model.rows[self.name.operator][split], self.positions.get(split, 0)
            if at < len(rows):
                if not at:
                    return None
                latest.append(rows[at - 1].value)
        return min(latest, default=END)

    def read(self, count: int) -> list[Effect]:
        """A source's next rows, at most `count` and of one split; the end of its input when there are none."""
        for split in self.model.splits_of(self.name):
            rows, at = self.model.rows[self.name.operator][split], self.positions.get(split, 0)
            if at < len(rows):
                self.positions[split] = min(len(rows), at + count)
                return self._emit(rows[at : at + count])
        return [*self.handle(EndOfInput()), Tell("ended", self.name, self.attempt)]

    # -- the stand-in -------------------------------------------------------------------------------------

    def _process(self, rows: tuple[Record, ...]) -> list[Effect]:
        for row in rows:
            self.seen[row.value] += 1
            self.changed[row.value] = self.machine.copied
        if self.name in self.model.sinks:
            self.pending = sorted([*self.pending, *rows])
            return []
        if self.model.has_timers(self.name):
            for row in rows:
                self.waiting[row] += 1
                self.touched[row] = self.machine.copied
            return []
        if self.model.keeps_until_flush(self.name):
            self.owed = sorted([*self.owed, *rows])
            return []
        return self._emit(rows)

    def _fire(self, watermark: int | None) -> list[Record]:
        """What the timers that are due send on; the rows are removed."""
        due = sorted(row for row in self.waiting if row.is_due(watermark))
        fired = [row.fired() for row in due for _ in range(self.waiting[row])]
        for row in due:
            del self.waiting[row]
            self.touched[row] = self.machine.copied
        return fired

    def _emit(self, rows: Iterable[Record]) -> list[Effect]:
        effects: list[Effect] = []
        routes, edges = self.model.routes[self.name], self.model.topology.edges
        for row in rows:
            for at, channels in routes:
                edge = edges[at]
                back = self.model.is_back(edge)
                if back and not row.rounds:
                    continue
                record = row.over(back)
                width = self.model.operators[edge.target].parallelism
                for target in self._targets(at, edge.partition, self.name.subtask, record, width):
                    channel = channels[target]
                    number = self.machine.sent[channel] + 1
                    self.machine.on(Sent(channel, 1))
                    effects.append(Put(channel, Item(number, record)))
        return effects

    def _targets(self, edge: int, partition: Partition, index: int, record: Record, width: int) -> Iterable[int]:
        match partition:
            case Partition.HASH:
                return (record.value % width,)
            case Partition.FORWARD:
                return (index,)
            case Partition.BROADCAST:
                return range(width)
            case Partition.REBALANCE:
                turn = self.turns.get(edge, 0)
                self.turns[edge] = turn + 1
                return (turn % width,)

    # -- snapshots ----------------------------------------------------------------------------------------

    def _copy(self, epoch: int) -> list[Effect]:
        part = Part(
            task=self.name,
            epoch=epoch,
            attempt=self.attempt,
            base=self.base,
            changed=tuple(sorted((value, self.seen[value]) for value in self.changed)),
            positions=tuple(sorted(self.positions.items())),
            finished=self.machine.finished,
            turns=tuple(sorted(self.turns.items())),
            sent=tuple(self.machine.sent.items()),
            received=tuple(self.machine.received.items()),
            logs=(),
            waiting=tuple(sorted((row, self.waiting[row]) for row in self.touched)),
            watermark=self.machine.watermark,
        )
        self.drafts[epoch] = Draft(part)
        if self.name not in self.model.sinks:
            return []
        staged, self.pending = tuple(self.pending), []
        return [Staged(epoch, staged)]

    def _persist(self, epoch: int) -> Write:
        draft, self.drafts[epoch] = self._draft(epoch), None
        logs = tuple((channel, tuple(records)) for channel, records in sorted(draft.logs.items()))
        return Write(replace(draft.part, logs=logs, behind=self.machine.is_behind(draft.part.watermark)))

    def _draft(self, epoch: int) -> Draft:
        draft = self.drafts[epoch]
        assert draft is not None, f"the part of {epoch} is written"
        return draft

    def _commit(self, epoch: int) -> list[Effect]:
        if epoch > self.base and epoch in self.drafts:
            self.base = epoch
            self.changed = {value: copied for value, copied in self.changed.items() if copied >= epoch}
            self.touched = {row: copied for row, copied in self.touched.items() if copied >= epoch}
            self.drafts = {e: draft for e, draft in self.drafts.items() if e > epoch}
        return [Reveal(epoch)] if self.name in self.model.sinks else []
