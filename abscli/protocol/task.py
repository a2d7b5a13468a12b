"""The task's side of barrier snapshotting, under any policy (arXiv 1506.08603, algorithms 1 and 2; Chandy and Lamport).

The rules, by the numbers that tests and comments use; `policy` says which hold where:

R1  aligned: a regular input is blocked from its barrier n until the copy of n.
R2  The copy of n is due when the marked inputs contain all regular ones; under unaligned, at the first barrier. A
    source copies when triggered; under unaligned any task may be triggered (and is then an initiator).
R3  At the copy: flush, copy, forward the barrier, unblock, and open a log on every input that is logged and not
    marked: back edges, under unaligned all inputs.
R4  aligned, at-least-once: a back edge whose barrier n comes before the copy of n is held until the copy; its log of
    n is empty. Without this a record sent after a peer's copy could enter this task's copy (an orphan). It cannot
    deadlock: regular barriers never wait for back edges.
R5  A record goes into the log of every epoch that is copied and whose barrier has not come on its channel, where
    that channel is logged.
R6  The part of n is whole when barrier n has come on every logged channel; it is acked when it is durable.
R7  A barrier n' > n on a channel that never delivered n proves that n was given up upstream: n is given up here.
R8  Barriers below the attempt's first epoch, and of epochs given up, are dropped.
R9  A source that has ended stays and takes part in every later epoch.
R10 When senders restart and this task does not, its open epochs are given up, and what they send again is dropped by
    number until they have sent all that was received.
R11 A barrier carries its sender's watermark; those of back edges count for nothing. At its copy, and never between, a
    task's watermark comes to the lowest that the last barriers on its regular inputs carried, but never goes back. A
    source is told its own before it is triggered.
R12 An idle input keeps no watermark back; where all are idle, or at their end and one is idle, the task forwards that
    it is idle, and its own watermark stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import assert_never

from abscli.protocol.events import (
    Aborted,
    Ack,
    BarrierArrived,
    Block,
    CaughtUp,
    Commit,
    Completed,
    Copy,
    Discard,
    EndOfInput,
    Flush,
    Forward,
    Log,
    PeersRestarted,
    Persist,
    Persisted,
    Process,
    ProtocolError,
    RecordsArrived,
    Sent,
    TaskAction,
    TaskEvent,
    Triggered,
    Unblock,
    Watermarked,
)
from abscli.protocol.policy import Policy
from formats.ids import ChannelId, TaskId
from formats.watermark import IDLE, lowest


class PartStage(StrEnum):
    """How far a task's part of one epoch is; `transitions` has the table."""

    UNSEEN = "unseen"
    ALIGNING = "aligning"
    LOGGING = "logging"
    WRITING = "writing"
    SETTLED = "settled"
    GIVEN_UP = "given up"


class Task:
    """One task.

    inputs, outputs: its channels.
    back: those inputs that are back-edge channels.
    first_epoch: the lowest epoch number of this attempt.
    sent, received: records per channel since the generation began; a restored receiver starts from `sender's count -
    records in the restored log`, and counts the log as it is read.
    finished: a source that had ended at the epoch that it is restored from.
    watermark: of its newest copy (`formats.watermark`).
    copied: the newest epoch that was copied; none below it can be copied any more.
    """

    def __init__(
        self,
        name: TaskId,
        inputs: Iterable[ChannelId],
        outputs: Iterable[ChannelId],
        back: Iterable[ChannelId] = (),
        *,
        policy: Policy = Policy.ALIGNED,
        first_epoch: int = 1,
        sent: Mapping[ChannelId, int] | None = None,
        received: Mapping[ChannelId, int] | None = None,
        finished: bool = False,
        watermark: int | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.back = frozenset(back)
        self.regular = frozenset(self.inputs) - self.back
        if not self.back <= frozenset(self.inputs):
            strangers = ", ".join(map(str, sorted(self.back - frozenset(self.inputs))))
            raise ProtocolError(f"{name}: back edges {strangers} are not inputs")
        if self.back and not self.regular and not policy.copies_at_first:
            raise ProtocolError(f"{name}: no regular input, so no barrier would ever start its snapshot")
        self.sent = dict.fromkeys(self.outputs, 0) | dict(sent or {})
        self.received = dict.fromkeys(self.inputs, 0) | dict(received or {})
        self.finished = finished
        self.watermark = watermark
        self.copied = first_epoch - 1
        self.blocked: set[ChannelId] = set()
        self._first_epoch = first_epoch
        self._marked: dict[int, dict[ChannelId, int | None]] = {}
        self._logging: dict[int, set[ChannelId]] = {}
        self._unacked: set[int] = set()
        self._given_up: set[int] = set()
        self._replayed: set[ChannelId] = set()
        # What is restored may be older than what its senders had said by then, which they say again.
        self._heard: dict[ChannelId, int | None] = dict.fromkeys(self.regular, watermark)
        self._given: int | None = None

    @property
    def is_source(self) -> bool:
        """Whether it has no inputs and is triggered by the coordinator."""
        return not self.inputs

    @property
    def is_triggered(self) -> bool:
        """Whether the coordinator's trigger begins an epoch here (R2): at sources; under unaligned at every task, so
        that an epoch takes as long as the fullest channel and not as the slowest path."""
        return self.is_source or self.policy.copies_at_first

    @property
    def floor(self) -> int:
        """The lowest epoch whose barriers count (R8, R10)."""
        return self._first_epoch

    @property
    def logged(self) -> frozenset[ChannelId]:
        """The inputs whose state at the cut is kept."""
        return frozenset(self.inputs) if self.policy.logs_regular else self.back

    def stage(self, epoch: int) -> PartStage:
        """How far this task's part of an epoch is."""
        if epoch in self._logging:
            return PartStage.LOGGING
        if epoch in self._unacked:
            return PartStage.WRITING
        if epoch <= self.copied:
            return PartStage.SETTLED
        if epoch in self._given_up:
            return PartStage.GIVEN_UP
        return PartStage.ALIGNING if epoch in self._marked else PartStage.UNSEEN

    def awaits(self, epoch: int) -> frozenset[ChannelId]:
        """The inputs whose barrier `epoch` this task still needs for its part."""
        if epoch <= self.copied:
            return frozenset(self._logging.get(epoch, ()))
        needed = frozenset(self.inputs) if self.policy.copies_at_first else self.regular
        return needed - self._marked.get(epoch, {}).keys()

    def is_behind(self, watermark: int | None) -> bool:
        """Whether a copy with this watermark had to come before what the task has heard by now."""
        heard = self._lowest
        return heard is not None and heard != IDLE and _later(heard, watermark) != watermark

    def ahead(self) -> list[TaskEvent]:
        """What it has heard of epochs after its newest copy. The copy does not hold it: who is restored from it and is
        to go on as this task did is told it again."""
        given_up = [Aborted(epoch) for epoch in sorted(self._given_up) if epoch > self.copied]
        marked = [
            BarrierArrived(channel, epoch, self._marked[epoch][channel])
            for epoch in sorted(self._marked)
            for channel in self.inputs
            if channel in self._marked[epoch]
        ]
        return [*given_up, *marked]

    def on(self, event: TaskEvent) -> list[TaskAction]:
        """Take an event, return what to do, in order. ProtocolError if the driver broke a rule."""
        match event:
            case RecordsArrived():
                return self._records(event)
            case Sent(channel, count):
                self.sent[channel] += count
                return []
            case BarrierArrived(channel, epoch, watermark):
                return self._barrier(channel, epoch, watermark)
            case Watermarked(watermark):
                self._given = watermark
                return []
            case Triggered(epoch):
                if not self.is_triggered:
                    raise ProtocolError(f"{self.name}: unexpected trigger: only sources can be triggered")
                return [] if self._is_old(epoch) or epoch <= self.copied else self._copy(epoch)
            case EndOfInput():
                if not self.is_source:
                    raise ProtocolError(f"{self.name}: unexpected end of input: only sources can end")
                self.finished = True
                return []
            case Persisted(epoch):
                if epoch not in self._unacked:
                    return []
                self._unacked.discard(epoch)
                return [Ack(epoch)]
            case Completed(epoch):
                return [Commit(epoch)]
            case Aborted(epoch):
                return self._give_up(epoch)
            case PeersRestarted():
                return self._peers_restarted(event)
            case _:
                assert_never(event)

    def _records(self, event: RecordsArrived) -> list[TaskAction]:
        channel, batch = event.channel, event.batch
        self._check_deliverable(channel)
        received, last = self.received[channel], event.first + event.count - 1
        skip = received + 1 - event.first
        # A gap is always an error; a record that came before is one unless its sender has restarted.
        if skip < 0 or (skip and channel not in self._replayed):
            raise ProtocolError(
                f"{self.name}: expected record {received + 1} on {channel}, got record {event.first}"
            )
        actions: list[TaskAction] = []
        if last > received:
            self.received[channel] = last
            epochs = tuple(sorted(epoch for epoch, open_on in self._logging.items() if channel in open_on))
            if epochs:
                actions.append(Log(channel, epochs, last - received, batch, skip))
            actions.append(Process(channel, last - received, batch, skip))
        if channel in self._replayed and last >= received:
            self._replayed.discard(channel)
            actions.append(CaughtUp(channel))
        return actions

    def _barrier(self, channel: ChannelId, epoch: int, watermark: int | None) -> list[TaskAction]:
        self._check_deliverable(channel)
        if self._is_old(epoch):
            return []
        # First: a barrier of an epoch that goes no further here still proves that those before it were given up.
        actions = self._give_up_passed(channel, epoch)
        if epoch <= self.copied:
            self._hear({channel: watermark})
            return actions + self._close_log(channel, epoch)
        if epoch not in self._marked and any(later > epoch for later in self._marked):
            return actions + self._give_up(epoch)  # R7: another channel has gone past it
        marked = self._marked.setdefault(epoch, {})
        marked[channel] = watermark
        if self.policy.blocks or (self.policy.holds and channel in self.back):
            self.blocked.add(channel)
            actions.append(Block(channel))
        if self.policy.copies_at_first or self.regular <= marked.keys():
            actions += self._copy(epoch)
        return actions

    def _give_up_passed(self, channel: ChannelId, epoch: int) -> list[TaskAction]:
        """R7: what is open below `epoch` and still waits for this channel."""
        passed = [e for e, marked in self._marked.items() if e < epoch and channel not in marked]
        passed += [e for e, open_on in self._logging.items() if e < epoch and channel in open_on]
        return [action for stale in sorted(passed) for action in self._give_up(stale)]

    def _copy(self, epoch: int) -> list[TaskAction]:
        marked = self._marked.pop(epoch, {})  # by R7 nothing older is left there
        self.copied = epoch
        self._given_up = {e for e in self._given_up if e > epoch}  # of the others `copied` says it
        self._logging[epoch] = set(self.logged - marked.keys())
        self._unacked.add(epoch)
        # Not before: what a barrier behind this one says is not so for who starts again from this copy.
        self._hear(marked)
        forwarded = self._advance()
        actions: list[TaskAction] = [Flush(epoch, self.watermark), Copy(epoch), Forward(epoch, forwarded)]
        return actions + self._unblock(marked) + self._persist_if_whole(epoch)

    def _hear(self, watermarks: Mapping[ChannelId, int | None]) -> None:
        self._heard |= {channel: watermark for channel, watermark in watermarks.items() if channel in self.regular}

    @property
    def _lowest(self) -> int | None:
        """Of the watermarks that its regular inputs have carried last."""
        return lowest(self._heard.values())

    def _advance(self) -> int | None:
        """R11, R12: the watermark comes on; what is forwarded of it."""
        heard, self._given = self._lowest if self._given is None else self._given, None
        if heard == IDLE:
            return IDLE
        if heard is not None:
            self.watermark = _later(heard, self.watermark)
        return self.watermark

    def _unblock(self, marked: Collection[ChannelId]) -> list[TaskAction]:
        waiting = [channel for channel in self.inputs if channel in marked and channel in self.blocked]
        self.blocked.difference_update(waiting)
        return [Unblock(channel) for channel in waiting]

    def _close_log(self, channel: ChannelId, epoch: int) -> list[TaskAction]:
        if epoch not in self._logging:
            return []
        if channel not in self._logging[epoch]:
            raise ProtocolError(f"{self.name}: unexpected barrier {epoch} on {channel}: it is a duplicate, or "
                "came late on an input that is no back edge")
        self._logging[epoch].discard(channel)
        return self._persist_if_whole(epoch)

    def _persist_if_whole(self, epoch: int) -> list[TaskAction]:
        if self._logging[epoch]:
            return []
        del self._logging[epoch]
        return [Persist(epoch)]

    def _give_up(self, epoch: int) -> list[TaskAction]:
        if epoch > self.copied:
            self._given_up.add(epoch)
        actions = self._unblock(self._marked.pop(epoch, {}))
        if epoch in self._unacked:
            self._unacked.discard(epoch)
            self._logging.pop(epoch, None)
            actions.append(Discard(epoch))
        return actions

    def _peers_restarted(self, event: PeersRestarted) -> list[TaskAction]:
        actions: list[TaskAction] = []
        for epoch in sorted(self._marked.keys() | self._unacked):
            actions += self._give_up(epoch)
        # Every epoch below the floor is complete or given up: one number stands for all that was remembered of them,
        # also against their barriers on the way between tasks that go on, which carry no attempt.
        self._given_up.clear()
        self._first_epoch = event.floor
        self.copied = max(self.copied, event.floor - 1)
        for channel, sent in event.replayed.items():
            if sent < self.received[channel]:
                self._replayed.add(channel)
            else:
                self._replayed.discard(channel)
                actions.append(CaughtUp(channel))
        return actions

    def _is_old(self, epoch: int) -> bool:
        return epoch < self._first_epoch or epoch in self._given_up

    def _check_deliverable(self, channel: ChannelId) -> None:
        if channel not in self.received:
            raise ProtocolError(f"{self.name}: {channel} is not an input channel")
        if channel in self.blocked:
            raise ProtocolError(f"{self.name}: unexpected delivery from {channel}, which is blocked")


def _later(watermark: int, other: int | None) -> int:
    return watermark if other is None else max(watermark, other)
