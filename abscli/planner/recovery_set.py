"""The recovery set: the least set of tasks that holds the failed ones and is closed under two rules.

1. Every sender of a restarted task restarts (its input must come again), except over a `replayable` edge.
2. A receiver of a restarted sender restarts, over any edge, unless the sender is replay-deterministic; then it stays
   and drops the records that it has already seen.

The rules speak of tasks and channels. The work is done on operators and ranges of subtasks: over an edge that is not
`forward` one restarted subtask reaches all of the neighbour's, so ranges stay few and no list of channels is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from abscli.planner.adjacency import Adjacency
from abscli.planner.determinism import replay_deterministic
from abscli.planner.ranges import EMPTY, Ranges

FAILED = "failed"
"""Why the tasks restart that the rest follows from."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Subtasks of an operator that restart for one and the same reason.

    operator: its id.
    subtasks: which of them.
    why: the reason, as it is shown.
    """

    operator: str
    subtasks: Ranges
    why: str


@dataclass(frozen=True, slots=True)
class Dedup:
    """Every channel of an edge between these senders and receivers.

    source: the operator that sends.
    target: the operator that receives.
    senders: subtasks that restart.
    receivers: subtasks that stay, and drop what they have already seen.
    """

    source: str
    target: str
    senders: Ranges
    receivers: Ranges


@dataclass(frozen=True, slots=True)
class RecoverySet:
    """What restarts and which channels de-duplicate.

    restart: by operator in declared order, then by first subtask; the rows of an operator are disjoint.
    dedup: in the order of the topology's edges.
    """

    restart: tuple[Restart, ...]
    dedup: tuple[Dedup, ...]

    @property
    def subtasks(self) -> dict[str, Ranges]:
        """All that restarts, by operator; operators that are left alone are missing."""
        out: dict[str, Ranges] = {}
        for row in self.restart:
            out[row.operator] = out.get(row.operator, EMPTY) | row.subtasks
        return out

    @property
    def tasks(self) -> int:
        """How many tasks restart."""
        return sum(row.subtasks.count for row in self.restart)


def recovery_set(graph: Adjacency, failed: Mapping[str, Ranges]) -> RecoverySet:
    """The closure of the failed subtasks, given by operator, with a reason for every row.

    Raises ValueError when `failed` names subtasks that the topology does not have.
    """
    for id, subtasks in failed.items():
        if id not in graph.operators or subtasks - graph.subtasks[id]:
            raise ValueError(f"{id}/{subtasks} is not part of the topology")
    deterministic = replay_deterministic(graph)
    closure = _Closure(graph, deterministic)
    for id in graph.operators:
        if failed.get(id):
            closure.add(id, failed[id], FAILED)
    closure.close()
    return RecoverySet(tuple(closure.rows()), tuple(dropped(graph, closure.chosen)))


class _Closure:
    """The work list: `news` holds per operator the subtasks whose neighbours have not been looked at yet.

    It is first in, first out, so that a reason is a shortest way to a failed task.
    """

    def __init__(self, graph: Adjacency, deterministic: frozenset[str]) -> None:
        self.graph = graph
        self.deterministic = deterministic
        self.chosen: dict[str, Ranges] = {}
        self._reasons: dict[str, dict[str, Ranges]] = {}
        self._news: dict[str, Ranges] = {}
        self._queue: deque[str] = deque()

    def add(self, id: str, subtasks: Ranges, why: str) -> None:
        """Restart what of `subtasks` does not restart yet."""
        reasons = self._reasons.setdefault(id, {})
        reasons[why] = reasons.get(why, EMPTY) | subtasks
        self.chosen[id] = self.chosen.get(id, EMPTY) | subtasks
        # An operator waits once: what comes to it meanwhile is looked at together.
        if id not in self._news:
            self._queue.append(id)
        self._news[id] = self._news.get(id, EMPTY) | subtasks

    def close(self) -> None:
        """Apply both rules until nothing changes. Each subtask of an operator is news once."""
        while self._queue:
            id = self._queue.popleft()
            news = self._news.pop(id)
            # Rule 1: what the news need is sent again.
            for edge in self.graph.inputs[id]:
                if not edge.replayable:
                    senders = self.graph.senders(edge, news) - self.chosen.get(edge.source, EMPTY)
                    if senders:
                        # Over a `forward` edge only some of the news need these senders: the reason names those.
                        because = news & self.graph.receivers(edge, senders)
                        self.add(edge.source, senders, f"sends to {id}/{because.brief()}, which restarts")
            # Rule 2. Behind deterministic output nobody restarts: `dropped` names the channels.
            if id in self.deterministic:
                continue
            for edge in self.graph.outputs[id]:
                receivers = self.graph.receivers(edge, news) - self.chosen.get(edge.target, EMPTY)
                if receivers:
                    because = news & self.graph.senders(edge, receivers)
                    why = f"receives from {id}/{because.brief()}, whose output is not replay-deterministic"
                    self.add(edge.target, receivers, why)

    def rows(self) -> Iterator[Restart]:
        for id in self.graph.operators:
            parts = ((why, subtasks) for why, subtasks in self._reasons.get(id, {}).items())
            for why, subtasks in sorted(parts, key=lambda part: part[1].spans):
                yield Restart(id, subtasks, why)


def dropped(graph: Adjacency, chosen: Mapping[str, Ranges]) -> Iterator[Dedup]:
    """The channels from a restarted sender to a receiver that stays: it drops what it has, which comes again as it was
    (rule 2 has made all such senders deterministic, or they take their steps again)."""
    for edge in graph.edges:
        restarted = chosen.get(edge.source, EMPTY)
        if not restarted:
            continue
        receivers = graph.receivers(edge, restarted) - chosen.get(edge.target, EMPTY)
        if receivers:
            yield Dedup(edge.source, edge.target, restarted & graph.senders(edge, receivers), receivers)
