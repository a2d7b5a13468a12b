"""Regional checkpoints (FLIP-600): of a region that failed, the state of an older checkpoint stands in, and says so.

Flink takes the state of all tasks of such a region from its newest complete checkpoint, and writes that one's number
beside each of them (version 7 of `_metadata`). Where that state was taken over itself, the older checkpoint says so.
Source: the public change for FLINK-40209; no such file was at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from formats.flink.files.resolve import FileLike, of_changes
from formats.flink.ids import Names
from formats.flink.metadata.handles import Metadata, OperatorState, RelativeHandle, SegmentHandle, Subtask
from formats.flink.plan_json import JobPlan
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.regional.regions import VertexTask, regions
from formats.flink.rewrite import with_files
from formats.ids import TaskId
from formats.storage import file_name

MIXED = "region-mixed"
NAMED = 4
"""Tasks that a sentence names."""

Older = Callable[[int], Metadata | None]
"""The metadata of an older checkpoint; None where it is not here, or cannot be read."""


def taken_over(metadata: Metadata, names: Names) -> dict[int, list[TaskId]]:
    """The tasks whose state is of an older checkpoint, by its number."""
    by_checkpoint: dict[int, list[TaskId]] = {}
    for operator in metadata.operators:
        for subtask in sorted(operator.subtasks, key=lambda subtask: subtask.index):
            if subtask.ref_checkpoint is not None:
                task = TaskId(names[operator.id], subtask.index)
                by_checkpoint.setdefault(subtask.ref_checkpoint, []).append(task)
    return by_checkpoint


def words(metadata: Metadata, names: Names) -> list[str]:
    """Whose state is of an older checkpoint, a sentence for each of these: `2 tasks of checkpoint 6: ...`."""
    return [
        f"{len(tasks)} task{'s'[: len(tasks) != 1]} of checkpoint {number}: "
        f"{', '.join(map(str, tasks[:NAMED]))}{f' and {len(tasks) - NAMED} more' * (len(tasks) > NAMED)}"
        for number, tasks in sorted(taken_over(metadata, names).items())
    ]


def check_origins(metadata: Metadata, names: Names, older: Older, plan: JobPlan | None) -> StreamResult:
    """Whether each region is wholly of one checkpoint, and of the one that it names.

    plan: of the job; without one its regions are not known.
    """
    if not metadata.regional:
        return StreamResult()
    problems = []
    unchecked = []
    for number, tasks in taken_over(metadata, names).items():
        if not 0 < number < metadata.checkpoint_id:
            message = f"its state is said to be of checkpoint {number}, not older than this, {metadata.checkpoint_id}"
            problems += [StreamProblem(MIXED, task, None, None, message) for task in tasks]
            continue
        before = older(number)
        if before is None:
            unchecked.append((MIXED, f"checkpoint {number}, of which state was taken over, is not here to be compared"))
        else:
            problems += _not_of(metadata, names, number, before)
    if plan is None:
        reason = "the metadata does not contain the job graph: --topology PLAN says what its regions are"
        unchecked.append((MIXED, reason))
        return StreamResult(tuple(problems), tuple(unchecked))
    by_vertex, reasons = _by_vertex(metadata, plan)
    unchecked += [(MIXED, reason) for reason in reasons]
    problems += [problem for region in regions(plan) for problem in _mixed(metadata, names, region, by_vertex)]
    return StreamResult(tuple(problems), tuple(unchecked))


# -- against the checkpoint that is named -----------------------------------------------------------------


def _not_of(metadata: Metadata, names: Names, number: int, before: Metadata) -> Iterator[StreamProblem]:
    """Subtasks whose state is not what the checkpoint that they name has for them."""
    known = {operator.id: operator for operator in before.operators}
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            if subtask.ref_checkpoint != number:
                continue
            theirs = _subtask(known.get(operator.id), subtask.index)
            task = TaskId(names[operator.id], subtask.index)
            if theirs is None:
                message = f"its state is said to be of checkpoint {number}, which has none of it"
                yield StreamProblem(MIXED, task, None, None, message)
            elif (different := _differs(subtask, theirs)) is not None:
                message = f"its state is said to be of checkpoint {number}, whose {different} is another"
                yield StreamProblem(MIXED, task, None, None, message)


def _subtask(operator: OperatorState | None, index: int) -> Subtask | None:
    if operator is None:
        return None
    return next((one for one in operator.subtasks if one.index == index and not one.finished), None)


_SORTS = {
    "managed_operator": "operator state", "raw_operator": "raw operator state", "managed_keyed": "keyed state",
    "raw_keyed": "raw keyed state", "input_channels": "in-flight input", "output_channels": "in-flight output",
}  # fmt: skip


def _differs(one: Subtask, other: Subtask) -> str | None:
    """What of two subtasks differs, but for where its files lie; None if nothing does."""
    first, second = with_files(one, _named), with_files(other, _named)
    return next((word for field, word in _SORTS.items() if getattr(first, field) != getattr(second, field)), None)


def _named(handle: FileLike) -> RelativeHandle:
    """A file by its name alone, which Flink draws at random; a segment with where it begins."""
    name = file_name(handle.path)
    if isinstance(handle, SegmentHandle):
        name += f"+{handle.start}"
    return RelativeHandle(name, handle.size, of_changes(handle))


# -- by region --------------------------------------------------------------------------------------------


_Vertices = dict[str, list[OperatorState]]
"""Operators of a checkpoint by the vertex of the plan that they run in."""


def _by_vertex(metadata: Metadata, plan: JobPlan) -> tuple[_Vertices, list[str]]:
    """The operators by vertex, and why the plan does not fit them, in words."""
    by_hash = {vertex.hash: vertex for vertex in plan.nodes if vertex.hash is not None}
    everything = [name for vertex in plan.nodes for name in vertex.names]
    by_name = {name: vertex for vertex in plan.nodes for name in vertex.names if everything.count(name) == 1}
    operators: dict[str, list[OperatorState]] = {}
    lost, others = [], []
    for operator in metadata.operators:
        vertex = by_hash.get(operator.id) or by_name.get(operator.name or "")
        if vertex is None:
            lost.append(operator.name or operator.id)
        elif vertex.parallelism != operator.parallelism:
            others.append(f"{vertex.names[0]} has {vertex.parallelism} tasks, {operator.parallelism} in the checkpoint")
        else:
            operators.setdefault(vertex.id, []).append(operator)
    reasons = [f"the plan is of another job: {other}" for other in others]
    if lost:
        reasons.append(f"the plan has no vertex of {', '.join(lost[:NAMED])}{' and others' * (len(lost) > NAMED)}")
    return operators, reasons


def _mixed(
    metadata: Metadata, names: Names, region: frozenset[VertexTask], vertices: _Vertices
) -> Iterator[StreamProblem]:
    """One problem where the tasks of a region are not all of one checkpoint."""
    by_origin: dict[int, list[TaskId]] = {}
    for vertex, index in sorted(region):
        for operator in vertices.get(vertex, ()):
            subtask = _subtask(operator, index)
            if subtask is not None:
                origin = metadata.checkpoint_id if subtask.ref_checkpoint is None else subtask.ref_checkpoint
                by_origin.setdefault(origin, []).append(TaskId(names[operator.id], index))
    if len(by_origin) > 1:
        parts = [
            f"{', '.join(map(str, tasks[:NAMED]))}{f' and {len(tasks) - NAMED} more' * (len(tasks) > NAMED)} "
            f"of checkpoint {origin}"
            for origin, tasks in sorted(by_origin.items())
        ]
        first = by_origin[min(by_origin)][0]
        yield StreamProblem(MIXED, first, None, None, f"its region is of several checkpoints: {'; '.join(parts)}")


def origins(operator: OperatorState) -> dict[int | None, list[Subtask]]:
    """The subtasks of an operator that hold state, by the checkpoint that it is of; None: of this one."""
    grouped: dict[int | None, list[Subtask]] = {}
    for subtask in operator.subtasks:
        if not subtask.finished:
            grouped.setdefault(subtask.ref_checkpoint, []).append(subtask)
    return grouped
