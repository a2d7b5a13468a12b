"""The tasks that people name, as the job has them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from formats.errors import UnknownTask
from formats.ids import TaskId, operator_of, task_name
from formats.job.model import Operator, Topology


def tasks_named(topology: Topology, names: Sequence[str]) -> list[TaskId]:
    """The tasks with these names. UnknownTask that names every unknown one, with the nearest operator or the tasks that
    there are."""
    operators = {op.id: op for op in topology.operators}
    tasks = {name: _task(operators, name) for name in names}
    wrong = [_what_is_wrong(operators, name) for name in names if tasks[name] is None]
    if wrong:
        raise UnknownTask("; ".join(wrong), hint="give a task as OPERATOR/SUBTASK, such as counts/1")
    return [task for task in tasks.values() if task is not None]


def parts_named(names: Sequence[str], tasks: Iterable[TaskId], *, epoch: int, path: str) -> tuple[TaskId, ...]:
    """Those of an epoch's tasks with these names; UnknownTask for one that it does not have. path: of the store."""
    if not names:
        return ()
    by_name = {str(task): task for task in tasks}
    for name in names:
        if name not in by_name:
            raise UnknownTask(f"epoch {epoch} has no task {name!r}", path=path)
    return tuple(by_name[name] for name in names)


def _task(operators: Mapping[str, Operator], name: str) -> TaskId | None:
    """The task of the job with this name, if it has one."""
    try:
        task = TaskId.parse(name)
    except ValueError:
        return None
    operator = operators.get(task.operator)
    return task if operator is not None and task.subtask < operator.parallelism else None


def _what_is_wrong(operators: Mapping[str, Operator], name: str) -> str:
    operator = name if name in operators else operator_of(name)
    if operator in operators:
        last = operators[operator].parallelism - 1
        tasks = task_name(operator, 0) + (f" to {task_name(operator, last)}" if last else "")
        if operator == name:
            return f"{name!r} is an operator, not a task; its tasks are {tasks}"
        return f"there is no task {name!r}; {operator} has {tasks}"
    near = difflib.get_close_matches(operator or name, operators, n=3)
    nearest = near or list(operators)[:3]
    lead = "did you mean" if near else "the operators are"
    more = "?" if near else ", ..." if len(operators) > 3 else ""
    return f"there is no task {name!r}: no operator is called {operator or name!r}; {lead} {', '.join(nearest)}{more}"
