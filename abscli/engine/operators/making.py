"""A task's operator, made of what the job file says of it. Outputs never depend on where batches end (`emit: batch`
says so)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from abscli.engine.errors import UsageError
from abscli.engine.failures import Failures
from abscli.engine.functions import load
from abscli.engine.operators.distinct import Distinct
from abscli.engine.operators.interval_join import IntervalJoin
from abscli.engine.operators.keyed_process import KeyedProcess
from abscli.engine.operators.last_out import LastOut
from abscli.engine.operators.reduce import Reduce
from abscli.engine.operators.row_wise import RowWise
from abscli.engine.operators.runnable import Runnable
from abscli.engine.operators.sessions import Sessions
from abscli.engine.operators.windowed import Windowed
from abscli.engine.state.contract import State
from abscli.engine.state.keyed_state import KeyedState
from formats.ids import TaskId
from formats.job.model import JOIN_NUMBER, JOIN_SIDE, WINDOW_START, Emit, Kind, Operator, Side, WindowKind
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
    if operator.join:
        return StateKey((*operator.key, JOIN_SIDE, JOIN_NUMBER), len(operator.key)), True
    if operator.window:
        return StateKey((*operator.key, WINDOW_START), len(operator.key)), True
    return StateKey.of(operator.key), removes_keys(operator)


def make_operator(
    operator: Operator, task: TaskId, root: str, make_state: MakeState = in_memory, failures: Failures | None = None,
    inputs: Mapping[Side, pa.Schema] | None = None,
) -> Runnable:  # fmt: skip
    """The runnable operator of a task that is neither source nor sink; UsageError for kinds that cannot be run.

    failures: takes the records on which it fails, where it goes on without them.
    inputs: the columns of both sides of a join.
    """
    match operator.kind:
        case Kind.MAP | Kind.FILTER | Kind.FLAT_MAP:
            assert operator.function is not None
            return RowWise(operator, task, load(operator.function, root), failures)
        case Kind.UNION:
            return RowWise(operator, task, None)
        case Kind.DISTINCT:
            return Distinct(operator, make_state(operator), failures)
        case Kind.JOIN if operator.join and inputs is not None:
            return IntervalJoin(operator, task, make_state(operator), inputs, failures)
        case Kind.REDUCE if operator.window:
            made = Sessions if operator.window.kind is WindowKind.SESSION else Windowed
            return made(operator, task, make_state(operator), failures)
        case Kind.REDUCE:
            last_out = LastOut(lambda: make_state(operator)) if operator.emit == Emit.CHANGE else None
            return Reduce(operator, task, make_state(operator), last_out, failures)
        case Kind.PROCESS if operator.key:
            assert operator.function is not None
            return KeyedProcess(operator, task, make_state(operator), load(operator.function, root), failures)
    raise UsageError(
        f"operator {operator.id} is of kind {operator.kind}, which `abs run` does not support",
        hint="use one of source, map, filter, flat_map, reduce, distinct, process with a key, join, lookup, "
        "union, sink",
    )
