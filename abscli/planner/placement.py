"""Which tasks a worker holds: the one rule that the engine places by, and that plans read from an attempt's record."""

from __future__ import annotations

from collections.abc import Iterable

from abscli.planner.ranges import EMPTY, Ranges
from formats.job.model import Topology


def worker_of(subtask: int, workers: int) -> int:
    """The worker that runs subtask `subtask` of any operator: `forward` edges stay inside a process."""
    return subtask % workers


def subtasks_of(topology: Topology, lost: Iterable[int], workers: int) -> dict[str, Ranges]:
    """The subtasks that some of the `workers` hold, by operator in declared order; operators without one are missing.

    lost: their numbers, from 0; ValueError for one that is not there.
    """
    numbers = sorted(set(lost))
    if numbers and not 0 <= numbers[0] <= numbers[-1] < workers:
        raise ValueError(f"invalid worker numbers {numbers}: expected numbers from 0 to {workers - 1}")
    by_operator: dict[str, Ranges] = {}
    for operator in topology.operators:
        subtasks = EMPTY
        for number in numbers:
            subtasks |= Ranges.of(range(number, operator.parallelism, workers))
        if subtasks:
            by_operator[operator.id] = subtasks
    return by_operator
