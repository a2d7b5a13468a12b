"""Plans from facts: what restarts, which logs come first, how far sources go back, and what that costs."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence

from abscli.planner.adjacency import Adjacency
from abscli.planner.ranges import EMPTY, Ranges
from abscli.planner.recovery_set import Restart, recovery_set
from abscli.planner.repeats import may_repeat
from formats.errors import NoRecovery, UnknownTask
from formats.ids import TaskId, ends_of, operator_of, task_name
from formats.job.model import Topology, canonical
from formats.native.plan import Cost, DedupRow, NativePlan, PlanKind, ReplayLog, RestartRow, Rewind
from formats.plan import Skipped
from formats.view import EpochDetail, Position, Repeat, Status

Positions = tuple[Position, ...]


def plan_full(
    topology: Topology,
    detail: EpochDetail,
    *,
    topology_sha256: str,
    skipped: Sequence[tuple[int, str]] = (),
    later: EpochDetail | None = None,
) -> NativePlan:
    """The job is down: every task goes back to the whole epoch `detail`.

    skipped: newer epochs that cannot be used, and why. later: the newest epoch that did not complete; the positions
    that its tasks acked say how far sources had come. Raises NoRecovery when `detail` is not a complete epoch.
    """
    epoch = _whole(detail)
    graph = Adjacency.of(topology)
    why = f"the job is down: every task goes back to epoch {epoch}"
    restart = [Restart(id, graph.subtasks[id], why) for id in graph.operators]
    restarted = {row.operator: row.subtasks for row in restart}
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
        rewind=tuple(_rewinds(graph, detail, later, restarted)),
        untouched=0,
        parallelism={},
        cost=_cost(graph, detail, later, restarted),
        skipped=tuple(Skipped(number, reason) for number, reason in skipped),
    )


def plan_partial(
    topology: Topology,
    failed: Sequence[str],
    *,
    detail: EpochDetail | None = None,
    topology_sha256: str | None = None,
    skipped: Sequence[tuple[int, str]] = (),
    later: EpochDetail | None = None,
) -> NativePlan:
    """The job runs and the tasks `failed` have died: what must restart, and which receivers drop what they know.

    detail: the newest whole epoch of the store; without one the plan is from the graph alone and knows no costs.
    Raises UnknownTask, for all unknown names at once, and NoRecovery when `detail` is not a complete epoch.
    """
    graph = Adjacency.of(topology)
    dead = failed_subtasks(graph, failed)
    recovery = recovery_set(graph, dead)
    restarted = recovery.subtasks
    epoch = None if detail is None else _whole(detail)
    return NativePlan(
        kind=PlanKind.PARTIAL,
        job=topology.job,
        topology_sha256=topology_sha256 or hashlib.sha256(canonical(topology)).hexdigest(),
        epoch=epoch,
        base_epoch=epoch,
        failed=tuple(task_name(id, i) for id, subtasks in dead.items() for i in subtasks),
        restart=tuple(map(_row, recovery.restart)),
        dedup=tuple(DedupRow(d.source, d.target, str(d.senders), str(d.receivers)) for d in recovery.dedup),
        replay_logs=() if detail is None else _replay_logs(detail, restarted),
        repeats=None if detail is None else _repeats(detail, restarted),
        rewind=() if detail is None else tuple(_rewinds(graph, detail, later, restarted)),
        untouched=sum(op.parallelism for op in topology.operators) - recovery.tasks,
        parallelism={},
        cost=Cost(None, None, None) if detail is None else _cost(graph, detail, later, restarted),
        skipped=tuple(Skipped(number, reason) for number, reason in skipped),
    )


def failed_subtasks(graph: Adjacency, failed: Sequence[str]) -> dict[str, Ranges]:
    """Task names -> subtasks by operator, operators in declared order.

    Raises UnknownTask that names every unknown one, with the nearest operator or the subtasks that there are.
    """
    indices: dict[str, list[int]] = {}
    wrong: list[str] = []
    for name in failed:
        task = _task(graph, name)
        if task is None:
            wrong.append(_what_is_wrong(graph, name))
        else:
            indices.setdefault(task.operator, []).append(task.subtask)
    if wrong:
        raise UnknownTask("; ".join(wrong), hint="a task is an operator and a subtask, such as counts/1")
    if not indices:
        raise UnknownTask("no failed task is named", hint="name at least one, such as counts/1")
    return {id: Ranges.of(indices[id]) for id in graph.operators if id in indices}


def _task(graph: Adjacency, name: str) -> TaskId | None:
    """The task of the job with this name, if it has one."""
    try:
        task = TaskId.parse(name)
    except ValueError:
        return None
    operator = graph.operators.get(task.operator)
    return task if operator is not None and task.subtask < operator.parallelism else None


def _what_is_wrong(graph: Adjacency, name: str) -> str:
    operator = name if name in graph.operators else operator_of(name)
    if operator in graph.operators:
        last = graph.operators[operator].parallelism - 1
        tasks = task_name(operator, 0) + (f" to {task_name(operator, last)}" if last else "")
        if operator == name:
            return f"{name!r} is an operator, not a task; its tasks are {tasks}"
        return f"there is no task {name!r}; {operator} has {tasks}"
    near = difflib.get_close_matches(operator or name, graph.operators, n=3)
    nearest = near or list(graph.operators)[:3]
    lead = "did you mean" if near else "the operators are"
    more = "?" if near else ", ..." if len(graph.operators) > 3 else ""
    return f"there is no task {name!r}: no operator is called {operator or name!r}; {lead} {', '.join(nearest)}{more}"


def _whole(detail: EpochDetail) -> int:
    facts = detail.facts
    if facts.status is not Status.COMPLETE:
        reason = f": {facts.reason}" if facts.reason else ""
        raise NoRecovery(
            f"epoch {facts.epoch} is {facts.status}{reason}; tasks can only go back to a complete one",
            hint="name one that is, or none: then the newest is taken",
        )
    return facts.epoch


def _row(restart: Restart) -> RestartRow:
    return RestartRow(restart.operator, str(restart.subtasks), restart.why)


def _names(restarted: Mapping[str, Ranges]) -> frozenset[str]:
    """Of the tasks: an epoch may have a million channels, of which each is looked up by its receiver's name."""
    return frozenset(task_name(id, index) for id, subtasks in restarted.items() for index in subtasks)


def _replay_logs(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> tuple[ReplayLog, ...]:
    """The logs that are not empty of the channels into restarted tasks: a task that goes on has read its own."""
    tasks = _names(restarted)
    return tuple(
        ReplayLog(channel.channel, channel.logged)
        for channel in detail.channels
        if channel.logged and ends_of(channel.channel)[1] in tasks
    )


def _repeats(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> tuple[Repeat, ...] | None:
    """What restarted tasks hold already of what comes again."""
    repeats = may_repeat(detail.policy, detail.channels)
    if repeats is None:
        return None
    tasks = _names(restarted)
    return tuple(repeat for repeat in repeats if ends_of(repeat.channel)[1] in tasks)


def _positions(detail: EpochDetail | None) -> dict[str, Positions | None]:
    """Positions by task, as far as the epoch has its facts."""
    if detail is None:
        return {}
    return {task.task: task.position for operator in detail.operators for task in operator.tasks}


def _source_tasks(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Iterator[tuple[str, Positions | None, Positions | None]]:
    """Each restarted task that reads from outside, its positions in the epoch and later; None where unknown."""
    then, now = _positions(detail), _positions(later)
    beginning: Positions | None = () if detail.facts.epoch == 0 else None
    for id in graph.operators:
        if graph.is_source(id):
            for index in restarted.get(id, EMPTY):
                task = task_name(id, index)
                yield task, then.get(task, beginning), now.get(task)


def _rewinds(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Iterator[Rewind]:
    """A row for every split that a restarted source has begun, by task and split."""
    for task, then, now in _source_tasks(graph, detail, later, restarted):
        to = {position.split: position.offset for position in then or ()}
        reached = {position.split: position.offset for position in now or ()}
        for split in sorted(to.keys() | reached.keys()):
            back, furthest = to.get(split), reached.get(split)
            if back is not None and furthest is not None and furthest < back:
                furthest = None  # of a life that ended below this epoch: not how far the job had come
            yield Rewind(task, split, furthest, back)


def _source_records(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> int | None:
    """How many records sources read again; None unless every restarted source's progress is known."""
    total = 0
    for _, then, now in _source_tasks(graph, detail, later, restarted):
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


def _cost(
    graph: Adjacency, detail: EpochDetail, later: EpochDetail | None, restarted: Mapping[str, Ranges]
) -> Cost:
    return Cost(
        state_bytes=_state_bytes(detail, restarted),
        log_records=_log_records(detail, restarted),
        source_records=_source_records(graph, detail, later, restarted),
    )


def _state_bytes(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> int | None:
    """Bytes of state of what restarts; of an operator that restarts in part, the files of those tasks, each once."""
    sizes: list[int | None] = []
    files: dict[str, int | None] = {}
    names = _names(restarted)
    for operator in detail.operators:
        subtasks = restarted.get(operator.id, EMPTY)
        if subtasks.count == operator.parallelism:
            sizes.append(operator.bytes)
        else:
            chosen = [task for task in operator.tasks if task.task in names]
            if len(chosen) < subtasks.count:
                return None
            files.update((file.path, file.bytes) for task in chosen for file in task.files)
    return _sum([*sizes, *files.values()])


def _log_records(detail: EpochDetail, restarted: Mapping[str, Ranges]) -> int | None:
    """Records logged on channels into restarted tasks; by task where the format does not list channels."""
    tasks = _names(restarted)
    if detail.channels:
        return _sum(
            channel.logged
            for channel in detail.channels
            if ends_of(channel.channel)[1] in tasks
        )
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
