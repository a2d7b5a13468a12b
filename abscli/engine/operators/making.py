"""A task's operator, made of what the job file says of it. Outputs never depend on where batches end (`emit: batch`
says so)."""

from __future__ import annotations

from collections.abc import Callable

from abscli.engine.errors import UsageError
from abscli.engine.functions import load
from abscli.engine.operators.distinct import Distinct
from abscli.engine.operators.keyed_process import KeyedProcess
from abscli.engine.operators.last_out import LastOut
from abscli.engine.operators.reduce import Reduce
from abscli.engine.operators.row_wise import RowWise
from abscli.engine.operators.runnable import Runnable
from abscli.engine.operators.windowed import Windowed
from abscli.engine.state.keyed_state import KeyedState, State
from formats.ids import TaskId
from formats.job.model import WINDOW_START, Emit, Kind, Operator
from formats.native.facts import removes_keys
from formats.native.state.tables import StateKey

MakeState = Callable[[Operator], State]
"""The keyed state of a task of an operator."""


def in_memory(operator: Operator) -> State:
    """All of it."""
    key, expires = keyed_by(operator)
    return KeyedState(key, operator.max_parallelism, expires=expires)


def keyed_by(operator: Operator) -> tuple[StateKey, bool]:
    """The key columns of an operator's state, and whether keys are removed from it."""
    if operator.window:
        return StateKey((*operator.key, WINDOW_START), len(operator.key)), True
    return StateKey.of(operator.key), removes_keys(operator)


def make_operator(operator: Operator, task: TaskId, root: str, make_state: MakeState = in_memory) -> Runnable:
    """The runnable operator of a task that is neither source nor sink; UsageError for kinds that cannot be run."""
    match operator.kind:
        case Kind.MAP | Kind.FILTER | Kind.FLAT_MAP:
            assert operator.function is not None
            return RowWise(operator, task, load(operator.function, root))
        case Kind.UNION:
            return RowWise(operator, task, None)
        case Kind.DISTINCT:
            return Distinct(operator, make_state(operator))
        case Kind.REDUCE if operator.window:
            return Windowed(operator, task, make_state(operator))
        case Kind.REDUCE:
            last_out = LastOut(lambda: make_state(operator)) if operator.emit == Emit.CHANGE else None
            return Reduce(operator, task, make_state(operator), last_out)
        case Kind.PROCESS if operator.key:
            assert operator.function is not None
            return KeyedProcess(operator, task, make_state(operator), load(operator.function, root))
    raise UsageError(
        f"operator {operator.id} is {operator.kind}: it can be inspected and planned for, not run",
        hint="run knows source, map, filter, flat_map, reduce, distinct, process with a key, union and sink",
    )
