"""Another number of tasks, as a user asks for it: which operators change, and what cannot be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from abscli.planner.rescale import Change, with_parallelism
from abscli.stores.recovery import BadOption
from abscli.text.columns import some
from formats.job.changes import NO_CHANGES, Changes
from formats.job.expand import size_of
from formats.job.model import MAX_CHANNELS, MAX_TASKS, Partition, Topology

OPTION = "--parallelism"


def parallelism_of(words: Sequence[str]) -> dict[str, int]:
    """Numbers of tasks by operator, from `OP=N`; BadOption for what is none, or names an operator twice."""
    numbers: dict[str, int] = {}
    for word in words:
        operator, _, number = word.rpartition("=")
        if not operator or re.fullmatch(r"[1-9][0-9]{0,8}", number) is None:
            raise BadOption(OPTION, f"{word!r} is not OP=N, such as counts=4")
        if numbers.setdefault(operator, int(number)) != int(number):
            raise BadOption(OPTION, f"{operator} is given {numbers[operator]} and {number} tasks")
    return numbers


def overridden(topology: Topology, parallelism: Mapping[str, int]) -> Topology:
    """The job with these numbers of tasks in place of those of its file; BadOption where it cannot have them."""
    operators = {op.id: op for op in topology.operators}
    for id, number in parallelism.items():
        if id not in operators:
            near = difflib.get_close_matches(id, operators, n=3)
            rest = f"did you mean {', '.join(near)}?" if near else f"the operators are {some(list(operators), 8)}"
            raise BadOption(OPTION, f"there is no operator {id!r}; {rest}")
        if number > operators[id].max_parallelism:
            most = operators[id].max_parallelism
            raise BadOption(OPTION, f"{id}={number}: it has {most} key groups (max_parallelism), and a task has at "
                            "least one")  # fmt: skip
    new = with_parallelism(topology, parallelism)
    _check_forward(new, parallelism)
    for number, most, noun in zip(size_of(new), (MAX_TASKS, MAX_CHANNELS), ("tasks", "channels"), strict=True):
        if number > most:
            raise BadOption(OPTION, f"the job would have {number} {noun}, the job graph of a store has at most {most}")
    return new


def as_taken(topology: Topology, before: Topology, changes: Changes = NO_CHANGES) -> Topology:
    """Return the job of a file with as many tasks as it had in an epoch.

    before: the job graph of the epoch.
    changes: of the job file, by which operators may have other ids in it.
    """
    return with_parallelism(topology, {changes.heir(op.id) or op.id: op.parallelism for op in before.operators})


def _check_forward(topology: Topology, parallelism: Mapping[str, int]) -> None:
    """BadOption for a forward edge between operators that would not have the same number of tasks."""
    width = {op.id: op.parallelism for op in topology.operators}
    for edge in topology.edges:
        p, q = width[edge.source], width[edge.target]
        if edge.partition is Partition.FORWARD and p != q:
            other, number = (edge.target, p) if edge.source in parallelism else (edge.source, q)
            raise BadOption(
                OPTION, f"the edge {edge.name} is forward, from {p} tasks to {q}: add "
                f"{OPTION} {other}={number}, or change the edge to rebalance in an earlier run",
            )  # fmt: skip


def rescaled_by(
    old: Topology, new: Topology, job_changes: Changes, parallelism: Mapping[str, int]
) -> tuple[Change, ...]:
    """The operators of an epoch that have another number of tasks in the job, and are named, by their ids in the job.
    One that is not named is refused when the job is compared with the epoch."""
    width = {op.id: op.parallelism for op in new.operators if op.id in parallelism}
    heirs = [(op, job_changes.heir(op.id)) for op in old.operators]
    return tuple(
        Change(op.id, op.parallelism, width[heir])
        for op, heir in heirs
        if heir is not None and width.get(heir, op.parallelism) != op.parallelism
    )


def rescaled(old: Topology, changed: Sequence[Change]) -> Topology:
    """The epoch's own job graph after a rescale; BadOption if it cannot be."""
    numbers = {change.operator: change.after for change in changed}
    new = with_parallelism(old, numbers)
    _check_forward(new, numbers)
    return new


def in_words(changed: Sequence[Change]) -> str:
    """`counts from 4 to 7, out from 4 to 7`."""
    return ", ".join(f"{change.operator} from {change.before} to {change.after}" for change in changed)
