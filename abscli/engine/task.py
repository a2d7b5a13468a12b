"""One running task: its protocol machine, its operator, source or sink, and its queues. It carries out actions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

import pyarrow as pa

from abscli.engine.channels.inbox import Barrier, Batch, Inbox
from abscli.engine.channels.messages import Lag
from abscli.engine.channels.routing import Route
from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures, taken_by
from abscli.engine.local.steps import Differs, Place, Steps
from abscli.engine.operators.rows import cannot_work, in_words, other_columns, without_dictionaries
from abscli.engine.operators.runnable import Runnable, WithLate
from abscli.engine.operators.table_lookup import TableLookup
from abscli.engine.sinks.contract import Sink
from abscli.engine.sources.contract import NotYet, Source
from abscli.engine.state.packing import Loader, Packer
from abscli.engine.state.part_io import Durable, PartDraft, write_logs, write_part, write_state
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
from abscli.protocol.schedule import Step, StepKind
from abscli.protocol.task import PartStage, Task
from abscli.protocol.trace import TracedTask
from abscli.protocol.turns import Turns
from formats.ids import ChannelId, TaskId
from formats.native.counters import Counters
from formats.native.facts import PartFacts, StateFileFacts
from formats.native.state.references import depth, rows_in_reach
from formats.native.state.tables import StateKey
from formats.storage import Storage
from formats.watermark import END

FULL_AFTER = 16
"""State files of a task after which the next one is written whole."""


@dataclass(slots=True)
class Part:
    """A copy that is not yet acked. loader: takes its files, where they are packed. place: where it stands among the
    task's steps."""

    draft: PartDraft
    base: int
    durable: Future[Durable]
    loader: Loader | None
    place: Place | None
    logs: dict[ChannelId, list[pa.RecordBatch]] = field(default_factory=dict)


class Owed(NamedTuple):
    """What a task still puts out before it copies. then: what its machine has said to do after that."""

    batches: Iterator[pa.RecordBatch]
    then: Iterator[TaskAction]


class RunningTask:
    """machine: the task's protocol; a source, an operator or a sink: who is not a sink itself may have one for its dead
    letters. failures: takes records on which it fails, where it goes on.

    send(channel, item) delivers to a receiver.
    acked(part, counters, base epoch, place, behind), ended(task) and caught_up(channel) report.
    later(function) runs it on the processing thread.
    base: the state files of the epoch that the task was restored from. whole: every epoch has files of its own for all
    of the state.
    steps: where it notes its steps, and those that it takes again before any other.
    packer: puts its files with those of others; None: each is one of its own.
    """

    def __init__(
        self,
        machine: Task,
        inboxes: list[Inbox],
        routes: list[Route],
        storage: Storage,
        attempt: int,
        attempt_id: str,
        pool: ThreadPoolExecutor,
        *,
        send: Callable[[ChannelId, Batch | Barrier], None],
        acked: Callable[[PartFacts, Counters, int, Place | None, bool], None],
        ended: Callable[[TaskId], None],
        caught_up: Callable[[ChannelId], None],
        later: Callable[[Callable[[], None]], None],
        source: Source | None = None,
        sink: Sink | None = None,
        operator: Runnable | None = None,
        failures: Failures | None = None,
        base: tuple[StateFileFacts, ...] = (),
        base_epoch: int = 0,
        whole: bool = False,
        steps: Steps | None = None,
        packer: Packer | None = None,
    ) -> None:
        self.machine = machine
        self.inboxes = {inbox.channel: inbox for inbox in inboxes}
        self.routes = routes
        self.source = source
        self.sink = sink
        self.operator = operator
        self.failures = failures
        self.records_read = sum(split.records or 0 for split in source.positions) if source is not None else 0
        self._regular = [inbox for inbox in inboxes if not inbox.back]
        self._back = [inbox for inbox in inboxes if inbox.back]
        self._storage = storage
        self._attempt = attempt
        self._attempt_id = attempt_id
        self._pool = pool
        self._packer = packer
        self._send = send
        self._acked = acked
        self._ended = ended
        self._caught_up = caught_up
        self._later = later
        self._parts: dict[int, Part] = {}
        self._files: dict[int, tuple[StateFileFacts, ...]] = {}
        self._base = base
        self._base_epoch = base_epoch
        self._whole = whole
        self._turns = Turns()
        self._schemas: dict[str | None, pa.Schema] = {}
        self._input: pa.Schema | None = None
        self._first_barrier: dict[int, float] = {}
        self._closed = False
        self._steps = steps
        self._numbers = {channel: i for i, channel in enumerate(machine.inputs)}
        self._again = steps is not None and steps.next is not None
        self._held: list[Callable[[], None]] = []
        self._owed: Owed | None = None

    # -- what drives it -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Put out a piece of what is owed for an epoch, or take one item from an input, or read once; False if there is
        nothing to do."""
        if self._again:
            return self._take_again()
        if self._owed is not None:
            self._put_out(self._owed)
            return True
        if self.source is not None:
            return self._read()
        inbox = self._choose()
        if inbox is None:
            return False
        self._take(inbox.channel, inbox.take())
        return True

    def _take(self, channel: ChannelId, item: Batch | Barrier) -> None:
        if isinstance(item, Barrier):
            if item.epoch > self.machine.copied:
                self._first_barrier.setdefault(item.epoch, time.monotonic())
            step = Step(StepKind.BARRIER, self._numbers[channel], item.epoch)
            self._cut_by(BarrierArrived(channel, item.epoch, item.watermark), step)
            return
        count = item.rows.num_rows
        # If steps are noted, none of these records is known: the queue has dropped records that came before.
        self._note(StepKind.RECORDS, self._numbers[channel], count)
        self.on(RecordsArrived(channel, item.first, count, item))

    def _note(self, kind: StepKind, channel: int = 0, number: int = 0) -> None:
        """Before the step is taken: what it sends is sent by a task of whom it is known."""
        if self._steps is not None:
            self._steps.note(Step(kind, channel, number))

    # -- the same steps again -----------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        """Whether it takes steps again. Until it has, nothing else happens to it: whatever it is told it takes in
        then."""
        return self._again

    @property
    def awaited(self) -> Step | None:
        """The step that it is to take again next."""
        return self._steps.next if self._steps is not None else None

    def _take_again(self) -> bool:
        """The next of the steps; False while what it takes has not come. Differs if it cannot be taken."""
        assert self._steps is not None
        try:
            if self._owed is not None:
                self._put_out(self._owed)
            elif not self._retake(self._steps.next):
                return False
        except ProtocolError as error:
            raise Differs(self.machine.name, str(error)) from error
        self._listen()
        return True

    def _listen(self) -> None:
        """Hear what it was told meanwhile, once it has taken all steps again and owes nothing."""
        if self._owed is None and (self._steps is None or self._steps.next is None):
            self._again = False
        if not self._is_deaf:
            held, self._held = self._held, []
            for tell in held:
                tell()

    @property
    def _is_deaf(self) -> bool:
        """Whether what it is told has to wait: its machine is ahead of what it has done."""
        return self._again or self._owed is not None

    def _retake(self, step: Step | None) -> bool:
        assert step is not None
        kind, number = step.kind, step.number
        if kind in (StepKind.RECORDS, StepKind.EMPTY) and self.source is not None:
            return self._read(step)
        if kind is StepKind.RECORDS or (kind is StepKind.BARRIER and number > self._base_epoch):
            channel = self.machine.inputs[step.channel]
            inbox = self.inboxes[channel]
            item = inbox.take_rows(number) if kind is StepKind.RECORDS else inbox.take_barrier(number)
            if item is None:
                return False
            self._take(channel, item)
            return True
        self._note(kind, step.channel, number)
        match kind:
            case StepKind.TRIGGER:
                self.on(Triggered(number))
            case StepKind.ABORT:
                self.on(Aborted(number))
            case StepKind.STOP:
                self._first_barrier.clear()
                self.on(PeersRestarted(0, number, {}))
            case StepKind.END:
                self._end()
            case StepKind.MARKED:
                self.on(BarrierArrived(self.machine.inputs[step.channel], number))
            case StepKind.WATERMARK:
                self.on(Watermarked(step.watermark))
            case StepKind.BARRIER:
                pass  # it ended a log of the copy, and is part of that
            case _:
                raise Differs(self.machine.name, f"'{step}' was taken, and cannot be taken by itself")
        return True

    def _choose(self) -> Inbox | None:
        """The input to read next; those of a kind take turns."""
        back = next((inbox for inbox in self._back if inbox), None)
        regular = next((inbox for inbox in self._regular if inbox), None)
        if self._turns.back_edge_next(back is not None, regular is not None):
            chosen, peers = back, self._back
        else:
            chosen, peers = regular, self._regular
        if chosen is not None:
            peers.append(peers.pop(peers.index(chosen)))
        return chosen

    def _read(self, again: Step | None = None) -> bool:
        """again: the step in which it did."""
        assert self.source is not None
        if self.machine.finished:
            return False
        with taken_by(self.failures, self.machine.copied + 1):
            rows = self.source.read() if again is None else self.source.read_again(again.channel, again.number)
        if isinstance(rows, NotYet):
            return False
        if rows is None:
            self._note(StepKind.END)
            self._end()
            return True
        if rows.num_rows:
            self._note(StepKind.RECORDS, self.source.split, rows.num_rows)
        else:
            self._note(StepKind.EMPTY)
        self.records_read += rows.num_rows
        self._emit(rows)
        return True

    def _end(self) -> None:
        self.on(EndOfInput())
        self._ended(self.machine.name)

    def trigger(self, epoch: int) -> None:
        """The coordinator begins an epoch."""
        if self._is_deaf:
            self._held.append(lambda: self.trigger(epoch))
        elif self.machine.is_triggered:
            self._look_at_clock()
            self._cut_by(Triggered(epoch), Step(StepKind.TRIGGER, 0, epoch))

    def _look_at_clock(self) -> None:
        """Of a source, how far event time has come."""
        watermark = self.source.watermark if self.source is not None else None
        if watermark is not None:
            self.on(Watermarked(END if self.machine.finished else watermark))

    def _cut_by(self, event: TaskEvent, step: Step) -> None:
        """Tell the machine what may bring a copy about. The watermark that this has comes before it (L12)."""
        actions = self.machine.on(event)
        advanced = next((a.watermark for a in actions if isinstance(a, Forward)), None)
        if advanced is not None and not self._again and self._steps is not None:
            self._steps.note(Step.of_watermark(advanced))
        if self._steps is not None:
            self._steps.note(step)
        self._carry_out(iter(actions))

    def complete(self, epoch: int) -> None:
        """The coordinator says that an epoch is complete."""
        if self._is_deaf:
            self._held.append(lambda: self.complete(epoch))
        else:
            self.on(Completed(epoch))

    def abort(self, epoch: int) -> None:
        """The coordinator says that an epoch is given up."""
        if self._is_deaf:
            self._held.append(lambda: self.abort(epoch))
        else:
            self._note(StepKind.ABORT, number=epoch)
            self.on(Aborted(epoch))

    def forget_senders(self, attempt: int, floor: int, replayed: Mapping[ChannelId, int]) -> None:
        """Senders of this task, which goes on, start again (R10). replayed: their channels, with how many records each
        had sent by the epoch that it starts from."""
        while self._owed is not None and not self._again:
            self._put_out(self._owed)  # at once: whoever restarts waits for its answer
        if self._is_deaf:
            self._held.append(lambda: self.forget_senders(attempt, floor, replayed))
            return
        self._note(StepKind.STOP, number=floor)
        for channel, sent in replayed.items():
            self.inboxes[channel].rewind(sent)
        self._first_barrier.clear()
        self.on(PeersRestarted(attempt, floor, replayed))

    def lag(self, epoch: int) -> Lag | None:
        """What it is doing for an epoch; None if it has acked it."""
        now, name = time.monotonic(), self.machine.name
        if self._owed is not None and epoch >= self.machine.copied:
            since = self._first_barrier.get(self.machine.copied, now)
            return Lag(name, "emit", rows=self._rows, seconds=now - since)
        awaits = tuple(sorted(self.machine.awaits(epoch), key=str))
        queued = sum(self.inboxes[channel].queued for channel in awaits)
        match self.machine.stage(epoch):
            case PartStage.UNSEEN | PartStage.ALIGNING | PartStage.GIVEN_UP:
                if not self.inboxes:
                    return Lag(name, "begin")
                since = now - self._first_barrier.get(epoch, now)
                return Lag(name, "align", awaits, queued, seconds=since)
            case PartStage.LOGGING:
                return Lag(name, "log", awaits, queued, seconds=now - self._parts[epoch].draft.copied)
            case PartStage.WRITING:
                draft = self._parts[epoch].draft
                return Lag(name, "write", rows=draft.rows, seconds=now - draft.copied)
            case PartStage.SETTLED:
                return None

    def on(self, event: TaskEvent) -> None:
        """Tell the machine, and do what it says."""
        self._carry_out(iter(self.machine.on(event)))

    def _carry_out(self, actions: Iterator[TaskAction]) -> None:
        for action in actions:
            match action:
                case Process(channel, _, batch, skip):
                    assert isinstance(batch, Batch)
                    self._process(channel, batch.without(skip))
                case Log(channel, epochs, _, batch, skip):
                    assert isinstance(batch, Batch)
                    for epoch in epochs if not self._again else ():
                        self._parts[epoch].logs.setdefault(channel, []).append(batch.without(skip).rows)
                case Block(channel):
                    self.inboxes[channel].blocked = True
                case Unblock(channel):
                    self.inboxes[channel].blocked = False
                case Flush(_, watermark):
                    if self.operator is not None:
                        self._put_out(Owed(self.operator.flush(watermark), actions))
                        return
                case Copy(epoch):
                    self._copy(epoch)
                case Forward(epoch, watermark):
                    for route in self.routes:
                        for channel in route.channels:
                            self._send(channel, Barrier(epoch, watermark))
                case Persist(epoch):
                    if not self._again:
                        self._persist(epoch)
                case Ack(epoch):
                    del self._parts[epoch]
                case Commit(epoch):
                    self._commit(epoch)
                case Discard(epoch):
                    self._parts.pop(epoch, None)
                case CaughtUp(channel):
                    self._caught_up(channel)
                case _:
                    assert_never(action)

    # -- what the actions mean here -----------------------------------------------------------------------

    def _process(self, channel: ChannelId, batch: Batch) -> None:
        self._input = batch.rows.schema
        with self._working():
            if self.operator is None:
                assert self.sink is not None
                self.sink.write(batch.rows)
                return
            with taken_by(self.failures, self.machine.copied + 1, str(channel)):
                rows = self.operator.process(batch.rows, batch.first, channel.sender.operator)
            if isinstance(rows, WithLate):
                self._emit(rows.late, rows.output)
                rows = rows.rows
            self._emit(rows)

    def _put_out(self, owed: Owed) -> None:
        """A piece of what is owed: its receivers may have to make room for the next, so that what has changed is never
        in memory as a whole. After the last comes what waits for that."""
        self._owed = owed
        with self._working():
            with taken_by(self.failures, self.machine.copied + 1):
                rows = next(owed.batches, None)
            self._emit(rows)
        if rows is None:
            self._owed = None
            self._carry_out(owed.then)
            self._listen()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """While it works on its input: what its columns do not allow is a failure of the job."""
        try:
            yield
        # JobFailed is none of these.
        except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
            raise cannot_work(self.machine.name, error, self._input or pa.schema([])) from error

    def _emit(self, rows: pa.RecordBatch | None, output: str | None = None) -> None:
        """To those who read an output of the operator, None: the one that it mainly has."""
        if rows is None or not rows.num_rows:
            return
        rows = without_dictionaries(rows)
        before = self._schemas.get(output)
        if before is None:
            self._schemas[output] = rows.schema
            if len(set(rows.schema.names)) < len(rows.schema.names):
                raise JobFailed(f"task {self.machine.name}: two columns of one name in {in_words(rows.schema)}")
        elif not rows.schema.equals(before):
            raise other_columns(self.machine.name, before, rows.schema)
        for route in self.routes:
            if (route.edge.output or None) != output:
                continue
            for channel, part in route.split(rows):
                first = self.machine.sent[channel] + 1
                self.machine.on(Sent(channel, part.num_rows))
                self._send(channel, Batch(first, part))

    def _copy(self, epoch: int) -> None:
        again = self._steps is not None and self._steps.next is not None
        self._note(StepKind.COPIED, number=epoch)
        place = self._steps.place if self._steps is not None else None
        schedule = self._steps.since_complete if self._steps is not None else None
        if self._steps is not None and not again:
            for event in self.machine.ahead():
                self._steps.note(self._ahead(event))
        if self._again:
            self._copy_again(epoch)
            return
        started = time.monotonic()
        state = self.operator.state if self.operator is not None else None
        copy, base = None, self._base
        if state is not None:
            # Files of a rescale stand side by side, each with other key groups: those count that lie on each other.
            files = depth(base, range(2**31))
            whole = self._whole or files >= FULL_AFTER or (files > 3 and sum(map(rows_in_reach, base)) > 2 * state.rows)
            copy = state.copy(epoch, None if whole else self._base_epoch)
            base = () if whole else base
        stage = self.sink.cut(epoch) if self.sink is not None else None
        draft = PartDraft(
            task=self.machine.name,
            epoch=epoch,
            attempt=self._attempt,
            attempt_id=self._attempt_id,
            rows=self._rows,
            counters=Counters(dict(self.machine.sent), dict(self.machine.received)),
            positions=self.source.cut() if self.source is not None else None,
            round_robin={r.edge.target: r.turn for r in self.routes},
            connector=self._connector,
            finished=self.machine.finished,
            alignment=started - self._first_barrier.get(epoch, started),
            copied=started,
            sync=time.monotonic() - started,
            schedule=schedule,
            watermark=self.machine.watermark,
            skipped=self.failures.count if self.failures is not None else 0,
        )
        self._first_barrier = {e: at for e, at in self._first_barrier.items() if e > epoch}
        key = state.keyed_by if state is not None else StateKey.of(())
        loader = self._packer.loader() if self._packer is not None else None
        future = self._pool.submit(write_state, loader or self._storage, draft, copy, key, base, stage)
        self._parts[epoch] = Part(draft, self._base_epoch, future, loader, place)

    @property
    def _connector(self) -> dict[str, str] | None:
        """What a snapshot keeps of what lies outside the job."""
        if isinstance(self.operator, TableLookup):
            return self.operator.connector
        return self.source.connector if self.source is not None else None

    @property
    def _rows(self) -> int:
        """Of its state."""
        return self.operator.state.rows if self.operator is not None and self.operator.state is not None else 0

    def _copy_again(self, epoch: int) -> None:
        """A copy of an epoch that was given up: nobody waits for its part. What a sink staged for it belongs to the
        next epoch that is complete, and an aggregate begins to gather what it emits for that."""
        if self.operator is not None and self.operator.state is not None:
            self.operator.state.end_interval(epoch)
        if self.source is not None:
            self.source.cut()
        if self.sink is not None:
            self._pool.submit(self.sink.cut(epoch))

    def _ahead(self, event: TaskEvent) -> Step:
        """What it was told of an epoch to come, as a step (L2)."""
        if isinstance(event, BarrierArrived):
            return Step(StepKind.MARKED, self._numbers[event.channel], event.epoch)
        assert isinstance(event, Aborted)
        return Step(StepKind.ABORT, 0, event.epoch)

    def _persist(self, epoch: int) -> None:
        part = self._parts[epoch]
        what = part.draft, part.durable, part.logs, self.machine.back
        if part.loader is None:
            write = self._pool.submit(write_part, self._storage, *what)
        else:
            write = self._pool.submit(write_logs, part.loader, *what)
        write.add_done_callback(lambda done: self._later(lambda: self._written(epoch, part.loader, done)))

    def _written(self, epoch: int, loader: Loader | None, done: Future[PartFacts]) -> None:
        if self._closed:  # dropped meanwhile, as if killed: it says nothing any more
            return
        try:
            facts = done.result()
        except pa.ArrowException as error:
            raise cannot_work(self.machine.name, error, self._schemas.get(None) or pa.schema([])) from error
        if loader is None or self._packer is None:
            self._persisted(epoch, facts)
        else:
            self._packer.add(loader.loose(facts), lambda packed: self._persisted(epoch, packed), time.monotonic())

    def _persisted(self, epoch: int, facts: PartFacts) -> None:
        if self._owed is not None:
            self._held.append(lambda: self._persisted(epoch, facts))
        elif epoch in self._parts and not self._closed:
            part = self._parts[epoch]
            self._files[epoch] = facts.state
            self.on(Persisted(epoch))
            self._acked(facts, part.draft.counters, part.base, part.place, self.machine.is_behind(facts.watermark))

    def _commit(self, epoch: int) -> None:
        if epoch in self._files and epoch > self._base_epoch:
            self._base, self._base_epoch = self._files[epoch], epoch
            self._files = {e: files for e, files in self._files.items() if e > epoch}
            if self.operator is not None and self.operator.state is not None:
                self.operator.state.forget(epoch)
        if self.sink is not None:
            self.sink.commit(epoch)

    def close(self) -> None:
        """Drop queues and open files."""
        self._closed = True
        self._owed = None
        if isinstance(self.machine, TracedTask):
            self.machine.leave()
        for inbox in self.inboxes.values():
            inbox.close()
        if self.source is not None:
            self.source.close()
        if self.sink is not None:
            self.sink.close()
        if self.operator is not None:
            self.operator.close()
