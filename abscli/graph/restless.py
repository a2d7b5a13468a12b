"""Loops in which every record goes round for ever."""

from __future__ import annotations

from abscli.graph.loops import loops
from formats.job.model import Aggregation, Emit, Kind, LookupHow, Operator, Topology

PASSES_ON = frozenset({Kind.MAP, Kind.UNION, Kind.REDUCE})
"""What puts out a row, now or with the epoch, whenever it has got one. A filter, a distinct and a flat_map may not."""


def passes_on(operator: Operator) -> bool:
    """Whether a row that it gets always leads to one that it puts out."""
    counts = any(output.function is Aggregation.COUNT for output in operator.aggregates)
    if operator.lookup and operator.lookup.how is LookupHow.LEFT:
        return True
    # A least value comes to rest, and a count differs with every row.
    return operator.kind in PASSES_ON and (operator.emit is not Emit.CHANGE or counts)


def restless_loops(topology: Topology) -> list[list[str]]:
    """Operators of loops that cannot come to rest once a record is in them, as `loops` lists them.

    A loop that has a way past every filter, distinct, flat_map and `emit: change` is one, whatever else hangs on it.
    """
    passing = {op.id for op in topology.operators if passes_on(op)}
    operators = tuple(op for op in topology.operators if op.id in passing)
    edges = tuple(edge for edge in topology.edges if edge.source in passing and edge.target in passing)
    return loops(Topology(topology.job, operators, edges))
