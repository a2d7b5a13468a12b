"""Reading state to the last byte: what `evidence.gather` calls for every handle of a subtask.

Keyed state: each key group once and in its place, each stream to its last byte, each key in the key group that its hash
gives, each key group of the subtask covered; operator state: each element to its last byte. Values of classes that only
the job has are passed over and counted as unchecked.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from formats.errors import FormatError
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import (
    FileChangelogHandle,
    Handle,
    InMemoryChangelogHandle,
    KeyedHandle,
    OperatorState,
    OperatorStateHandle,
    Subtask,
    key_groups,
)
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.state import raw_timers
from formats.flink.state.keyed import read_blocks
from formats.flink.state.keys import GroupOf
from formats.flink.state.operator import read_operator_state
from formats.flink.state.rocksdb import NotInstalled, NotOpened
from formats.ids import TaskId
from formats.job.model import key_group_range

_MOST: Final = 5
"""Problems of one handle that are told one by one."""


def check_state(
    task: TaskId, operator: OperatorState, subtask: Subtask, field: str, handle: Handle, streams: Streams
) -> StreamResult:
    """Read one handle to the end; a `StreamCheck`."""
    if field == "managed_keyed" and isinstance(handle, KeyedHandle):
        return _keyed(task, operator, subtask, handle, streams)
    if field == "raw_keyed" and isinstance(handle, KeyedHandle) and _are_timers(handle, streams):
        return _keyed(task, operator, subtask, handle, streams, raw=True)
    if field == "managed_operator" and isinstance(handle, OperatorStateHandle):
        return _operator(task, handle, streams)
    if field.startswith("raw_"):
        title = field.replace("_", " ")
        return StreamResult((), (("unreadable", f"{title} has a format of its operator's own"),))
    return StreamResult()


def _are_timers(handle: KeyedHandle, streams: Streams) -> bool:
    try:
        return raw_timers.are_timers(handle, streams)
    except FormatError:  # a file that is lost is told of as a file
        return False


def _keyed(
    task: TaskId, operator: OperatorState, subtask: Subtask, handle: KeyedHandle, streams: Streams, *, raw: bool = False
) -> StreamResult:
    """raw: timers in raw keyed state."""
    problems: list[StreamProblem] = []
    unchecked: list[tuple[str, str]] = []
    outside = _outside(operator, subtask, handle)
    if outside is not None:
        problems.append(StreamProblem("misplaced-key", task, None, None, outside))
    check = GroupOf(operator.max_parallelism)
    misplaced: Counter[tuple[str, int, int]] = Counter()
    hidden: Counter[str] = Counter()
    blocks = (
        raw_timers.read(handle, streams, key=check) if raw
        else read_blocks(handle, streams, operator.max_parallelism, key=check)
    )  # fmt: skip
    try:
        for block in blocks:
            if block.problem is not None:
                problems.append(StreamProblem("unreadable", task, None, block.problem.path, block.problem.message))
            if block.hidden is not None:
                hidden[block.hidden.name] += block.hidden.bytes
            for group in block.keys:
                if isinstance(group, int) and group != block.group:
                    misplaced[block.table.name, block.group, group] += 1
    except NotOpened as error:
        unchecked.append(("misplaced-key", f"{error.message}: {error.hint}"))
        if not isinstance(error, NotInstalled):
            unchecked.append(("unreadable", error.message))
    except FormatError as error:
        problems.append(StreamProblem("unreadable", task, None, error.path, error.message))
    for (state, where, due), n in misplaced.most_common(_MOST):
        message = f"state {state!r}: {n} keys in key group {where} belong in key group {due} by their hash"
        problems.append(StreamProblem("misplaced-key", task, None, None, message))
    for name, size in hidden.items():
        unchecked.append(("unreadable", f"{size} bytes behind values of {name} were not read"))
    if check.unchecked:
        message = f"the hash of keys like those of {operator.uid or operator.name or operator.id} is not known"
        unchecked.append(("misplaced-key", message))
    if len(problems) > _MOST:
        more = f"{len(problems) - _MOST} more problems in its keyed state"
        problems = [*problems[:_MOST], StreamProblem(problems[0].code, task, None, None, more)]
    return StreamResult(tuple(problems), tuple(unchecked))


def _outside(operator: OperatorState, subtask: Subtask, handle: KeyedHandle) -> str | None:
    """What is wrong with the range of a handle: it must lie within its subtask's key groups."""
    if isinstance(handle, InMemoryChangelogHandle | FileChangelogHandle):
        return None
    groups = key_groups(handle)
    own = key_group_range(subtask.index, operator.parallelism, operator.max_parallelism)
    if groups and not (own.start <= groups[0] and groups[-1] < own.stop):
        subtask_of = f"subtask {subtask.index} of {operator.parallelism}"
        mismatch = f"key groups {groups[0]} to {groups[-1]}, but {subtask_of} has {own.start} to {own.stop - 1}"
        return f"its keyed state is of {mismatch}"
    return None


def _operator(task: TaskId, handle: OperatorStateHandle, streams: Streams) -> StreamResult:
    problems: list[StreamProblem] = []
    unchecked: list[tuple[str, str]] = []
    try:
        for rows in read_operator_state(handle, streams):
            if rows.problem is not None:
                problems.append(StreamProblem("unreadable", task, None, rows.problem.path, rows.problem.message))
            elif rows.hidden is not None:
                unchecked.append(("unreadable", f"values of {rows.hidden} in state {rows.name!r} were not read"))
    except FormatError as error:
        problems.append(StreamProblem("unreadable", task, None, error.path, error.message))
    return StreamResult(tuple(problems), tuple(unchecked))
