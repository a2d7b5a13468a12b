"""What has to hold in every simulated run; a Violation says which property does not, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from abscli.protocol.policy import Policy
from abscli.sim.model import Model, Record
from abscli.sim.task import Part
from formats.ids import ChannelId, TaskId


class Violation(AssertionError):
    """A property does not hold. rule: its name, stable for tests and scripts."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def check_open(epochs: Sequence[int], most: int) -> None:
    """No more epochs are open at once than may be."""
    if len(epochs) > most:
        raise Violation("concurrent", f"epochs {', '.join(map(str, epochs))} are open at once; {most} may be")


def check_parts(epoch: int, attempt: int, parts: Mapping[TaskId, Part | None]) -> None:
    """A manifest names the durable parts of all tasks, each made by the attempt that triggered the epoch."""
    for task, part in parts.items():
        if part is None:
            raise Violation("durable", f"epoch {epoch} is to be complete, and {task} has no durable part of it")
        if part.attempt != attempt:
            raise Violation(
                "fencing", f"epoch {epoch} of attempt {attempt} takes the part that {task} made in {part.attempt}"
            )


def check_on_time(channel: ChannelId, records: Sequence[Record], watermark: int | None) -> None:
    """None of these, which come to a task with this watermark, is of an earlier time: values are event times."""
    late = [record.value for record in records if watermark is not None and record.value < watermark]
    if late:
        raise Violation("watermark", f"{channel}: {late[0]} comes, and the watermark is {watermark}")


def check_due(channel: ChannelId, record: Record, watermark: int | None) -> None:
    """A timer sends nothing before event time has come to it: values are event times."""
    if watermark is None or record.value > watermark:
        raise Violation("timer", f"{channel}: {record.value} was sent before its time; the watermark is {watermark}")


def check_none_due(task: TaskId, epoch: int, rows: Iterable[Record], watermark: int | None) -> None:
    """What a copy keeps for timers is not due yet: timers come before the copy, in every run at the same barrier."""
    late = [row.value for row in rows if row.is_due(watermark)]
    if late:
        raise Violation("timer", f"epoch {epoch}: {task} keeps {late[0]}, which is due; the watermark is {watermark}")


def _check_watermarks(epoch: int, sender: Part, receiver: Part) -> None:
    ahead = receiver.watermark is not None and (sender.watermark is None or receiver.watermark > sender.watermark)
    if ahead:
        places = f"{receiver.task} is at {receiver.watermark}, its sender {sender.task} at {sender.watermark}"
        raise Violation("watermark", f"epoch {epoch}: {places}")


def check_cut(
    model: Model,
    policy: Policy,
    epoch: int,
    parts: Mapping[TaskId, Part],
    history: Mapping[ChannelId, tuple[Record, ...]],
) -> None:
    """The cut is consistent: on every channel, what was sent and not received is what was logged, record by record.

    At-least-once: on regular channels nothing may be missing; what was received beyond the cut comes again.
    No receiver is ahead of its sender in event time, unless copies are made before barriers come.
    """
    sent = {channel: count for part in parts.values() for channel, count in part.sent}
    received = {channel: count for part in parts.values() for channel, count in part.received}
    logs = {channel: records for part in parts.values() for channel, records in part.logs}
    for id, channel in model.channels.items():
        if not (channel.back or policy.copies_at_first):
            _check_watermarks(epoch, parts[id.sender], parts[id.receiver])
        flying, log = sent[id] - received[id], logs.get(id, ())
        counts = f"epoch {epoch}: {id}: {sent[id]} sent, {received[id]} received, {len(log)} logged"
        if log and not (channel.back or policy.logs_regular):
            raise Violation("conservation", f"{counts}, and it is a regular channel")
        if not policy.exactly_once and not channel.back:
            if flying > 0:
                raise Violation("conservation", f"{counts}: {flying} are lost")
        elif flying < 0:
            raise Violation("orphan", counts)
        elif history[id][received[id] : sent[id]] != log:
            raise Violation("conservation", counts)


def check_order(channel: ChannelId, first: int, records: tuple[Record, ...], history: tuple[Record, ...]) -> None:
    """Records are delivered in the order in which they were sent: a restored log comes first (rule 7)."""
    if history[first - 1 : first - 1 + len(records)] != records:
        raise Violation("order", f"{channel}: record {first} is not the one that was sent as such")


def check_replay(channel: ChannelId, number: int, record: Record, history: tuple[Record, ...]) -> None:
    """What a restarted task sends again to one that goes on is what it had sent."""
    if record != history[number - 1]:
        before = history[number - 1].value
        raise Violation("replay", f"{channel}: record {number} was {before}, and comes again as {record.value}")


def check_survivor(task: TaskId, may_start: frozenset[TaskId]) -> None:
    """Nobody goes back but who is lost, and who cannot be spared."""
    if task not in may_start:
        raise Violation("survivor", f"{task} starts again, and was not lost")


def check_reveal(task: TaskId, epoch: int, complete: bool) -> None:
    """Only complete epochs become visible: visible output never goes back."""
    if not complete:
        raise Violation("visible", f"{task} shows its output of epoch {epoch}, which is not complete")


def check_seen(model: Model, policy: Policy, seen: Mapping[str, Counter[int]], *, repeats: bool) -> None:
    """The final state is that of a run without failures; at-least-once: with repeats, but nothing lost or invented.

    seen: by operator; repeats: whether the run has gone back at all.
    """
    for id, wanted in model.expected().items():
        _check_counts(f"the state of {id}", policy, seen.get(id, Counter()), wanted, repeats=repeats)


def check_output(model: Model, policy: Policy, visible: Mapping[TaskId, tuple[Record, ...]], *, repeats: bool) -> None:
    """The visible output is that of a run without failures. visible: by sink task."""
    shown: dict[str, Counter[int]] = {task.operator: Counter() for task in model.sinks}
    for task, rows in visible.items():
        shown.setdefault(task.operator, Counter()).update(row.value for row in rows)
    expected = model.expected()
    for id, values in shown.items():
        _check_counts(f"the output of {id}", policy, values, expected[id], repeats=repeats)


def _check_counts(place: str, policy: Policy, counted: Counter[int], wanted: Counter[int], *, repeats: bool) -> None:
    if counted == wanted:
        return
    lost, more = wanted - counted, counted - wanted
    if lost:
        raise Violation("exactly-once", f"{place} lacks {dict(sorted(lost.items()))}")
    if policy.exactly_once or not repeats or set(more) - set(wanted):
        raise Violation("exactly-once", f"{place} has {dict(sorted(more.items()))} too much")
