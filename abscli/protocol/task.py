"""The task's side of asynchronous barrier snapshotting, policy `aligned` (arXiv 1506.08603, algorithms 1 and 2).

The rules, by the numbers that tests and comments use:

R1  A regular input is blocked from its barrier n until the copy of n.
R2  The copy of n is due when the marked inputs contain all regular ones. Source tasks copy when triggered.
R3  At the copy: flush, copy, forward the barrier, unblock, and open a log on every back edge not yet marked.
R4  A back edge whose barrier n comes before the copy of n is held until the copy; its log of n is empty. Without
    this a record sent after a peer's copy could enter this task's copy (an orphan). It cannot deadlock: regular
    barriers never wait for back edges.
R5  A record on a back edge goes into the log of every epoch that is copied and whose barrier has not come on it.
R6  The part of n is whole when barrier n has come on every back edge; it is acked when it is durable.
R7  A barrier n' > n on a channel that never delivered n proves that n was given up upstream: n is given up here.
R8  Barriers below the attempt's first epoch, and of epochs given up, are dropped.
R9  A source that has ended stays and takes part in every later epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from abscli.protocol.events import (
    Aborted,
    Ack,
    BarrierArrived,
    Block,
    Commit,
    Completed,
    Copy,
    Discard,
    EndOfInput,
    Flush,
    Forward,
    Log,
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
)


class Task:
    """One task. inputs, outputs: channel names; back: those inputs that are back-edge channels.

    first_epoch: the lowest epoch number of this attempt. sent, received: records per channel since the generation
    began; a restored receiver starts from `sender's count - records in the restored log`, and counts the log as it
    is read.
    """

    def __init__(
        self,
        name: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        back: Iterable[str] = (),
        *,
        first_epoch: int = 1,
        sent: Mapping[str, int] | None = None,
        received: Mapping[str, int] | None = None,
        finished: bool = False,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.back = frozenset(back)
        self.regular = frozenset(self.inputs) - self.back
        if not self.back <= frozenset(self.inputs):
            raise ProtocolError(f"{name}: back edges {sorted(self.back - frozenset(self.inputs))} are no inputs")
        if self.back and not self.regular:
            raise ProtocolError(f"{name}: no regular input, so no barrier would ever start a copy")
        self.sent = dict.fromkeys(self.outputs, 0) | dict(sent or {})
        self.received = dict.fromkeys(self.inputs, 0) | dict(received or {})
        self.finished = finished
        self.copied = first_epoch - 1
        self.blocked: set[str] = set()
        self._first_epoch = first_epoch
        self._aligning: int | None = None
        self._logging: dict[int, set[str]] = {}
        self._unacked: set[int] = set()
        self._given_up: set[int] = set()

    @property
    def is_source(self) -> bool:
        """Whether it has no inputs and is triggered by the coordinator."""
        return not self.inputs

    def on(self, event: TaskEvent) -> list[TaskAction]:
        """Take an event, return what to do, in order. ProtocolError if the driver broke a rule."""
        match event:
            case RecordsArrived(channel, count, batch):
                return self._records(channel, count, batch)
            case Sent(channel, count):
                self.sent[channel] += count
                return []
            case BarrierArrived(channel, epoch):
                return self._barrier(channel, epoch)
            case Triggered(epoch):
                if not self.is_source:
                    raise ProtocolError(f"{self.name}: only sources are triggered")
                return [] if self._is_old(epoch) or epoch <= self.copied else self._copy(epoch)
            case EndOfInput():
                if not self.is_source:
                    raise ProtocolError(f"{self.name}: only sources end")
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

    def _records(self, channel: str, count: int, batch: object) -> list[TaskAction]:
        self._check_deliverable(channel)
        self.received[channel] += count
        process = Process(channel, count, batch)
        epochs = tuple(sorted(epoch for epoch, open_on in self._logging.items() if channel in open_on))
        return [Log(channel, epochs, count, batch), process] if epochs else [process]

    def _barrier(self, channel: str, epoch: int) -> list[TaskAction]:
        self._check_deliverable(channel)
        if self._is_old(epoch):
            return []
        actions: list[TaskAction] = []
        for stale in sorted(e for e, open_on in self._logging.items() if e < epoch and channel in open_on):
            actions += self._give_up(stale)
        if epoch <= self.copied:
            return actions + self._close_log(channel, epoch)
        if self._aligning is not None and epoch < self._aligning:
            return actions
        if self._aligning is not None and epoch > self._aligning:
            actions += self._give_up(self._aligning)
        self._aligning = epoch
        self.blocked.add(channel)
        actions.append(Block(channel))
        if self.regular <= self.blocked:
            actions += self._copy(epoch)
        return actions

    def _copy(self, epoch: int) -> list[TaskAction]:
        late = self.back - self.blocked
        held = [channel for channel in self.inputs if channel in self.blocked]
        self.blocked.clear()
        self._aligning = None
        self.copied = epoch
        self._given_up = {e for e in self._given_up if e > epoch}
        self._logging[epoch] = set(late)
        self._unacked.add(epoch)
        actions: list[TaskAction] = [Flush(epoch), Copy(epoch), Forward(epoch)]
        actions += [Unblock(channel) for channel in held]
        return actions + self._persist_if_whole(epoch)

    def _close_log(self, channel: str, epoch: int) -> list[TaskAction]:
        if epoch not in self._logging:
            return []
        if channel not in self._logging[epoch]:
            raise ProtocolError(f"{self.name}: barrier {epoch} came twice on {channel}, or late on a regular input")
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
        actions: list[TaskAction] = []
        if self._aligning == epoch:
            actions += [Unblock(channel) for channel in self.inputs if channel in self.blocked]
            self.blocked.clear()
            self._aligning = None
        if epoch in self._unacked or epoch in self._logging:
            self._unacked.discard(epoch)
            self._logging.pop(epoch, None)
            actions.append(Discard(epoch))
        return actions

    def _is_old(self, epoch: int) -> bool:
        return epoch < self._first_epoch or epoch in self._given_up

    def _check_deliverable(self, channel: str) -> None:
        if channel not in self.received:
            raise ProtocolError(f"{self.name}: {channel} is not an input")
        if channel in self.blocked:
            raise ProtocolError(f"{self.name}: delivered from {channel}, which is blocked")
