"""The channels of a worker's tasks: queues from one of its tasks to another, connections to and from other workers.

Both ends of a connection are in the same attempt: who comes from an earlier one is turned away, who comes from a later
one waits until the worker is in that, too.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Collection, Sequence

import msgspec
import pyarrow as pa

from abscli.engine.channels.door import greeting, reach
from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.incoming import Incoming
from abscli.engine.channels.line import Line, Lines
from abscli.engine.channels.messages import ChannelHello, Differed, Greeting, JobSpec, LetGo
from abscli.engine.channels.wire import Connection, Frame, watermark_bytes
from abscli.engine.errors import EngineStopped
from abscli.engine.local.hearing import Hearing
from abscli.engine.local.ledger import KEPT_FRAMES, Ledger
from abscli.engine.task import RunningTask
from abscli.planner.placement import worker_of
from abscli.protocol.kept import KeptBarrier
from formats.ids import ChannelId, TaskId

CHANNEL_BYTES = 2 << 20
"""Bytes queued on a regular channel beyond which its sender waits: they are what a barrier has to pass."""

CONNECT_SECONDS = 30.0
DIAL_SECONDS = 2.0
"""One try of these."""

DIALLED_AT_ONCE = 16
"""Connections whose handshakes may be under way from here: at a door there is room for so many strangers only."""

ARRIVAL_SECONDS = 60.0
"""Time for channels that have been dialled to come through the door, once everybody is ready."""

LOST_SECONDS = 5.0
"""A peer's connection may end because the job has: the coordinator says so meanwhile, or says who died."""

Addresses = Sequence[tuple[str, int]]
"""Of all workers, by number."""


class PeersLost(Exception):
    """A worker cannot go on for want of its peers; another one in its place may."""


class Superseded(Exception):
    """What a worker was about to start is to restart already."""


class Peers:
    """Of worker `number`.

    lines: of the attempt.
    tell: sends the coordinator a message.
    serve: looks after all connections, waiting for at most so many seconds, while a peer is dialled; False where the
    worker is to leave.
    ledger: what is kept so that lost tasks can restart alone; None where nothing is.
    """

    def __init__(
        self, spec: JobSpec, number: int, selector: selectors.BaseSelector, *, lines: Lines,
        tell: Callable[[msgspec.Struct], None], serve: Callable[[float], bool], ledger: Ledger | None,
    ) -> None:  # fmt: skip
        self.ledger = ledger
        self._spec = spec
        self._number = number
        self._selector = selector
        self._lines = lines
        self._tell = tell
        self._serve = serve
        self._attempt = 0
        self._started = False
        self._inboxes: dict[ChannelId, Inbox] = {}
        self._senders: dict[ChannelId, Connection] = {}
        self._receivers: dict[ChannelId, Connection] = {}
        self._schemas: dict[ChannelId, pa.Schema] = {}
        self._outs: dict[TaskId, list[Inbox | Connection]] = {}
        self._dialled: list[Connection] = []
        self._awaited: set[ChannelId] = set()
        self._await_until = float("inf")
        self._early: list[tuple[ChannelHello, Line]] = []
        self._lost: tuple[float, str] | None = None

    @property
    def circulating(self) -> int:
        """Bytes on back edges that end here."""
        return sum(inbox.queued for inbox in self._inboxes.values() if inbox.back)

    @property
    def receiving(self) -> Collection[ChannelId]:
        """The channels whose senders are connected."""
        return self._receivers.keys()

    # -- an attempt begins and ends -----------------------------------------------------------------------

    def stop(self, attempt: int) -> None:
        """Nobody is let in before tasks of this attempt are there."""
        self._attempt, self._started = attempt, False
        self._lost = None
        # Until everybody is there again nobody comes: that is for the coordinator to wait for.
        self._await_until = float("inf")
        for hello, line in self._early:
            if hello.attempt < attempt:
                line.sock.close()
        self._early = [(hello, line) for hello, line in self._early if hello.attempt >= attempt]

    def add(self, attempt: int, tasks: Collection[RunningTask], epoch: int) -> None:
        """The inputs of tasks that start from an epoch in this attempt."""
        self._attempt = attempt
        for task in tasks:
            self._inboxes.update(task.inboxes)
            if self.ledger is not None:
                for inbox in task.inboxes.values():
                    self.ledger.receives_from(inbox, epoch)
            for channel in task.inboxes:
                self._await(channel)

    def open(self) -> None:
        """Every queue is there that a peer may ask for: let in who has come before."""
        self._started = True
        early, self._early = self._early, []
        for hello, line in early:
            if not self.admit(hello, line):
                line.sock.close()

    def expect_all(self) -> None:
        """Everybody has dialled."""
        self._await_until = time.monotonic() + ARRIVAL_SECONDS

    def drop(self, task: RunningTask) -> None:
        """The queues and connections of a task go, as if its process had been killed."""
        for channel in task.inboxes:
            del self._inboxes[channel]
            self._awaited.discard(channel)
            self._end_receiving(channel)
        for route in task.routes:
            for channel in route.channels:
                self._schemas.pop(channel, None)
                if (connection := self._senders.pop(channel, None)) is not None:
                    connection.close()
                    if self.ledger is not None:
                        self.ledger.disconnect(channel)
        self._outs.pop(task.machine.name, None)

    def await_again(self, channel: ChannelId) -> None:
        """The sender of a channel restarts."""
        self._end_receiving(channel)
        self._await(channel)

    def hold_back(self, channel: ChannelId) -> None:
        """The receiver of a channel restarts: what goes to it is only kept from now on."""
        if (connection := self._senders.get(channel)) is not None:
            connection.close()

    def keep_time(self, now: float) -> None:
        """Whether peers have been waited for too long: PeersLost, EngineStopped."""
        # Of a host that is gone without a goodbye the coordinator knows when it has been silent for long enough.
        longest = LOST_SECONDS + (self._spec.pulse.lost if self._spec.pulse is not None else 0.0)
        if self._lost is not None and now - self._lost[0] > longest:
            raise PeersLost(f"worker {self._number}: {self._lost[1]}")
        if self._awaited and now > self._await_until:
            raise EngineStopped(
                f"worker {self._number}: no connection for {min(self._awaited)} within {ARRIVAL_SECONDS:.0f} s",
                hint=f"check whether worker {self._number} has reached its open-file limit (ulimit -n): the sender did "
                "connect",
            )

    def lost(self, message: str) -> None:
        """Somebody else is gone: the coordinator says who, and what restarts, or that the job has ended."""
        self._lost = self._lost or (time.monotonic(), message)

    def hang_up(self) -> None:
        """Whoever is connected hears that the worker is gone; safe from other threads."""
        for connection in [*self._senders.values(), *self._receivers.values()]:
            connection.hang_up()

    def close(self) -> None:
        """Close every connection."""
        for connection in [*self._senders.values(), *self._receivers.values()]:
            connection.close()
        for _, line in self._early:
            line.sock.close()

    # -- sending ------------------------------------------------------------------------------------------

    def has_room(self, task: TaskId) -> bool:
        """Whether every regular output of a task can take more; back edges never push back."""
        outs = self._outs.get(task)
        if outs is None:  # a receiver could not be reached: this task is about to restart
            return False
        return all(self._waiting(out) < CHANNEL_BYTES for out in outs)

    def _waiting(self, out: Inbox | Connection) -> int:
        """Bytes that count for a sender. Who takes steps again, or is being replaced alone, keeps nobody waiting."""
        if isinstance(out, Inbox):
            return 0 if out.unbounded else out.bytes
        return 0 if out.closed and self.ledger is not None else out.pending

    def send(self, channel: ChannelId, item: Batch | Barrier) -> None:
        """Hand it to the channel's queue, or its connection."""
        inbox = self._inboxes.get(channel)
        if inbox is not None:
            # Under at-least-once the copy of the receiver may hold more than its sender had sent at its own.
            if self.ledger is not None and isinstance(item, Batch):
                inbox.put_rest(item)
            else:
                inbox.put(item)
            return
        connection, ledger = self._senders[channel], self.ledger
        if isinstance(item, Barrier):
            watermark = watermark_bytes(item.watermark)
            if ledger is None:
                connection.send(Frame.BARRIER, item.epoch, watermark)
            else:
                ledger.sent_barrier(channel, item.epoch, item.watermark)
                connection.send(Frame.BARRIER, item.epoch, watermark, *ledger.said(channel))
            return
        schema = item.rows.schema
        # By identity, which costs nothing a batch: to send an equal schema again does no harm.
        if self._schemas.get(channel) is not schema:
            self._schemas[channel] = schema
            frame = memoryview(schema.serialize())
            if ledger is not None:
                ledger.schema(channel, frame)
            connection.queue(Frame.SCHEMA, 0, frame)
        frame = memoryview(item.rows.serialize(memory_pool=None if ledger is None else KEPT_FRAMES))
        if ledger is None:
            connection.send(Frame.RECORDS, item.first, frame)
            return
        if not ledger.sent(channel, item.first, item.rows.num_rows, frame):
            self._tell(LetGo(self._number))
        connection.send(Frame.RECORDS, item.first, frame, *ledger.said(channel))

    def send_kept(self, channel: ChannelId, epoch: int, addresses: Addresses) -> None:
        """To a receiver that restarts alone: what was sent behind the epoch's barrier."""
        assert self.ledger is not None
        before = self._senders.get(channel)
        connection = self._dial(channel, addresses)
        outs = self._outs[channel.sender]
        self._outs[channel.sender] = [connection if out is before else out for out in outs]
        schema, frames = self.ledger.behind(channel, epoch)
        if schema is not None:
            connection.send(Frame.SCHEMA, 0, schema)
        for kept in frames:
            said = self.ledger.said(channel)
            if isinstance(kept, KeptBarrier):
                connection.send(Frame.BARRIER, kept.epoch, watermark_bytes(kept.watermark), *said)
            else:
                first, frame = kept
                connection.send(Frame.RECORDS, first, frame, *said)

    def dial_receivers(self, task: RunningTask, epoch: int, addresses: Addresses) -> None:
        """Connect a task that starts from an epoch with all that it sends to; OSError, Superseded."""
        outs: list[Inbox | Connection] = []
        for route in task.routes:
            for channel in route.channels:
                # Not `or`: an inbox with nothing to take is false.
                inbox = self._inboxes.get(channel)
                if inbox is None and self.ledger is not None:
                    self.ledger.sends_from(channel, epoch)
                target = inbox if inbox is not None else self._dial(channel, addresses)
                if not route.back:
                    outs.append(target)
        self._outs[task.machine.name] = outs

    def _dial(self, channel: ChannelId, addresses: Addresses) -> Connection:
        if len(self._dialled) >= DIALLED_AT_ONCE:
            self.greet()  # before there is anything of this one: what is about to start may be superseded meanwhile
        peer = self._worker_of(channel.receiver)
        host, port = addresses[peer]
        try:
            line = self._connected(addresses[peer], self._attempt)
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(error.errno, f"worker {peer} at {host}:{port}, channel {channel}: {why}") from error
        connection = Connection(
            line,
            self._selector,
            lambda *_: None,
            lambda: self.lost(f"lost the connection of {channel} to worker {peer}"),
            greeting=greeting(self._spec.token, ChannelHello(channel, self._attempt)),
        )
        self._senders[channel] = connection
        if self.ledger is not None:
            self.ledger.connect(channel)
        self._dialled.append(connection)
        return connection

    def _connected(self, address: tuple[str, int], attempt: int) -> Line:
        """A line to a peer. While the queue of its door is full of others, ours is served: it may wait for us."""
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return self._lines.dialled(reach(address, seconds=DIAL_SECONDS))
            except TimeoutError:
                if time.monotonic() > until:
                    raise
                self._look_after_ours(0.0, attempt)

    def greet(self) -> None:
        """Wait until whoever was dialled has been greeted; Superseded.

        A handshake needs this end, too, which may be in a function for long once its tasks run. Who is in one itself is
        not waited for without end: it is greeted when both have come to it.
        """
        attempt, until = self._attempt, time.monotonic() + CONNECT_SECONDS
        dialled, self._dialled = self._dialled, []
        while not all(connection.greeted for connection in dialled) and time.monotonic() < until:
            self._look_after_ours(0.05, attempt)

    def _look_after_ours(self, seconds: float, attempt: int) -> None:
        if not self._serve(seconds) or self._attempt != attempt:
            raise Superseded

    # -- receiving ----------------------------------------------------------------------------------------

    def read_where_there_is_room(self) -> None:
        """Senders of full queues wait."""
        for channel, connection in self._receivers.items():
            connection.reading(not _full(self._inboxes[channel]))

    def admit(self, hello: Greeting, line: Line) -> bool:
        """A sender is there: one of an earlier attempt is turned away, one of a later waits for its receiver."""
        if not isinstance(hello, ChannelHello) or hello.attempt < self._attempt:
            return False
        if hello.attempt > self._attempt or not self._started:
            self._early.append((hello, line))
            return True
        return self._receive(hello.channel, line)

    def _receive(self, channel: ChannelId, line: Line) -> bool:
        # A sender on this worker has no connection, and a sender that has connected does not connect again.
        if channel not in self._awaited:
            return False
        inbox = self._inboxes[channel]
        hearing = Hearing(self.ledger, inbox, self._differs) if self.ledger is not None else None
        incoming = Incoming(
            line, self._selector, inbox, full=_full, closed=lambda it: self._gone(channel, it), hearing=hearing
        )
        self._receivers[channel] = incoming.connection
        self._awaited.discard(channel)
        return True

    def _gone(self, channel: ChannelId, connection: Connection) -> None:
        """A sender's connection ended: if the job goes on, the coordinator hears of the peer's death as well."""
        if self._receivers.get(channel) is connection:
            del self._receivers[channel]

    def _differs(self, message: str) -> None:
        self._tell(Differed(self._number, self._attempt, message))

    def _end_receiving(self, channel: ChannelId) -> None:
        if (connection := self._receivers.pop(channel, None)) is not None:
            connection.close()

    def _await(self, channel: ChannelId) -> None:
        if self._worker_of(channel.sender) != self._number:
            self._awaited.add(channel)

    def _worker_of(self, task: TaskId) -> int:
        return worker_of(task.subtask, self._spec.workers)


def _full(inbox: Inbox) -> bool:
    return not inbox.unbounded and inbox.bytes >= CHANNEL_BYTES
