"""Each operator with its edges, and which subtasks an edge joins: all that planning asks of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from abscli.planner.ranges import Ranges
from formats.job.expand import neighbours
from formats.job.model import Edge, Operator, Partition, Topology


@dataclass(frozen=True, slots=True)
class Adjacency:
    """A graph as planning asks of it; all but `edges` by operator id, in declared order.

    operators: as they are declared.
    subtasks: all that an operator has.
    edges: in the topology's order.
    inputs: edges into an operator.
    outputs: edges out of an operator.
    """

    operators: dict[str, Operator]
    subtasks: dict[str, Ranges]
    edges: tuple[Edge, ...]
    inputs: dict[str, list[Edge]]
    outputs: dict[str, list[Edge]]

    @classmethod
    def of(cls, topology: Topology) -> Adjacency:
        """Linear in operators and edges; no search for loops, which planning does not need."""
        operators = {op.id: op for op in topology.operators}
        inputs: dict[str, list[Edge]] = {id: [] for id in operators}
        outputs: dict[str, list[Edge]] = {id: [] for id in operators}
        for edge in topology.edges:
            inputs[edge.target].append(edge)
            outputs[edge.source].append(edge)
        subtasks = {id: Ranges.span(0, op.parallelism) for id, op in operators.items()}
        return cls(operators, subtasks, topology.edges, inputs, outputs)

    def senders(self, edge: Edge, receivers: Ranges) -> Ranges:
        """The subtasks of the edge's source with a channel to one of `receivers`."""
        return receivers if edge.partition is Partition.FORWARD else self.subtasks[edge.source]

    def receivers(self, edge: Edge, senders: Ranges) -> Ranges:
        """The subtasks of the edge's target with a channel from one of `senders`."""
        return senders if edge.partition is Partition.FORWARD else self.subtasks[edge.target]

    def input_channels(self, operator: str) -> int:
        """How many channels, back-edge channels included, lead into each subtask of an operator."""
        return sum(
            len(neighbours(edge, 0, self.operators[edge.source].parallelism)) for edge in self.inputs[operator]
        )

    def is_source(self, operator: str) -> bool:
        """Whether it reads from outside the job: declared a source, or opaque and without inputs."""
        return not self.inputs[operator]
