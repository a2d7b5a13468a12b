"""What holds from end to end: how often a record of a source counts in state, and is shown by a sink.

A path is any walk from a source to a sink, loops included, and promises what its weakest operator does. Which operators
lie on a walk to a sink is one search backwards from it: paths are never listed, there may be exponentially many.

State and output are two things: all operators before the sink decide about state, the sink also about output. So an
operator's weakness counts for the output of every sink behind it, and that of a sink for no state at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from abscli.graph.job_graph import JobGraph
from abscli.planner.adjacency import Adjacency
from abscli.planner.determinism import replay_deterministic
from abscli.planner.updates import counts_updates
from abscli.protocol.policy import Policy
from formats.job.expand import neighbours
from formats.job.model import IN_ORDER, Kind, Operator, forgets
from formats.job.promises import Promise, goes_back, promise_of


class Times(StrEnum):
    """How often a record counts, or a row is shown, whatever fails."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Weakness(StrEnum):
    """What weakens a path, or what exactly-once does not mean on it; scripts rely on these words. Weakest first.

    SOURCE_UNKNOWN: it is not known whether the source can go back.
    OPERATOR_UNKNOWN: an opaque operator: it is not known what it does with a record.
    SINK_UNKNOWN: it is not known what the sink promises.
    POLICY: under at-least-once, an operator that takes records between the barriers of its inputs.
    SINK_REPEATS: a sink without transaction or id.
    NOT_DETERMINISTIC: marked `deterministic: false`.
    ORDER: an aggregate, or a function of keys, that goes by an order which is not the same in every run.
    UPDATES: an operator that takes each new value of a key from a `reduce` as another row.
    """

    SOURCE_UNKNOWN = "source-unknown"
    OPERATOR_UNKNOWN = "operator-unknown"
    SINK_UNKNOWN = "sink-unknown"
    POLICY = "policy"
    SINK_REPEATS = "sink-repeats"
    NOT_DETERMINISTIC = "not-deterministic"
    ORDER = "order"
    UPDATES = "updates"

    @property
    def leaves(self) -> Times | None:
        """The most that holds where this is; None where that is not known."""
        if self in _UNKNOWN:
            return None
        return Times.AT_LEAST_ONCE if self in _REPEATS else Times.EXACTLY_ONCE


_UNKNOWN = frozenset({Weakness.SOURCE_UNKNOWN, Weakness.OPERATOR_UNKNOWN, Weakness.SINK_UNKNOWN})
_REPEATS = frozenset({Weakness.POLICY, Weakness.SINK_REPEATS})


@dataclass(frozen=True, slots=True)
class Link:
    """Operators, in declared order, that weaken a path in the same way."""

    weakness: Weakness
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """What holds for all paths to a sink together, which is what holds for the weakest of them.

    sources: from which a path leads to it, in declared order.
    promise: of the sink alone; None where it is not known.
    state: how often a record counts in the state of the operators before it; None where that is not known.
    output: how often a row is shown that is made of it; None likewise.
    links: the weakest first.
    """

    sink: str
    sources: tuple[str, ...]
    promise: Promise | None
    state: Times | None
    output: Times | None
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What holds of a job under a policy.

    state: of all its operators, those that no sink is behind, too.
    output: of all sinks together; None where that is not known, or there is no sink.
    sinks: in declared order.
    links: of the whole job, the weakest first.
    """

    job: str
    policy: Policy
    state: Times | None
    output: Times | None
    sinks: tuple[SinkGuarantee, ...]
    links: tuple[Link, ...]


def guarantee_of(graph: JobGraph, policy: Policy) -> Guarantee:
    """What holds of a job; time grows as its sinks do, times its operators and edges."""
    place = {id: at for at, id in enumerate(graph.operators)}
    weak = _weaknesses(graph, policy)
    # What is a source and a sink in one is no end: as a source it decides about state, too.
    ends = {id for id, operator in graph.operators.items() if _is_sink(graph, operator) and graph.inputs[id]}
    sinks = []
    for sink in (operator for operator in graph.operators.values() if _is_sink(graph, operator)):
        on_paths = sorted(_before(graph, sink.id), key=place.__getitem__)
        sinks.append(
            SinkGuarantee(
                sink.id,
                tuple(id for id in on_paths if not graph.inputs[id]),
                promise_of(sink),
                _least(weak[id] for id in on_paths if id not in ends),
                _least(weak[id] for id in on_paths),
                _links(on_paths, weak),
            )
        )
    state = _least(weak[id] for id in graph.operators if id not in ends)
    output = _least(weak[id] for sink in sinks for link in sink.links for id in link.operators) if sinks else None
    links = _links(list(graph.operators), weak)
    return Guarantee(graph.topology.job, policy, state, output, tuple(sinks), links)


def _is_sink(graph: JobGraph, operator: Operator) -> bool:
    """Whether rows leave the job there: declared a sink, or opaque and without outputs."""
    return operator.kind is Kind.SINK or (operator.kind is Kind.OPAQUE and not graph.outputs[operator.id])


def _before(graph: JobGraph, sink: str) -> set[str]:
    """The operators on walks to a sink, itself included. Every operator of a job that holds is behind a source."""
    reached, front = {sink}, [sink]
    while front:
        for edge in graph.inputs[front.pop()]:
            if edge.source not in reached:
                reached.add(edge.source)
                front.append(edge.source)
    return reached


def _weaknesses(graph: JobGraph, policy: Policy) -> dict[str, tuple[Weakness, ...]]:
    adjacency = Adjacency.of(graph.topology)
    repeated, updated = replay_deterministic(adjacency), counts_updates(adjacency)
    weak = {}
    for id, operator in graph.operators.items():
        ends = _of_ends(graph, operator)
        values = _of_values(adjacency, operator, repeated)
        by_updates = (Weakness.UPDATES,) if id in updated else ()
        weak[id] = (*ends, *_of_inputs(graph, operator, policy), *values, *by_updates)
    return weak


def _of_ends(graph: JobGraph, operator: Operator) -> Iterator[Weakness]:
    """What is not known of an operator, or of what lies outside the job beside it."""
    is_source, is_sink = not graph.inputs[operator.id], _is_sink(graph, operator)
    if is_source and goes_back(operator) is None:
        yield Weakness.SOURCE_UNKNOWN
    if is_sink and promise_of(operator) is None:
        yield Weakness.SINK_UNKNOWN
    if is_sink and promise_of(operator) is Promise.AT_LEAST_ONCE:
        yield Weakness.SINK_REPEATS
    if operator.kind is Kind.OPAQUE and not is_source and not is_sink:
        yield Weakness.OPERATOR_UNKNOWN


def _of_inputs(graph: JobGraph, operator: Operator, policy: Policy) -> Iterator[Weakness]:
    # Back edges are held and logged under every policy, so only what comes on other channels can come twice; and of a
    # single one nothing comes between its barrier and the copy.
    regular = (edge for edge in graph.inputs[operator.id] if not graph.is_back(edge))
    channels = sum(len(neighbours(edge, 0, graph.operators[edge.source].parallelism)) for edge in regular)
    if not policy.exactly_once and channels > 1:
        yield Weakness.POLICY


def _of_values(graph: Adjacency, operator: Operator, repeated: frozenset[str]) -> Iterator[Weakness]:
    """repeated: the operators that put out the same records again."""
    if not operator.deterministic or (operator.connector or {}).get("deterministic") is False:
        yield Weakness.NOT_DETERMINISTIC
    in_order = any(output.function in IN_ORDER for output in operator.aggregates)
    by_order = in_order or operator.kind is Kind.PROCESS or forgets(operator)
    in_same_order = graph.input_channels(operator.id) == 1 and all(
        edge.source in repeated for edge in graph.inputs[operator.id]
    )
    if by_order and not operator.ordered_output and not in_same_order:
        yield Weakness.ORDER


def _least(weaknesses: Iterable[tuple[Weakness, ...]]) -> Times | None:
    """What is left of a path with all of these operators: what is not known is less than anything that is."""
    left = {weakness.leaves for of_operator in weaknesses for weakness in of_operator}
    if None in left:
        return None
    return Times.AT_LEAST_ONCE if Times.AT_LEAST_ONCE in left else Times.EXACTLY_ONCE


def _links(operators: list[str], weak: dict[str, tuple[Weakness, ...]]) -> tuple[Link, ...]:
    by_weakness = ((weakness, tuple(id for id in operators if weakness in weak[id])) for weakness in Weakness)
    return tuple(Link(weakness, ids) for weakness, ids in by_weakness if ids)
