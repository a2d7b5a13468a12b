"""Operators to tasks, edges to channels, keys to key groups: in closed form, never as lists."""

from __future__ import annotations

from formats.job.model import Edge, Partition, Topology


def tasks(topology: Topology) -> int:
    """How many tasks the operators have in all."""
    return sum(op.parallelism for op in topology.operators)


def channels(topology: Topology) -> int:
    """How many channels the edges have in all."""
    parallelism = {op.id: op.parallelism for op in topology.operators}
    return sum(channels_of_edge(e, parallelism[e.source], parallelism[e.target]) for e in topology.edges)


def channels_of_edge(edge: Edge, p_from: int, p_to: int) -> int:
    """How many channels one edge has between operators of these parallelisms; ValueError for an uneven `forward`."""
    if edge.partition is Partition.FORWARD:
        _check_forward(edge, p_from, p_to)
        return p_from
    return p_from * p_to


def receivers(edge: Edge, sender_index: int, p_from: int, p_to: int) -> range:
    """The subtasks of the edge's target that this subtask of its source has a channel to."""
    return _peers(edge, sender_index, p_from, p_to, p_to)


def senders(edge: Edge, receiver_index: int, p_from: int, p_to: int) -> range:
    """The subtasks of the edge's source that have a channel to this subtask of its target."""
    return _peers(edge, receiver_index, p_from, p_to, p_from)


def _peers(edge: Edge, index: int, p_from: int, p_to: int, others: int) -> range:
    if edge.partition is Partition.FORWARD:
        _check_forward(edge, p_from, p_to)
        return range(index, index + 1)
    return range(others)


def _check_forward(edge: Edge, p_from: int, p_to: int) -> None:
    if p_from != p_to:
        raise ValueError(f"forward edge {edge.source}->{edge.target} from parallelism {p_from} to {p_to}")


def owner(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group: the inverse of `key_group_range`."""
    return key_group * parallelism // max_parallelism
