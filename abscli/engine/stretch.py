"""Some tasks of a job run again over a stretch that lies behind it: from a whole epoch, over the barriers that came
then, up to the barrier of the epoch that is made whole. It ends there.

One thread drives the same machines, operators, sources and state as workers do, without sockets, a coordinator or
Spark: the stretch is as long as an epoch or two, each barrier has to come between two given records, which only one
that holds all channels can see to, and a run that has to be proved should have one order. Records that leave the tasks
are dropped and counted; nothing enters them.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from abscli.engine.build import build_tasks
from abscli.engine.channels.inbox import Barrier, Batch
from abscli.engine.channels.messages import JobSpec
from abscli.engine.channels.peers import CHANNEL_BYTES
from abscli.engine.local.steps import Place
from abscli.engine.sources.files.input_files import path_of
from abscli.engine.sources.making import ROW_FILES, extent, make_source
from abscli.engine.task import RunningTask
from abscli.planner.repair import Cut
from abscli.protocol.events import EndOfInput
from abscli.protocol.task import PartStage
from formats.errors import NoRecovery
from formats.ids import ChannelId, TaskId
from formats.job.model import Kind, Operator, Topology
from formats.native.counters import Counters
from formats.native.facts import PartFacts
from formats.view import Position

_AS_IT_WAS = "put the code and the source files back as they were; or plan without --strategy repair"

NARROWING = frozenset({Kind.SOURCE, Kind.MAP, Kind.FILTER, Kind.UNION})
"""A record in is at most one record out."""


class Passed(NamedTuple):
    """A barrier between the two epochs.

    offsets: by source task, how far it had read each split; a source that is not there had read nothing since.
    complete: whether its epoch was complete, so that sinks have shown what came before it.
    """

    epoch: int
    offsets: Mapping[TaskId, Mapping[str, int]]
    complete: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """What runs, from where and up to where.

    store: a store that is nobody else's, which has the base epoch; the new parts go there.
    directory: of the job file.
    attempt, attempt_id: that the new parts are of.
    policy: how the epoch was taken.
    tasks: those that run.
    repeatable: those whose output comes again record by record.
    base: the epoch that they are restored from; 0 for the beginning.
    passed: the barriers on the way, ascending.
    epoch: the last barrier.
    cut: where that has to be.
    """

    topology: Topology
    store: str
    directory: str
    attempt: int
    attempt_id: str
    policy: str
    tasks: Collection[TaskId]
    repeatable: Collection[TaskId]
    base: int
    passed: Sequence[Passed]
    epoch: int
    cut: Cut


class RunAgain(NamedTuple):
    """How it ended.

    parts: of the last epoch, by task.
    dropped: records that left the tasks, by channel.
    records: that sources read.
    """

    parts: dict[TaskId, PartFacts]
    dropped: dict[ChannelId, int]
    records: int


@dataclass(slots=True)
class _Wire:
    """What a sender has put on a channel and its receiver may not have yet. bytes: of the rows."""

    items: deque[Batch | Barrier] = field(default_factory=deque)
    bytes: int = 0

    def put(self, item: Batch | Barrier) -> None:
        self.items.append(item)
        if isinstance(item, Batch):
            self.bytes += item.rows.nbytes

    def take(self, count: int | None = None) -> Batch | Barrier:
        """The next item; of a batch at most `count` rows."""
        item = self.items.popleft()
        if isinstance(item, Barrier):
            return item
        self.bytes -= item.rows.nbytes
        if count is not None and count < item.rows.num_rows:
            rest = item.without(count)
            self.items.appendleft(rest)
            self.bytes += rest.rows.nbytes
            return Batch(item.first, item.rows.slice(0, count))
        return item


def _spec(stretch: Stretch) -> JobSpec:
    """What a worker would be told."""
    return JobSpec(
        topology=stretch.topology,
        store=stretch.store,
        directory=stretch.directory,
        root=stretch.directory,
        attempt=stretch.attempt,
        attempt_id=stretch.attempt_id,
        policy=stretch.policy,
        workers=1,
        read_sources=True,
        token=b"",
        address=("", 0),
    )


def run_stretch(stretch: Stretch) -> RunAgain:
    """Run it. NoRecovery where the tasks do not come to the cut; JobFailed, UsageError, Damaged as a run."""
    pool = ThreadPoolExecutor(2, thread_name_prefix="abs-repair")
    run = _Run(stretch, pool)
    try:
        return run.to_the_end()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        run.close()


class _Run:
    def __init__(self, stretch: Stretch, pool: ThreadPoolExecutor) -> None:
        self._stretch = stretch
        self._later: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._parts: dict[TaskId, PartFacts] = {}
        self._dropped: dict[ChannelId, int] = {}
        self._wires: dict[ChannelId, _Wire] = {}
        self._tasks = build_tasks(
            _spec(stretch),
            pool,
            epoch=stretch.base,
            first_epoch=min([passed.epoch for passed in stretch.passed], default=stretch.epoch),
            mine=lambda operator, index: TaskId(operator, index) in stretch.tasks,
            send=self._send,
            acked=self._acked,
            ended=lambda name: None,
            caught_up=lambda channel: None,
            later=self._later.put,
        )
        self._read_before = sum(task.records_read for task in self._tasks)
        self._sources = [
            _Reader(stretch, task, _Demands.of(stretch, task, self._tasks))
            for task in self._tasks if task.source is not None
        ]  # fmt: skip
        self._others = [
            _Paced(stretch, task, _Demands.of(stretch, task, ())) for task in self._tasks if task.source is None
        ]
        for task in self._tasks:
            for channel, inbox in task.inboxes.items():
                wire = self._wires[channel] = _Wire()
                while inbox:  # a restored log: it is given out as everything else
                    wire.put(inbox.take())
                inbox.next_record = task.machine.received[channel] + 1
        # Receivers only: a loop does not push back.
        self._regular = {
            task.machine.name: [
                self._wires[channel]
                for route in task.routes if not route.back for channel in route.channels if channel in self._wires
            ]
            for task in self._tasks
        }  # fmt: skip
        self._committed = {passed.epoch for passed in stretch.passed if passed.complete}

    def to_the_end(self) -> RunAgain:
        """Step by step, receivers first, until every task has its part."""
        while len(self._parts) < len(self._tasks):
            if not (self._step() or self._written()):
                raise self._stuck()
        read = sum(task.records_read for task in self._tasks) - self._read_before
        return RunAgain(self._parts, self._dropped, read)

    def close(self) -> None:
        for task in self._tasks:
            task.close()

    def _step(self) -> bool:
        busy = False
        for paced in self._others:
            task = paced.task
            moved = paced.deliver(self._wires)
            if self._has_room(task):
                moved |= task.step()
            if moved and task.sink is not None and task.machine.copied in self._committed:
                task.sink.commit(task.machine.copied)  # what came before it had been shown
            busy |= moved
        for reader in self._sources:
            # One that looks for its cut must see what has become of all that it has read.
            if not (busy and reader.searches) and self._has_room(reader.task):
                busy |= reader.step()
        while not self._later.empty():
            self._later.get()()
            busy = True
        return busy

    def _written(self) -> bool:
        """Wait for a part that is being written, if there is one."""
        epochs = [*(passed.epoch for passed in self._stretch.passed), self._stretch.epoch]
        writing = any(task.machine.stage(epoch) is PartStage.WRITING for task in self._tasks for epoch in epochs)
        if writing:
            self._later.get()()
        return writing

    def _has_room(self, task: RunningTask) -> bool:
        return all(wire.bytes < CHANNEL_BYTES for wire in self._regular[task.machine.name])

    def _send(self, channel: ChannelId, item: Batch | Barrier) -> None:
        wire = self._wires.get(channel)
        if wire is not None:
            wire.put(item)
        elif isinstance(item, Batch):
            self._dropped[channel] = self._dropped.get(channel, 0) + item.rows.num_rows

    def _acked(self, part: PartFacts, counters: Counters, base: int, place: Place | None, behind: bool) -> None:
        if part.epoch == self._stretch.epoch:
            self._parts[part.task] = part

    def _stuck(self) -> NoRecovery:
        waiting = ", ".join(str(t.machine.name) for t in self._tasks if t.machine.name not in self._parts)
        return NoRecovery(f"barrier {self._stretch.epoch} does not come to {waiting}", hint=_AS_IT_WAS)


class _Reader:
    """A source, stopped at each barrier where it stood then."""

    def __init__(self, stretch: Stretch, task: RunningTask, demands: _Demands) -> None:
        name = task.machine.name
        self.task = task
        self._cut = stretch.cut
        self._stops = [(passed.epoch, passed.offsets.get(name)) for passed in stretch.passed]
        self._stops.append((stretch.epoch, stretch.cut.offsets.get(name)))
        self._epoch = stretch.epoch
        self._demands = demands
        if not stretch.base and (last := stretch.cut.offsets.get(name)) is not None:
            # A split that has come since then may not change whose the others are.
            begin = [Position(split, 0, 0) for split in last]
            operator = stretch.topology.operator(name.operator)
            connector = stretch.cut.connectors.get(name)
            task.source = make_source(operator, name.subtask, stretch.directory, begin, connector)
        for epoch, offsets in self._stops:
            _check_files(stretch.topology.operator(name.operator), name, epoch, offsets or {}, stretch.directory)
        self._begin()

    @property
    def searches(self) -> bool:
        """Whether it is not known where it had stood at the next barrier."""
        return bool(self._stops) and self._stops[0][1] is None

    def _begin(self) -> None:
        assert self.task.source is not None
        if self._stops:
            self.task.source.stop_at(self._stops[0][1])

    def step(self) -> bool:
        """Read on, or send the barrier that is due; False behind the last."""
        if not self._stops:
            return False
        epoch, offsets = self._stops[0]
        if offsets is not None and not self._is_at(offsets):
            if not self.task.step():
                raise NoRecovery(f"{self.task.machine.name} had read more at barrier {epoch} than there is to read now",
                                 hint=_AS_IT_WAS)  # fmt: skip
            return True
        if offsets is None and epoch == self._epoch and (lines := self._demands.records()):
            assert self.task.source is not None
            self.task.source.stop_at(lines=lines)
            self.task.step()
            if not self.task.machine.finished:
                return True
        if epoch == self._epoch and self.task.machine.name in self._cut.ended and not self.task.machine.finished:
            self.task.on(EndOfInput())
        self.task.trigger(epoch)
        del self._stops[0]
        self._begin()
        return True

    def _is_at(self, offsets: Mapping[str, int]) -> bool:
        assert self.task.source is not None
        stands = {position.split: position.offset or 0 for position in self.task.source.positions}
        return all(stands.get(split, 0) >= offset for split, offset in offsets.items())


def _check_files(operator: Operator, task: TaskId, epoch: int, offsets: Mapping[str, int], directory: str) -> None:
    """NoRecovery if a file has not got what had been read of it."""
    for split, offset in offsets.items():
        path = path_of(directory, split)
        size = extent(operator, path)
        if size is None or size < offset:
            unit = "rows" if (operator.connector or {}).get("type") in ROW_FILES else "bytes"
            there = "is not there" if size is None else f"has {size:,} {unit}"
            message = f"{there}, and {task} had read {offset:,} of it at barrier {epoch}"
            raise NoRecovery(message, path=path, hint=_AS_IT_WAS)


class _Demands:
    """Channels that have to have carried given numbers of records at the cut of a task that is not known itself.

    A record in makes at most one out on a channel, unless an operator widens: so as many records as the largest
    shortfall are still to be taken, and no more are taken at once.

    channels: with their senders.
    """

    def __init__(
        self, sent: Mapping[ChannelId, int], channels: Sequence[tuple[RunningTask, ChannelId]], *, wide: bool
    ) -> None:
        self._sent = sent
        self._channels = channels
        self._wide = wide

    @classmethod
    def of(cls, stretch: Stretch, first: RunningTask, tasks: Sequence[RunningTask]) -> _Demands:
        """Of a task and of those among `tasks` behind it that come again record by record, up to where the cut is
        known."""
        by_id = {task.machine.name: task for task in tasks}
        channels, wide = list[tuple[RunningTask, ChannelId]](), False
        front = [first]
        while front:
            task = front.pop()
            for channel in task.machine.outputs:
                receiver = by_id.get(channel.receiver)
                if channel in stretch.cut.sent:
                    channels.append((task, channel))
                    wide |= stretch.topology.operator(task.machine.name.operator).kind not in NARROWING
                elif receiver is not None and receiver.machine.name in stretch.repeatable and receiver not in front:
                    front.append(receiver)
        return cls(stretch.cut.sent, channels, wide=wide)

    def __bool__(self) -> bool:
        return bool(self._channels)

    def records(self) -> int:
        """How many records the task may take; 0 when nothing is lacking."""
        lacking = max((self._sent[channel] - task.machine.sent[channel] for task, channel in self._channels), default=0)
        return (1 if self._wide else lacking) if lacking > 0 else 0


class _Paced:
    """A task that is given its inputs, and where it is known no more before its cut than it had then.

    demands: of its own channels. An unaligned cut may be before what its sender had sent: where it is not known, the
    task is cut when it has sent what its receivers had of it.
    """

    def __init__(self, stretch: Stretch, task: RunningTask, demands: _Demands) -> None:
        self.task = task
        self._demands = demands
        self._searches = bool(demands) and task.machine.is_triggered and task.machine.name in stretch.repeatable
        self._epoch = stretch.epoch
        self._before = max((passed.epoch for passed in stretch.passed), default=stretch.base)
        self._caps = stretch.cut.received.get(task.machine.name)

    def deliver(self, wires: Mapping[ChannelId, _Wire]) -> bool:
        """Move what the task may have now from its channels to its queues; cut it where it had been cut.

        NoRecovery where that cannot come any more: a loop somewhere else may never be at rest.
        """
        machine, caps = self.task.machine, self._caps
        if self._searches and caps is None and self._before <= machine.copied < self._epoch:
            return self._search(wires)
        moved = False
        for channel, inbox in self.task.inboxes.items():
            wire = wires[channel]
            while wire.items:
                cap = caps[channel] if caps is not None and machine.copied < self._epoch else None
                head = wire.items[0]
                if cap is None:
                    inbox.put(wire.take())
                elif isinstance(head, Barrier):
                    if head.epoch == self._epoch and self.lacking():
                        if not inbox and machine.received[channel] < cap:
                            raise self._off(channel, machine.received[channel])
                        break
                    inbox.put(wire.take())
                elif cap >= head.first:
                    inbox.put(wire.take(cap + 1 - head.first))
                elif machine.is_triggered or channel in machine.back:
                    break  # what is behind the cut of a channel that is logged
                else:
                    raise self._off(channel, head.first - 1 + head.rows.num_rows)
                moved = True
        # Under unaligned a barrier may have been known here before it came: what was taken then says it.
        due = caps is not None and machine.is_triggered and self._before <= machine.copied < self._epoch
        if due and not self.lacking():
            self.task.trigger(self._epoch)
            moved = True
        return moved

    def _search(self, wires: Mapping[ChannelId, _Wire]) -> bool:
        """A little at a time, until what was sent says that the cut was here."""
        if any(self.task.inboxes.values()):
            return False
        count = self._demands.records()
        if not count:
            self.task.trigger(self._epoch)
            return True
        for channel, inbox in self.task.inboxes.items():
            if wires[channel].items:
                inbox.put(wires[channel].take(count))
                return True
        return False

    def _off(self, channel: ChannelId, now: int) -> NoRecovery:
        assert self._caps is not None
        had = f"{self.task.machine.name} had taken {self._caps[channel]:,} records on {channel}"
        come = f"{now:,} come before it now: the job or its input is not what it was"
        return NoRecovery(f"{had} at barrier {self._epoch}, and {come}", hint=_AS_IT_WAS)

    def lacking(self) -> list[tuple[ChannelId, int]]:
        """Channels on which it had taken more when it was cut, and how much."""
        if self._caps is None or self.task.machine.copied >= self._epoch:
            return []
        received = self.task.machine.received
        return [(channel, count) for channel, count in self._caps.items() if received[channel] < count]
