"""What tasks of several checkpoints may contradict each other in: splits that two of them hold, and state that every
task is to have alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.errors import FormatError
from formats.flink.connectors import splits
from formats.flink.connectors.enumerators import enumerator
from formats.flink.files.streams import Streams
from formats.flink.ids import Names
from formats.flink.metadata.handles import Metadata, Mode, OperatorState, OperatorStateHandle, Subtask
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.regional.origins import origins
from formats.flink.state.operator import raw_elements, read_operator_state
from formats.ids import TaskId

TWICE = "split-owned-twice"
DISAGREES = "state-mismatch"


def check_splits(metadata: Metadata, names: Names, at: Streams) -> StreamResult:
    """Whether each split of a source belongs to one task."""
    problems = []
    unknown: list[str] = []
    for operator in metadata.operators:
        holders: dict[str, TaskId] = {}
        for subtask in operator.subtasks:
            task = TaskId(names[operator.id], subtask.index)
            for split in splits.readable(subtask, at) or ():
                if split.id is None:
                    unknown.append(names[operator.id])
                    continue
                first = holders.setdefault(split.id, task)
                if first != task:
                    message = f"split {split.id} is {first}'s, too: its records would be read twice"
                    problems.append(StreamProblem(TWICE, task, None, None, message))
        waiting = enumerator(operator)
        for split in waiting.splits if waiting is not None else ():
            if split.id in holders:
                message = f"split {split.id} is the enumerator's, too, which hands it out again: it would be read twice"
                problems.append(StreamProblem(TWICE, holders[split.id], None, None, message))
    reasons = [f"splits of {name} are of a kind that is not known" for name in dict.fromkeys(unknown)]
    return StreamResult(tuple(problems), tuple((TWICE, reason) for reason in reasons))


def check_agreement(metadata: Metadata, names: Names, at: Streams) -> StreamResult:
    """Whether union and broadcast state that was taken over is that of the other tasks.

    Broadcast state is the same in every task. Union state is each task's own, unless the tasks of one checkpoint have
    just the same elements: then it is something that all of them agree on, an epoch or a number of restarts.
    """
    problems: list[StreamProblem] = []
    unchecked: list[tuple[str, str]] = []
    for operator in metadata.operators if metadata.regional else ():
        try:
            problems += _of_operator(operator, names, at)
        except FormatError as error:
            unchecked.append((DISAGREES, f"operator state of {names[operator.id]} cannot be read: {error.message}"))
    return StreamResult(tuple(problems), tuple(unchecked))


def _of_operator(operator: OperatorState, names: Names, at: Streams) -> Iterator[StreamProblem]:
    groups = origins(operator)
    if len(groups) < 2:
        return
    for mode, title in ((Mode.BROADCAST, "broadcast"), (Mode.UNION, "union")):
        by_origin = {
            origin: [(subtask, _contents(subtask, mode, at)) for subtask in subtasks]
            for origin, subtasks in groups.items()
        }
        for name in sorted({name for group in by_origin.values() for _, content in group for name in content}):
            alike = {
                origin: [(subtask, content[name]) for subtask, content in group if name in content]
                for origin, group in by_origin.items()
            }
            if mode is Mode.UNION and not _agreed(alike):
                continue
            ours = [value for _, value in alike.get(None, ())]
            for origin, group in alike.items():
                for subtask, value in group:
                    if origin is not None and ours and value not in ours:
                        task = TaskId(names[operator.id], subtask.index)
                        message = (
                            f"{title} state {name!r}, taken over from checkpoint {origin}, is another than that of the "
                            f"tasks of this one, which have it alike"
                        )
                        yield StreamProblem(DISAGREES, task, None, None, message)


def _agreed(alike: dict[Any, list[tuple[Subtask, Any]]]) -> bool:
    """Whether the tasks of each checkpoint have the same elements, and of one of them several do."""
    groups = [[value for _, value in group] for group in alike.values()]
    same = all(value == group[0] for group in groups for value in group)
    return same and any(len(group) > 1 and group[0] for group in groups)


def _contents(subtask: Subtask, mode: Mode, at: Streams) -> dict[str, Any]:
    """What a task has of each state of a mode: elements as bytes; of broadcast state its entries in no order."""
    handle = subtask.managed_operator
    if handle is None or not any(part.mode is mode for part in handle.states):
        return {}
    elements = raw_elements(handle, at)
    contents: dict[str, Any] = {part.name: sorted(elements[part.name]) for part in handle.states if part.mode is mode}
    return {**contents, **_entries(handle, at)} if mode is Mode.BROADCAST else contents


def _entries(handle: OperatorStateHandle, at: Streams) -> dict[str, list[str]]:
    """The entries of broadcast states that can be read: the same ones in another order are the same state."""
    wanted = frozenset(part.name for part in handle.states if part.mode is Mode.BROADCAST)
    return {
        rows.name: sorted(f"{key!r}: {value!r}" for key, value in zip(rows.keys or (), rows.values, strict=True))
        for rows in read_operator_state(handle, at, names=wanted)
        if rows.problem is None and rows.hidden is None
    }
