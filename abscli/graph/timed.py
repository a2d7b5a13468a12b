"""Whether event time comes to the operators that wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from abscli.graph.loops import loops
from formats.job.event_time import event_time_of
from formats.job.model import Kind, Operator, Topology


class Untimed(NamedTuple):
    """An operator that waits for event time in vain.

    option: of its entry, for which it does.
    source: one from which it has rows without event time.
    loop: one that rows come out of, or go round in, after event time has ended; only one of both is there.
    """

    operator: Operator
    option: str
    source: str | None = None
    loop: tuple[str, ...] = ()


def waits_for_time(operator: Operator) -> str | None:
    """The option of an operator's entry for which it needs event time; None if it needs none."""
    if operator.window:
        return "window"
    if operator.join:
        return "join"
    if operator.kept.time is not None:
        return "process"
    return "ttl" if operator.ttl else None


def untimed(topology: Topology) -> Iterator[Untimed]:
    """The operators that event time does not come to, in declared order, each once."""
    inputs: dict[str, list[str]] = {op.id: [] for op in topology.operators}
    for edge in topology.edges:
        inputs[edge.target].append(edge.source)
    operators = {op.id: op for op in topology.operators}
    around = {id: tuple(loop) for loop in loops(topology) for id in loop}
    for op in topology.operators:
        option = waits_for_time(op)
        if option is None:
            continue
        above, waiting = {op.id: None}, [op.id]
        while waiting:
            for id in inputs[waiting.pop()]:
                if id not in above:
                    above[id] = None
                    waiting.append(id)
        loop = next((around[id] for id in above if id in around), ())
        silent = [id for id in above if operators[id].kind is Kind.SOURCE and event_time_of(operators[id]) is None]
        if loop:
            yield Untimed(op, option, loop=loop)
        elif silent:
            yield Untimed(op, option, source=silent[0])
