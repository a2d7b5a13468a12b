"""Which operators take updates for rows: their results depend on where epochs end.

A `reduce` without windows emits the value of a key again whenever it has changed: with `emit: record` after each row,
otherwise at most once per epoch or batch. An operator downstream that keeps rows, or adds them up, takes each of these
values for another row. How many there are depends on how many epochs the run had.

The latest value of a key is the same in every run, so `last` is right. `min` and `max` are right over values that only
go one way, as those of `min` and `max` themselves: a loop that looks for the smallest label is of this kind.
"""

from __future__ import annotations

from abscli.planner.adjacency import Adjacency
from formats.job.model import ROW_WISE, Aggregation, Emit, Kind, Operator

_ONE_WAY = frozenset({Aggregation.MIN, Aggregation.MAX})
_LATEST = _ONE_WAY | {Aggregation.LAST}
_KEEPING = frozenset({Kind.REDUCE, Kind.DISTINCT, Kind.JOIN})


def counts_updates(graph: Adjacency) -> frozenset[str]:
    """Return the ids of the operators that count updates of a `reduce` as rows.

    A keyed `process` is not among them: what it does with an update is not known, and it is named for its order.
    Linear in operators and edges.
    """
    found: set[str] = set()
    for of_one_way in (False, True):
        emitting = [id for id, op in graph.operators.items() if _emits_updates(op) and _is_one_way(op) is of_one_way]
        reached = _reached(graph, emitting)
        found |= {id for id in reached if _counts(graph.operators[id], of_one_way=of_one_way)}
    return frozenset(found)


def _emits_updates(op: Operator) -> bool:
    return op.kind is Kind.REDUCE and not op.window and op.emit is not Emit.RECORD


def _is_one_way(op: Operator) -> bool:
    return all(output.function in _ONE_WAY for output in op.aggregates)


def _counts(op: Operator, *, of_one_way: bool) -> bool:
    """Tell whether a result depends on how many updates came. of_one_way: of updates that only fall, or only rise."""
    if op.kind is not Kind.REDUCE:
        return op.kind in _KEEPING
    safe = _LATEST if of_one_way else {Aggregation.LAST}
    return any(output.function not in safe for output in op.aggregates)


def _reached(graph: Adjacency, emitting: list[str]) -> set[str]:
    """Return the operators that get rows of these, directly or through operators that handle row by row."""
    reached: set[str] = set()
    front = emitting
    while front:
        for edge in graph.outputs[front.pop()]:
            if edge.target not in reached:
                reached.add(edge.target)
                if graph.operators[edge.target].kind in ROW_WISE:
                    front.append(edge.target)
    return reached
