"""Which tasks restart when schedules are kept (`--recovery local`): the lost ones alone, or else everything.

A lost task takes its steps again (L6 of `abscli.protocol.schedule`), so its senders need only have kept what they sent
and its receivers drop what they have. An operator that is marked `deterministic: false` cannot do the same again even
so: it goes back without its steps, and with it, near or far, all that receives from it (L11). `local_set` is that least
set. Workers keep what goes to other workers and nothing of what stays within one: a task that was not lost could not
be given its input again, so where one would have to go back everything does (`restart_set`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from abscli.planner.adjacency import Adjacency
from abscli.planner.ranges import EMPTY, Ranges
from abscli.planner.recovery_set import FAILED, RecoverySet, Restart, dropped
from formats.ids import ChannelId, tasks_name
from formats.job.model import Operator

AGAIN = f"{FAILED}: takes the same steps again"
"""Why a task restarts that nobody else goes back for."""


@dataclass(frozen=True, slots=True)
class LocalSet:
    """What restarts.

    again: lost tasks that take their steps again, by operator in declared order.
    back: tasks that go back and go on in whatever order, and why; for each operator in the order in which they were
    reached.
    everything: why all tasks roll back; None where not all have to.
    """

    again: tuple[Restart, ...]
    back: tuple[Restart, ...]
    everything: str | None = None

    def recovery(self, graph: Adjacency) -> RecoverySet:
        """The same as a recovery set: who restarts and why, and who drops what it has."""
        place = {id: number for number, id in enumerate(graph.operators)}
        rows = sorted((*self.again, *self.back), key=lambda row: (place[row.operator], row.subtasks.spans))
        chosen: dict[str, Ranges] = {}
        for row in rows:
            chosen[row.operator] = chosen.get(row.operator, EMPTY) | row.subtasks
        return RecoverySet(tuple(rows), tuple(dropped(graph, chosen)))


def local_set(graph: Adjacency, lost: Mapping[str, Ranges]) -> LocalSet:
    """The least set, for lost subtasks by operator. Raises ValueError for subtasks that the topology does not have."""
    for id, subtasks in lost.items():
        if id not in graph.operators or subtasks - graph.subtasks[id]:
            raise ValueError(f"{id}/{subtasks} is not part of the topology")
    back: dict[str, list[Restart]] = {id: [] for id in graph.operators}
    chosen: dict[str, Ranges] = {}
    news: list[Restart] = []

    def add(id: str, subtasks: Ranges, why: str) -> None:
        fresh = subtasks - chosen.get(id, EMPTY)
        if fresh:
            chosen[id] = chosen.get(id, EMPTY) | fresh
            news.append(Restart(id, fresh, why))
            back[id].append(news[-1])

    for id, operator in graph.operators.items():
        if id in lost and not repeats_itself(operator):
            add(id, lost[id], f"{FAILED}, and is marked as not deterministic")
    for row in news:  # grows while it is read
        for edge in graph.outputs[row.operator]:
            senders = tasks_name(row.operator, row.subtasks.brief())
            why = f"receives from {senders}, whose output cannot be repeated"
            add(edge.target, graph.receivers(edge, row.subtasks), why)
    again = (Restart(id, lost.get(id, EMPTY) - chosen.get(id, EMPTY), AGAIN) for id in graph.operators)
    return LocalSet(tuple(row for row in again if row.subtasks), tuple(row for rows in back.values() for row in rows))


def restart_set(
    graph: Adjacency, lost: Mapping[str, Ranges], epoch: int | None = None, ahead: Iterable[ChannelId] = ()
) -> LocalSet:
    """What restarts in a running job: the least set where that is of lost tasks alone, else every task.

    epoch: the newest complete one; None where the graph alone is known.
    ahead: the channels of which its receiver's copy holds more than its sender's had sent (at-least-once).
    Raises ValueError for subtasks that the topology does not have.
    """
    least = local_set(graph, lost)
    reason = _reaches_others(graph, least, lost) or _overtaken(least, lost, epoch, ahead)
    if reason is None:
        return least
    rows: list[Restart] = []
    for id, subtasks in graph.subtasks.items():
        failed = lost.get(id, EMPTY)
        rows += [
            Restart(id, some, why)
            for some, why in ((failed, FAILED), (subtasks - failed, f"everything restarts, since {reason}"))
            if some
        ]
    return LocalSet((), tuple(rows), reason)


def _reaches_others(graph: Adjacency, least: LocalSet, lost: Mapping[str, Ranges]) -> str | None:
    """Why a task that was not lost would have to go back; None where none has to."""
    if all(not row.subtasks - lost.get(row.operator, EMPTY) for row in least.back):
        return None
    for id, subtasks in lost.items():
        for row in local_set(graph, {id: subtasks}).back:
            if others := row.subtasks - lost.get(row.operator, EMPTY):
                marked, receivers = tasks_name(id, subtasks.brief()), tasks_name(row.operator, others.brief())
                return f"operator {id} is marked `deterministic: false`, and {receivers} has received from {marked}"
    raise AssertionError("a task that is not downstream of a lost task rolls back")


def _overtaken(
    least: LocalSet, lost: Mapping[str, Ranges], epoch: int | None, ahead: Iterable[ChannelId]
) -> str | None:
    """Why a task cannot take its steps again although they are known. At least once a copy may hold what a sender had
    put out behind its own. Where both are lost nobody may know the steps in which it did, and what it puts out under
    these numbers now would be dropped."""
    again = {row.operator: row.subtasks for row in least.again}
    for channel in sorted(ahead):
        sender, receiver = channel.sender, channel.receiver
        goes = sender.subtask in lost.get(sender.operator, EMPTY)
        if goes and receiver.subtask in again.get(receiver.operator, EMPTY):
            return f"task {receiver} has in epoch {epoch} what {sender} sent behind it, both are lost"
    return None


def repeats_itself(operator: Operator) -> bool:
    """Whether an operator does the same again when it takes the same steps: unless it is marked otherwise."""
    return operator.deterministic and (operator.connector or {}).get("deterministic") is not False
