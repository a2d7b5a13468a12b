"""Plans from facts: what restarts, which logs come first, how far sources go back, and what that costs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from abscli.planner.adjacency import Adjacency
from abscli.planner.local_set import restart_set
from abscli.planner.ranges import EMPTY, Ranges
from abscli.planner.recovery_set import FAILED, RecoverySet, Restart, recovery_set
from abscli.planner.repeats import may_repeat
from abscli.planner.rescale import changes, with_parallelism
from formats.errors import NoRecovery, UnknownTask
from formats.ids import ChannelId, TaskId, task_name
from formats.job.model import Topology, canonical
from formats.native.plan import Cost, DedupRow, NativePlan, PlanKind, RepeatRow, ReplayLog, RestartRow, Rewind
from formats.plan import Skipped
from formats.view import EpochDetail, Position, Status

Positions = tuple[Position, ...]
SourceTask = tuple[TaskId, Positions | None, Positions | None]
"""A source task, its positions in an epoch, and later; None where unknown."""

NO_CHANGE: Mapping[str, int] = MappingProxyType({})


def plan_full(
    topology: Topology,
    detail: EpochDetail,
    *,
    topology_sha256: str,
    skipped: Sequence[tuple[int, str]] = (),
    later: EpochDetail | None = None,
    parallelism: Mapping[str, int] = NO_CHANGE,
) -> NativePlan:
    """The job is down: all tasks roll back to the whole epoch `detail`.

    parallelism: operators that are to have other numbers of tasks than there.
    skipped: newer epochs that cannot be used, and why. later: the newest epoch that did not complete; the positions
    that its tasks acked say how far sources had come. Raises NoRecovery when `detail` is not a complete epoch.
    """
    epoch = _whole(detail)
    graph = Adjacency.of(topology)
    why = f"the job is down: all tasks roll back to epoch {epoch}"
    restarted = {id: graph.subtasks[id] for id in graph.operators}
    changed = {change.operator: change for change in changes(topology, with_parallelism(topology, parallelism))}
    restart = [
        Restart(id, Ranges.span(0, changed[id].after), f"{changed[id].after} tasks in place of {changed[id].before}: "
                f"they share what epoch {epoch} has of these") if id in changed else Restart(id, subtasks, why)
        for id, subtasks in restarted.items()
    ]  # fmt: skip
    return NativePlan(
        kind=PlanKind.RECOVER,
        job=topology.job,
        topology_sha256=topology_sha256,
        epoch=epoch,
        base_epoch=epoch,
        failed=(),
        restart=tuple(map(_row, restart)),
        dedup=(),
        replay_logs=_replay_logs(detail, restarted),
        repeats=_repeats(detail, restarted),
        rewind=tuple(_rewinds_of(graph, detail, later, restarted)),
        untouched=0,
        parallelism=dict(parallelism),
        cost=_cost(graph, detail, later, restarted),
        skipped=tuple(Skipped(number, reason) for number, reason in skipped),
    )


def plan_partial(
    topology: Topology,
    failed: Iterable[TaskId],
    *,
    local: bool = False,
    together: bool = False,
    detail: EpochDetail | None = None,
    topology_sha256: str | None = None,
    skipped: Sequence[tuple[int, str]] = (),
    later: EpochDetail | None = None,
) -> NativePlan:
    """The job runs and the tasks `failed` have died: what must restart, and which receivers drop what they know.

    local: schedules are kept, so that the tasks take their steps again and hardly ever anybody goes back with them.
    together: all tasks have started from that epoch since it is complete.
    detail: the newest whole epoch of the store; without one the plan is from the graph alone and knows no costs.
    Raises UnknownTask if none has, and NoRecovery when `detail` is not a complete epoch.
    """
    graph = Adjacency.of(topology)
    dead = failed_subtasks(graph, failed)
    if local:
        ahead = _ahead(detail) if detail is not None and not together else ()
        recovery = restart_set(graph, dead, detail.facts.epoch if detail is not None else None, ahead).recovery(graph)
    else:
        recovery = recovery_set(graph, dead)
    restarted = recovery.subtasks
    epoch = None if detail is None else _whole(detail)
    return NativePlan(
        kind=PlanKind.PARTIAL,
        local=local,
        job=topology.job,
        topology_sha256=topology_sha256 or hashlib.sha256(canonical(topology)).hexdigest(),
        epoch=epoch,
        base_epoch=epoch,
        failed=tuple(task_name(id, i) for id, subtasks in dead.items() for i in subtasks),
        restart=tuple(map(_row, recovery.restart)),
        dedup=tuple(DedupRow(d.source, d.target, str(d.senders), str(d.receivers)) for d in recovery.dedup),
        replay_logs=() if detail is None else _replay_logs(detail, restarted),
        repeats=None if detail is None else _repeats(detail, restarted),
        rewind=() if detail is None else tuple(_rewinds_of(graph, detail, later, restarted)),
        untouched=sum(op.parallelism for op in topology.operators) - recovery.tasks,
        parallelism={},
        cost=Cost(None, None, None) if detail is None else _cost(graph, detail, later, restarted),
        skipped=tuple(Skipped(number, reason) for number, reason in skipped),
    )


def plan_repair(
    topology: Topology,
    recovery: RecoverySet,
    missing: Iterable[TaskId],
    *,
    distrust: Iterable[TaskId] = (),
    epoch: int,
    base: EpochDetail,
    topology_sha256: str,
    skipped: Sequence[tuple[int, str]] = (),
    later: EpochDetail | None = None,
) -> NativePlan:
    """What of epoch `epoch` is missing is made again: these tasks run from the whole epoch `base` up to its barrier.

    distrust: those of the missing that were named, whose numbers are not to be believed either.
    later: the epoch itself, as far as it can be read: where its sources stood.
    """
    graph = Adjacency.of(topology)
    restarted = recovery.subtasks
    return NativePlan(
        kind=PlanKind.REPAIR,
        job=topology.job,
        topology_sha256=topology_sha256,
        epoch=epoch,
        base_epoch=base.facts.epoch,
        failed=tuple(map(str, missing)),
        distrust=tuple(map(str, distrust)),
        restart=tuple(
            RestartRow(row.operator, str(row.subtasks), "its part is missing" if row.why == FAILED else row.why)
            for row in recovery.restart
        ),
        dedup=tuple(DedupRow(d.source, d.target, str(d.senders), str(d.receivers)) for d in recovery.dedup),
        replay_logs=_replay_logs(base, restarted),
        repeats=_repeats(base, restarted),
        rewind=tuple(_rewinds_of(graph, base, later, restarted)),
        untouched=sum(op.parallelism for op in topology.operators) - recovery.tasks,
        parallelism={},
        cost=_cost(graph, base, later, restarted),
        skipped=tuple(Skipped(number, reason) for number, reason in skipped),
    )


def failed_subtasks(graph: Adjacency, failed: Iterable[TaskId]) -> dict[str, Ranges]:
    """The subtasks by operator, operators in declared order. UnknownTask if there is none."""
    indices: dict[str, list[int]] = {}
    for task in failed:
        indices.setdefault(task.operator, []).append(task.subtask)
    if not indices:
        raise UnknownTask("no failed task is named", hint="name at least one failed task, such as counts/1")
    return {id: Ranges.of(indices[id]) for id in graph.operators if id in indices}


def _whole(detail: EpochDetail) -> int:
    facts = detail.facts
    if facts.status is not Status.COMPLETE:
        reason = f": {facts.reason}" if facts.reason else ""
        raise NoRecovery(
            f"epoch {facts.epoch} is {facts.status}{reason}; tasks can only roll back to a complete epoch",
            hint="choose a complete epoch, or omit the epoch to use the newest complete one",
        )
    return facts.epoch


def _row(restart: Restart) -> RestartRow:
    return RestartRow(restart.operator, str(restart.subtasks), restart.why)


def _tasks(restarted: Mapping[str, Ranges]) -> frozenset[TaskId]:
    return frozenset(TaskId(id, index) for id, subtasks in restarted.items() for index in subtasks)


def _replay_logs(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> tuple[ReplayLog, ...]:
    """The logs that are not empty of the channels into restarted tasks: a task that goes on has read its own."""
    tasks = _tasks(restarted)
    return tuple(
        ReplayLog(str(channel.channel), channel.logged)
        for channel in detail.channels.logged()
        if channel.channel.receiver in tasks
    )


def _repeats(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> tuple[RepeatRow, ...] | None:
    """What restarted tasks hold already of what comes again."""
    repeats = may_repeat(detail.policy, detail.channels)
    if repeats is None:
        return None
    tasks = _tasks(restarted)
    return tuple(RepeatRow(str(r.channel), r.records) for r in repeats if r.channel.receiver in tasks)


def _ahead(detail: EpochDetail) -> Iterator[ChannelId]:
    """The channels of which a receiver's copy holds more than its sender's had sent: at least once that may be."""
    for repeat in may_repeat(detail.policy, detail.channels) or ():
        if isinstance(repeat.channel, ChannelId):
            yield repeat.channel


def _positions(detail: EpochDetail | None) -> dict[TaskId, Positions | None]:
    """Positions by task, as far as the epoch has its facts."""
    if detail is None:
        return {}
    return {task.task: task.position for operator in detail.operators for task in operator.tasks}


def _source_tasks(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Iterator[SourceTask]:
    """Each restarted task that reads from outside, its positions in the epoch and later; None where unknown."""
    then, now = _positions(detail), _positions(later)
    beginning: Positions | None = () if detail.facts.epoch == 0 else None
    for id in graph.operators:
        if graph.is_source(id):
            for index in restarted.get(id, EMPTY):
                task = TaskId(id, index)
                yield task, then.get(task, beginning), now.get(task)


def sources_of(detail: EpochDetail, later: EpochDetail | None) -> Iterator[SourceTask]:
    """Return each task of the epoch or the later one, for a job whose graph is not known."""
    then, now = _positions(detail), _positions(later)
    for task in sorted(then.keys() | now.keys()):
        yield task, then.get(task), now.get(task)


def rewinds(sources: Iterable[SourceTask]) -> Iterator[Rewind]:
    """Return a row for every split that a source has begun, by task and split."""
    for task, then, now in sources:
        to = {position.split: position.offset for position in then or ()}
        reached = {position.split: position.offset for position in now or ()}
        for split in sorted(to.keys() | reached.keys()):
            back, furthest = to.get(split), reached.get(split)
            if back is not None and furthest is not None and furthest < back:
                furthest = None  # of a life that ended below this epoch: not how far the job had come
            yield Rewind(str(task), split, furthest, back)


def _source_records(sources: Iterable[SourceTask]) -> int | None:
    """How many records sources read again; None unless every restarted source's progress is known."""
    total = 0
    for _, then, now in sources:
        if then is None or now is None:
            return None
        before: dict[str, int | None] = {position.split: position.records for position in then}
        for position in now:
            at_epoch = before.pop(position.split, 0)
            if position.records is None or at_epoch is None or position.records < at_epoch:
                return None
            total += position.records - at_epoch
        if before:
            return None
    return total


def _rewinds_of(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Iterator[Rewind]:
    return rewinds(_source_tasks(graph, detail, later, restarted))


def _cost(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Cost:
    return Cost(
        state_bytes=_state_bytes(detail, restarted),
        log_records=_log_records(detail, restarted),
        source_records=_source_records(_source_tasks(graph, detail, later, restarted)),
    )


def _state_bytes(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> int | None:
    """Bytes of state of what restarts; of an operator that restarts in part, the files of those tasks, each once."""
    sizes: list[int | None] = []
    files: dict[str, int | None] = {}
    tasks = _tasks(restarted)
    for operator in detail.operators:
        subtasks = restarted.get(operator.id, EMPTY)
        if subtasks.count == operator.parallelism:
            sizes.append(operator.bytes)
        else:
            chosen = [task for task in operator.tasks if task.task in tasks]
            if len(chosen) < subtasks.count:
                return None
            files.update((file.path, file.bytes) for task in chosen for file in task.files)
    return _sum([*sizes, *files.values()])


def _log_records(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> int | None:
    """Records logged on channels into restarted tasks; by task where the format does not list channels."""
    tasks = _tasks(restarted)
    if detail.channels:
        all_known = all(edge.logged is not None for edge in detail.channels.edges())
        channels = detail.channels.logged() if all_known else detail.channels
        return _sum(channel.logged for channel in channels if channel.channel.receiver in tasks)
    return _sum(
        task.log_records for operator in detail.operators for task in operator.tasks if task.task in tasks
    )


def _sum(values: Iterator[int | None] | Sequence[int | None]) -> int | None:
    """The sum; None when one of the values is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
