"""A trace of `abs run --trace`, held against the machines and the properties of the simulator: the first line that
disagrees.

Every machine is made again and told what it was told; it has to answer what it answered. What several machines saw has
to fit: a part what was acked, a barrier its place between the records, what a task hears what the coordinator decided.
At every manifest the cut is checked as in a simulated run; of records a trace has numbers, and no more. What a task
took again (rules L of `abscli.protocol.schedule`) is in `repeats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import msgspec

from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import (
    Abort,
    Aborted,
    Ack,
    Acked,
    BarrierArrived,
    Complete,
    Completed,
    Copy,
    Flush,
    Forward,
    Log,
    PeersRestarted,
    ProtocolError,
    RecordsArrived,
    Sent,
    Stop,
    Stored,
    Trigger,
    Triggered,
)
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.protocol.trace import COORDINATOR, Plain, coordinator_of, parsed, plain, task_of
from abscli.sim.model import Model, Record
from abscli.sim.properties import Violation, check_cut, check_open, check_parts, check_reveal
from abscli.sim.repeats import Repeats
from abscli.sim.situations import Situation, is_unread, of_coordinator, of_task
from abscli.sim.task import Part
from formats.decoding import decode
from formats.errors import FormatError
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology
from formats.version import check_version


class Head(msgspec.Struct, frozen=True):
    """The first line of an attempt.

    parent: the epoch that it goes on from; logged: records in its logs.
    new_generation: a generation begins with that epoch.
    """

    schema: str
    version: str
    job: str
    topology: Topology
    policy: str
    attempt: int
    parent: int
    logged: int
    new_generation: bool


class Line(msgspec.Struct, frozen=True):
    """A line of a machine; one of made, event, left is there.

    at: the task, or `coordinator`.
    instance: of the machine.
    sequence: of the line in this life, from 0.
    created: what it was made with.
    final_counts: what it had counted at its end.
    """

    at: str
    instance: str
    sequence: int
    created: Plain | None = None
    event: list[Any] | None = None
    actions: list[Any] = []
    final_counts: Plain | None = None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A line that cannot be.

    number: from 1.
    rule: stable, as in `abscli.sim.properties`.
    """

    number: int
    at: str
    rule: str
    message: str


@dataclass(slots=True)
class Checked:
    """What a trace came to. repeated: steps that were taken again; first: the first line that disagrees; cut: the last
    line is not whole, as after a kill."""

    job: str = ""
    attempts: int = 0
    machines: int = 0
    steps: int = 0
    epochs: int = 0
    repeated: int = 0
    situations: Counter[Situation] = field(default_factory=Counter)
    first: Disagreement | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Campaign:
    """Several traces, by path."""

    traces: dict[str, Checked]

    @property
    def attempts(self) -> int:
        return sum(checked.attempts for checked in self.traces.values())

    @property
    def machines(self) -> int:
        return sum(checked.machines for checked in self.traces.values())

    @property
    def steps(self) -> int:
        return sum(checked.steps for checked in self.traces.values())

    @property
    def epochs(self) -> int:
        return sum(checked.epochs for checked in self.traces.values())

    @property
    def repeated(self) -> int:
        return sum(checked.repeated for checked in self.traces.values())

    @property
    def situations(self) -> Counter[Situation]:
        """How often each happened."""
        return sum((checked.situations for checked in self.traces.values()), Counter[Situation]())

    @property
    def absent(self) -> list[Situation]:
        """What has never happened."""
        return [situation for situation in Situation if not self.situations[situation]]

    @property
    def cut(self) -> list[str]:
        """The traces that end in the middle of a line."""
        return [path for path, checked in self.traces.items() if checked.cut]

    @property
    def first(self) -> tuple[str, Disagreement] | None:
        """The first trace that disagrees, and where."""
        return next(((path, c.first) for path, c in self.traces.items() if c.first is not None), None)


def check_traces(paths: Iterable[str]) -> Campaign:
    """Every trace in these files. Raises as `check_trace`, and FormatError for a file that cannot be read."""
    traces = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                traces[path] = check_trace(file, path)
        except OSError as error:
            raise FormatError(f"cannot be read: {error.strerror}", path=path) from None
    return Campaign(traces)


class Disagrees(Exception):
    """The line at hand."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class _Numbers(Sequence[Record]):
    """All records of a channel: of each, its number."""

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, at: int | slice) -> Record | tuple[Record, ...]:
        if isinstance(at, int):
            return Record(at + 1)
        return tuple(Record(n + 1) for n in range(at.start, at.stop))

    def __len__(self) -> int:
        return 2**63 - 1


def check_trace(lines: Iterable[bytes], path: str = "trace") -> Checked:
    """Every attempt of a trace. Raises FormatError for a file that is none, UnsupportedVersion."""
    checked = Checked()
    section: _Attempt | None = None
    disagreements: list[Disagreement] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            checked.cut = True
            break
        try:
            if line.startswith(b'{"schema"'):
                if section is not None:
                    section.end()
                head = decode(line, Head)
                check_version(head.version, path=path, hint="record the trace again with `abs run --trace FILE`")
                section = _Attempt(head, checked, disagreements)
            elif section is None:
                raise _no_trace("it begins with no attempt", path)
            else:
                section.take(number, decode(line, Line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if section is None:
                raise _no_trace(str(error), path) from None
            disagreements.append(Disagreement(number, "", "line", f"is not a line of a trace: {error}"))
    if section is None:
        raise _no_trace("it has no attempt", path)
    section.end()
    checked.first = min(disagreements, key=lambda one: one.number, default=None)
    return checked


def _no_trace(reason: str, path: str) -> FormatError:
    return FormatError(f"is not a trace: {reason}", path=path, hint="record a trace with `abs run --trace FILE`")


@dataclass(slots=True)
class _Life:
    """One machine.

    attempt: of a task, the one that it counts itself to.
    again: it takes steps again that a life before it took.
    n: of its last line.
    over: its last line has been seen, or it has disagreed.
    copying: epochs whose counters stand when what is flushed has been sent.
    """

    machine: Task | Coordinator
    attempt: int = 0
    again: bool = False
    n: int = 0
    left: bool = False
    over: bool = False
    copying: list[int] = field(default_factory=list)
    logs: dict[int, dict[ChannelId, list[Record]]] = field(default_factory=dict)


class _Attempt:
    """The lines of one attempt, as they come."""

    def __init__(self, head: Head, checked: Checked, disagreements: list[Disagreement]) -> None:
        self._model = Model.of(head.topology, records=0)
        self._policy = Policy(head.policy)
        self._checked = checked
        self._disagreements = disagreements
        self._lives: dict[str, _Life] = {}
        self._parts: dict[tuple[TaskId, int], Part] = {}
        self._durable: set[tuple[TaskId, int]] = set()
        self._forwarded: dict[tuple[TaskId, int], dict[ChannelId, int]] = {}
        self._barriers: list[tuple[int, BarrierArrived, int]] = []
        self._watermarks: dict[tuple[TaskId, int], int | None] = {}
        self._arrived: dict[ChannelId, tuple[int, int]] = {}
        self._triggered: dict[int, int] = {}
        self._complete: set[int] = set()
        self._aborted: set[int] = set()
        self._stops: dict[int, Stop] = {}
        self._repeats = Repeats()
        self._most = 1
        checked.job = head.job
        checked.attempts += 1
        checked.situations[Situation.RESTORED] += bool(head.logged)
        checked.situations[Situation.GENERATION] += bool(head.logged and head.new_generation)

    def take(self, number: int, line: Line) -> None:
        """The next line."""
        life = self._lives.get(line.instance)
        if life is not None and life.over:
            return
        try:
            if life is None:
                self._begin(line)
            elif line.sequence != life.n + 1:
                raise Disagrees("line", f"line {line.sequence} of {line.at} comes after its line {life.n}")
            else:
                life.n = line.sequence
                self._go_on(number, line, life)
        except Violation as violation:
            self._disagree(number, line, violation.rule, str(violation).partition(": ")[2])
        except Disagrees as error:
            self._disagree(number, line, error.rule, str(error))
        except ProtocolError as error:
            self._disagree(number, line, "protocol", str(error))
        except (ValueError, KeyError) as error:
            self._disagree(number, line, "line", f"{error}")

    def _disagree(self, number: int, line: Line, rule: str, message: str) -> None:
        self._disagreements.append(Disagreement(number, line.at, rule, message))
        if line.instance in self._lives:
            self._lives[line.instance].over = True  # what comes after follows from it

    def _begin(self, line: Line) -> None:
        if line.created is None or line.sequence:
            raise Disagrees("line", f"{line.at} begins with line {line.sequence}, without how it was made")
        self._checked.machines += 1
        if line.at == COORDINATOR:
            self._most = line.created.get("max_concurrent", 1)
            self._lives[line.instance] = _Life(coordinator_of(line.created))
        else:
            again = bool(line.created.get("replaying"))
            if type(line.created["attempt"]) is not int:
                message = f"{line.at} begins in attempt {line.created['attempt']!r}, which is not a number"
                raise Disagrees("line", message)
            self._lives[line.instance] = _Life(task_of(line.at, line.created), line.created["attempt"], again)

    def _go_on(self, number: int, line: Line, life: _Life) -> None:
        machine = life.machine
        if line.final_counts is not None:
            life.left = life.over = True
            if not isinstance(machine, Task):
                return
            self._copied(machine, life)
            for name, counts in (("sent", machine.sent), ("received", machine.received)):
                own = {str(channel): count for channel, count in counts.items()}
                if line.final_counts.get(name) != own:
                    raise Disagrees("counters", f"{name} {line.final_counts.get(name)} at its end; {own} by its steps")
            return
        if line.event is None:
            raise Disagrees("line", "says neither what it was told nor what it had counted")
        self._checked.steps += 1
        event = parsed(line.event)
        if isinstance(machine, Task):
            self._task(number, machine, life, event, line.actions)
        else:
            self._coordinator(machine, event, line.actions)

    def _answer(self, on: Callable[[Any], list[Any]], event: Any, actions: list[Any]) -> list[Any]:
        answer = on(event)
        if (own := [plain(action) for action in answer]) != actions:
            asked = _shown(plain(event))
            raise Disagrees("answer", f"{asked} is answered by {_shown_all(own)}, not by {_shown_all(actions)}")
        return answer

    # -- tasks --------------------------------------------------------------------------------------------

    def _task(self, number: int, machine: Task, life: _Life, event: Any, actions: list[Any]) -> None:
        if not isinstance(event, Sent):
            self._copied(machine, life)
        self._heard(machine.name, event, life)
        unread = is_unread(machine, event)
        if isinstance(event, BarrierArrived) and not self._is_heard_late(machine, life, event.epoch):
            self._barriers.append((number, event, machine.received[event.channel]))
        if isinstance(event, PeersRestarted) and event.attempt:
            self._repeats.went_on(machine, self._stops[event.attempt])
            if life.again:
                self._repeats.ended(number, machine, life.attempt)
            life.attempt, life.again = event.attempt, False
        self._checked.repeated += life.again and not isinstance(event, Sent)
        answer = self._answer(machine.on, event, actions)
        if isinstance(event, RecordsArrived):
            last = event.first + event.count - 1
            if last > self._arrived.get(event.channel, (0, 0))[0]:
                self._arrived[event.channel] = last, number
        for action in answer:
            match action:
                case Copy(epoch):
                    life.copying.append(epoch)
                    life.logs[epoch] = {}
                case Log(channel, epochs, count, _, skip):
                    first = event.first + skip
                    records = [Record(n) for n in range(first, first + count)]
                    for epoch in epochs:
                        life.logs[epoch].setdefault(channel, []).extend(records)
                case Forward(epoch, watermark):
                    self._forward(machine, epoch, watermark)
                case Ack(epoch):
                    self._durable.add((machine.name, epoch))
        flushes = isinstance(event, Sent) or any(isinstance(action, Flush) for action in answer)
        if not flushes or machine.is_source:  # what a source sends next it has read
            self._copied(machine, life)
        self._checked.situations.update(of_task(machine, unread, event, answer))

    def _forward(self, machine: Task, epoch: int, watermark: int | None) -> None:
        before = self._watermarks.setdefault((machine.name, epoch), watermark)
        if before != watermark:
            raise Disagrees("again", f"barrier {epoch} is sent again at {watermark}, and was sent at {before}")

    def _is_heard_late(self, machine: Task, life: _Life, epoch: int) -> bool:
        """Whether a barrier may stand behind records that were sent after it: at least once, a copy may contain those.
        A task that starts from it hears the barrier again while it takes its steps again (L2), and when what its sender
        has kept comes (L8), where it counts no more."""
        return self._policy is Policy.AT_LEAST_ONCE and (life.again or epoch < machine.floor)

    def _copied(self, machine: Task, life: _Life) -> None:
        """What was flushed has been sent: the copies that are due have these counters."""
        for epoch in life.copying:
            sent = dict(machine.sent)
            before = self._forwarded.get((machine.name, epoch), sent)
            if other := next((channel for channel, count in sent.items() if before[channel] != count), None):
                places = f"behind record {sent[other]} now, and stood behind {before[other]}"
                raise Disagrees("again", f"barrier {epoch} is sent again on {other} {places}")
            self._forwarded[machine.name, epoch] = sent
            self._parts[machine.name, epoch] = Part(
                task=machine.name, epoch=epoch, attempt=life.attempt, base=0, changed=(), positions=(),
                finished=machine.finished, turns=(), sent=tuple(sent.items()), received=tuple(machine.received.items()),
                logs=(),
            )  # fmt: skip
        life.copying.clear()

    def _heard(self, task: TaskId, event: Any, life: _Life) -> None:
        """A task hears what the coordinator has decided, and nothing else."""
        match event:
            case PeersRestarted(0, floor) if life.again:
                if all(stop.floor != floor for stop in self._stops.values()):
                    raise Disagrees("heard", f"{task} hears again of epochs from {floor} on, and no stop was for that")
            case Triggered(epoch) if epoch not in self._triggered:
                raise Disagrees("heard", f"{task} is to begin epoch {epoch}, which the coordinator has not begun")
            case Completed(epoch):
                check_reveal(task, epoch, epoch in self._complete)
            case Aborted(epoch) if epoch not in self._aborted:
                raise Disagrees("heard", f"{task} hears that epoch {epoch} is given up, which the coordinator has not")
            case PeersRestarted(attempt, floor, replayed):
                stop = self._stops.get(attempt)
                if stop is None or stop.floor != floor:
                    order = f"the coordinator stopped for {stop.floor}" if stop else "which never began"
                    raise Disagrees("heard", f"{task} hears of attempt {attempt} from epoch {floor} on, {order}")
                if strangers := [channel for channel in replayed if channel.sender not in stop.tasks]:
                    raise Disagrees("heard", f"{strangers[0]} is to be replayed, and its sender goes on")

    def _part(self, task: TaskId, epoch: int) -> Part | None:
        """A part that is durable, with its logs."""
        part = self._parts.get((task, epoch))
        if part is None or (task, epoch) not in self._durable:
            return None
        logs = next((life.logs[epoch] for life in self._of(task) if epoch in life.logs), {})
        return _with_logs(part, {channel: tuple(records) for channel, records in logs.items()})

    def _of(self, task: TaskId) -> list[_Life]:
        """The lives of a task, newest first."""
        lives = [life for life in self._lives.values() if isinstance(life.machine, Task) and life.machine.name == task]
        return lives[::-1]

    # -- the coordinator ----------------------------------------------------------------------------------

    def _coordinator(self, machine: Coordinator, event: Any, actions: list[Any]) -> None:
        before = machine.phase
        if isinstance(event, Acked) and event.epoch in machine.open_epochs and event.attempt == machine.attempt:
            self._acked(event)  # any other does not count, and may be of a life that nobody remembers
        if isinstance(event, Stored):
            self._stored(event.epoch)
        answer = self._answer(machine.on, event, actions)
        for action in answer:
            match action:
                case Trigger(epoch):
                    self._triggered[epoch] = machine.attempt
                    check_open(machine.open_epochs, self._most)
                case Complete(epoch):
                    self._complete.add(epoch)
                    self._checked.epochs += 1
                case Abort(epoch):
                    self._aborted.add(epoch)
                case Stop():
                    self._stops[action.attempt] = action
        self._checked.situations.update(of_coordinator(machine, before, event, answer))

    def _acked(self, ack: Acked) -> None:
        """An ack says what its task has counted."""
        part = self._part(ack.task, ack.epoch)
        if part is None:
            raise Disagrees("ack", f"{ack.task} acks epoch {ack.epoch}, of which it has no durable part")
        logged = sum(len(records) for _, records in part.logs)
        own = (dict(part.sent), dict(part.received), logged, part.finished)
        if (dict(ack.sent), dict(ack.received), ack.logged, ack.finished) != own:
            raise Disagrees("ack", f"{ack.task} acks epoch {ack.epoch} with {_counted(ack)}; by its steps {_own(part)}")

    def _stored(self, epoch: int) -> None:
        parts = {task: self._part(task, epoch) for task in self._model.tasks}
        check_parts(epoch, self._triggered.get(epoch, 0), parts)
        history: Any = dict.fromkeys(self._model.channels, _Numbers())
        check_cut(self._model, self._policy, epoch, {task: part for task, part in parts.items() if part}, history)

    # -- between tasks ------------------------------------------------------------------------------------

    def end(self) -> None:
        """All lines are there: what was sent can be held against what came. Of a machine that was lost, its last lines
        are missing; what they would say is not known."""
        whole = {task: all(life.left for life in self._of(task)) for task in self._model.tasks}
        for number, arrived, received in self._barriers:
            channel, epoch = arrived.channel, arrived.epoch
            watermark = self._watermarks.get((channel.sender, epoch), arrived.watermark)
            # A task that starts from its copy hears again of a barrier before it, but not of its watermark (L2, L12).
            if arrived.watermark not in (None, watermark):
                message = f"barrier {epoch} came on {channel} at {arrived.watermark}, and was sent at {watermark}"
                self._disagreements.append(Disagreement(number, str(channel.receiver), "barrier", message))
            forwarded = self._forwarded.get((channel.sender, epoch))
            if forwarded is None and whole.get(channel.sender):
                message = f"barrier {epoch} came on {channel}, which never sent it"
                self._disagreements.append(Disagreement(number, str(channel.receiver), "barrier", message))
            elif forwarded is not None and forwarded[channel] != received:
                place = forwarded[channel]
                message = f"barrier {epoch} came on {channel} behind record {received}, and was sent behind {place}"
                self._disagreements.append(Disagreement(number, str(channel.receiver), "barrier", message))
        for channel, (last, number) in self._arrived.items():
            sent = max((life.machine.sent.get(channel, 0) for life in self._of(channel.sender)
                        if isinstance(life.machine, Task)), default=0)  # fmt: skip
            if last > sent and whole.get(channel.sender):
                message = f"record {last} came on {channel}, of which {sent} were sent"
                self._disagreements.append(Disagreement(number, str(channel.receiver), "order", message))
        for number, task, message in self._repeats.shortfalls():
            self._disagreements.append(Disagreement(number, str(task), "again", message))


def _with_logs(part: Part, logs: dict[ChannelId, tuple[Record, ...]]) -> Part:
    return Part(
        task=part.task, epoch=part.epoch, attempt=part.attempt, base=0, changed=(), positions=(),
        finished=part.finished, turns=(), sent=part.sent, received=part.received, logs=tuple(sorted(logs.items())),
    )  # fmt: skip


def _shown(step: list[Any]) -> str:
    name, given = step
    return f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})"[:200]


def _shown_all(steps: list[Any]) -> str:
    try:
        return ", ".join(map(_shown, steps)) or "nothing"
    except (TypeError, ValueError, AttributeError):
        return str(steps)[:200]


def _counted(ack: Acked) -> str:
    return f"{sum(ack.sent.values())} sent, {sum(ack.received.values())} received, {ack.logged} logged"


def _own(part: Part) -> str:
    logged = sum(len(records) for _, records in part.logs)
    return f"{sum(n for _, n in part.sent)} sent, {sum(n for _, n in part.received)} received, {logged} logged"
