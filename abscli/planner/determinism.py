"""Which operators put out the same records again when they are replayed.

A task is replay-deterministic when its operator is row-wise or opaque, it has at most one input channel (back-edge
channels count) and its sender is replay-deterministic, a source being one by itself unless its rows come in the order
in which they arrived; or when its operator is marked `ordered_output: true` and all its senders are. `deterministic:
false`, on an operator or in a connector, is always a cause: a promise about order says nothing of random values.

Every subtask of an operator has the same kind, marks and number of input channels, so whether it is a *cause* of
non-determinism is a property of the operator; and every edge leads from all of an operator's subtasks to all of the
next one's (a `forward` edge index by index). So the answer is the same for all subtasks of an operator and no ranges
are needed. A cycle without a cause stays deterministic because causes are spread, not determinism.
"""

from __future__ import annotations

from abscli.planner.adjacency import Adjacency
from formats.job.following import is_by_arrival
from formats.job.model import ROW_WISE, Kind

_REPLAYED_ROW_BY_ROW = ROW_WISE | {Kind.SOURCE, Kind.OPAQUE}


def replay_deterministic(graph: Adjacency) -> frozenset[str]:
    """The ids of the operators whose tasks are all replay-deterministic; no task of any other operator is.

    Linear in operators and edges.
    """
    lost = {id for id in graph.operators if _is_cause(graph, id)}
    front = list(lost)
    while front:
        for edge in graph.outputs[front.pop()]:
            if edge.target not in lost:
                lost.add(edge.target)
                front.append(edge.target)
    return frozenset(graph.operators.keys() - lost)


def _is_cause(graph: Adjacency, id: str) -> bool:
    """Whether an operator's output may differ on replay even when all its inputs come again as they were."""
    op = graph.operators[id]
    if not op.deterministic or (op.connector or {}).get("deterministic") is False:
        return True
    if op.ordered_output:
        return False
    if is_by_arrival(op):  # what had come when it was read the first time is in another order the second
        return True
    return op.kind not in _REPLAYED_ROW_BY_ROW or graph.input_channels(id) > 1
