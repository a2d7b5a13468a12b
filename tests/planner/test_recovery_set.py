"""The recovery set against the two rules taken literally, task by task and channel by channel."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.planner.adjacency import Adjacency
from abscli.planner.determinism import replay_deterministic
from abscli.planner.ranges import Ranges
from abscli.planner.recovery_set import RecoverySet, recovery_set
from formats.job.model import ROW_WISE, Edge, Kind, Operator, Partition, Topology
from tests.tiers import examples

Task = tuple[str, int]
Channel = tuple[Task, Task, Edge]


def op(id: str, kind: Kind, parallelism: int = 2, **marks: object) -> Operator:
    return Operator(id, kind, parallelism, 128, **marks)  # type: ignore[arg-type]


def job(*parts: Operator | Edge) -> Topology:
    operators = tuple(part for part in parts if isinstance(part, Operator))
    return Topology("job", operators, tuple(part for part in parts if isinstance(part, Edge)))


def restarted(found: RecoverySet) -> dict[str, str]:
    return {id: str(subtasks) for id, subtasks in found.subtasks.items()}


# -- the rules taken literally --------------------------------------------------------------------------------


def tasks_of(topology: Topology) -> list[Task]:
    return [(o.id, i) for o in topology.operators for i in range(o.parallelism)]


def channels_of(topology: Topology) -> list[Channel]:
    width = {o.id: o.parallelism for o in topology.operators}
    return [
        ((e.source, i), (e.target, j), e)
        for e in topology.edges
        for i in range(width[e.source])
        for j in range(width[e.target])
        if e.partition is not Partition.FORWARD or i == j
    ]


def deterministic_tasks(topology: Topology) -> set[Task]:
    """The greatest set that the definition allows: a cycle without a cause is deterministic."""
    operators = {o.id: o for o in topology.operators}
    senders: dict[Task, list[Task]] = {task: [] for task in tasks_of(topology)}
    for sender, receiver, _ in channels_of(topology):
        senders[receiver].append(sender)

    def holds(task: Task, others: set[Task]) -> bool:
        o = operators[task[0]]
        if not o.deterministic or (o.connector or {}).get("deterministic") is False:
            return False
        if not all(sender in others for sender in senders[task]):
            return False
        row_by_row = o.kind in ROW_WISE or o.kind in (Kind.SOURCE, Kind.OPAQUE)
        return o.ordered_output or (row_by_row and len(senders[task]) <= 1)

    found = set(senders)
    while not all(holds(task, found) for task in found):
        found = {task for task in found if holds(task, found)}
    return found


def breaks_a_rule(chosen: frozenset[Task], channels: list[Channel], deterministic: set[Task]) -> Iterator[Task]:
    """Tasks outside of `chosen` that one of the two rules asks for."""
    for sender, receiver, edge in channels:
        if receiver in chosen and sender not in chosen and not edge.replayable:
            yield sender
        if sender in chosen and receiver not in chosen and sender not in deterministic:
            yield receiver


def literal_set(topology: Topology, failed: set[Task]) -> frozenset[Task]:
    channels, deterministic = channels_of(topology), deterministic_tasks(topology)
    chosen = frozenset(failed)
    while more := set(breaks_a_rule(chosen, channels, deterministic)):
        chosen |= more
    return chosen


@st.composite
def topologies(draw: st.DrawFn, operators: int = 5, parallelism: int = 3) -> Topology:
    count = draw(st.integers(1, operators))
    ops = []
    for i in range(count):
        kind = Kind.SOURCE if i == 0 else draw(st.sampled_from([k for k in Kind if k is not Kind.SOURCE]))
        ops.append(
            op(
                f"o{i}", kind, draw(st.integers(1, parallelism)),
                connector=draw(st.sampled_from([None, {"deterministic": False}, {"deterministic": True}]))
                if kind is Kind.SOURCE else None,
                deterministic=draw(st.sampled_from([True, True, True, False])),
                ordered_output=draw(st.sampled_from([False, False, True])),
            )
        )
    edges = []
    for source, target in draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(1, count - 1)), unique=True, max_size=8)
        if count > 1 else st.just([])
    ):
        a, b = ops[source], ops[target]
        equal = a.parallelism == b.parallelism
        partition = draw(st.sampled_from([p for p in Partition if equal or p is not Partition.FORWARD]))
        edges.append(Edge(a.id, b.id, partition, replayable=draw(st.sampled_from([False, False, True]))))
    return job(*ops, *edges)


def as_tasks(ranges: dict[str, Ranges]) -> frozenset[Task]:
    return frozenset((id, i) for id, subtasks in ranges.items() for i in subtasks)


def some_failed(data: st.DataObject, topology: Topology) -> set[Task]:
    return data.draw(st.sets(st.sampled_from(tasks_of(topology)), min_size=1, max_size=3))


def by_operator(tasks: set[Task]) -> dict[str, Ranges]:
    return {id: Ranges.of(i for other, i in tasks if other == id) for id, _ in tasks}


@given(topologies())
@settings(max_examples=examples(300))
def test_determinism_is_that_of_the_definition_task_by_task(topology: Topology) -> None:
    found = replay_deterministic(Adjacency.of(topology))
    assert {task for task in tasks_of(topology) if task[0] in found} == deterministic_tasks(topology)


@given(topologies(), st.data())
@settings(max_examples=examples(400))
def test_the_recovery_set_is_the_least_one_that_both_rules_allow(topology: Topology, data: st.DataObject) -> None:
    failed = some_failed(data, topology)
    assert as_tasks(recovery_set(Adjacency.of(topology), by_operator(failed)).subtasks) == literal_set(topology, failed)


@given(topologies(operators=3, parallelism=2), st.data())
@settings(max_examples=examples(60))
def test_no_smaller_set_is_closed_under_the_rules(topology: Topology, data: st.DataObject) -> None:
    failed = some_failed(data, topology)
    channels, deterministic = channels_of(topology), deterministic_tasks(topology)
    others = [task for task in tasks_of(topology) if task not in failed]
    closed = next(
        chosen
        for size in range(len(others) + 1)
        for extra in itertools.combinations(others, size)
        if not any(breaks_a_rule(chosen := frozenset(failed).union(extra), channels, deterministic))
    )
    assert as_tasks(recovery_set(Adjacency.of(topology), by_operator(failed)).subtasks) == closed


@given(topologies(), st.data())
@settings(max_examples=examples(300))
def test_exactly_the_channels_that_leave_the_set_are_deduplicated(topology: Topology, data: st.DataObject) -> None:
    found = recovery_set(Adjacency.of(topology), by_operator(some_failed(data, topology)))
    chosen = as_tasks(found.subtasks)
    rows = [
        (sender, receiver, edge)
        for row in found.dedup
        for sender, receiver, edge in channels_of(topology)
        if (edge.source, edge.target) == (row.source, row.target)
        and sender[1] in row.senders and receiver[1] in row.receivers
    ]
    leaving = [c for c in channels_of(topology) if c[0] in chosen and c[1] not in chosen]
    assert sorted(c[:2] for c in rows) == sorted(c[:2] for c in leaving)
    assert {sender for sender, _, _ in rows} <= deterministic_tasks(topology)


@given(topologies(), st.data())
@settings(max_examples=examples(200))
def test_the_rows_of_a_set_are_disjoint_and_each_reason_names_a_neighbour(
    topology: Topology, data: st.DataObject
) -> None:
    failed = some_failed(data, topology)
    found = recovery_set(Adjacency.of(topology), by_operator(failed))
    assert found.tasks == len(as_tasks(found.subtasks))
    for row in found.restart:
        words = row.why.split()
        if row.why == "failed":
            assert as_tasks({row.operator: row.subtasks}) <= failed
            continue
        other, _, brief = words[2].rstrip(",").rpartition("/")
        ends = (row.operator, other) if words[0] == "sends" else (other, row.operator)
        assert ends in {(edge.source, edge.target) for edge in topology.edges}
        assert as_tasks({other: Ranges.parse(brief)}) <= as_tasks(found.subtasks)


# -- statements about single jobs ------------------------------------------------------------------------------


def test_a_failed_task_takes_only_its_own_chain_along_over_forward_edges() -> None:
    chain = job(
        op("a", Kind.SOURCE, 4), op("b", Kind.MAP, 4), op("c", Kind.SINK, 4),
        Edge("a", "b", Partition.FORWARD), Edge("b", "c", Partition.FORWARD),
    )
    found = recovery_set(Adjacency.of(chain), {"b": Ranges.of([1, 3])})
    assert restarted(found) == {"a": "1,3", "b": "1,3"}
    assert [(str(d.senders), d.target, str(d.receivers)) for d in found.dedup] == [("1,3", "c", "1,3")]


def test_past_a_shuffle_receivers_join_the_set() -> None:
    shuffle = job(
        op("a", Kind.SOURCE), op("b", Kind.MAP), op("c", Kind.SINK),
        Edge("a", "b", Partition.HASH, ("k",)), Edge("b", "c", Partition.FORWARD),
    )
    found = recovery_set(Adjacency.of(shuffle), {"b": Ranges.of([0])})
    assert restarted(found) == {"a": "0-1", "b": "0", "c": "0"}
    assert [(d.source, str(d.senders), str(d.receivers)) for d in found.dedup] == [("a", "0-1", "1")]


def test_a_replayable_edge_keeps_the_sender_out_of_the_set() -> None:
    topic = job(op("a", Kind.SOURCE), op("b", Kind.MAP), Edge("a", "b", Partition.REBALANCE, replayable=True))
    assert restarted(recovery_set(Adjacency.of(topic), {"b": Ranges.of([0])})) == {"b": "0"}


def test_what_a_nondeterministic_sender_put_out_is_lost_over_a_replayable_edge_too() -> None:
    topic = job(
        op("a", Kind.SOURCE, deterministic=False), op("b", Kind.MAP),
        Edge("a", "b", Partition.FORWARD, replayable=True),
    )
    found = recovery_set(Adjacency.of(topic), {"a": Ranges.of([1])})
    assert restarted(found) == {"a": "1", "b": "1"}
    assert found.restart[1].why == "receives from a/1, whose output is not replay-deterministic"


def test_what_is_not_deterministic_spreads_along_every_edge() -> None:
    chain = job(
        op("a", Kind.SOURCE), op("b", Kind.SOURCE, deterministic=False),
        *(op(id, Kind.MAP) for id in ("c", "d", "e", "f")),
        Edge("b", "c", Partition.FORWARD), Edge("c", "d", Partition.FORWARD), Edge("d", "e", Partition.FORWARD),
        Edge("a", "f", Partition.FORWARD),
    )  # fmt: skip
    assert replay_deterministic(Adjacency.of(chain)) == {"a", "f"}


def test_a_connector_may_say_that_its_source_is_not_deterministic() -> None:
    queue = job(
        op("a", Kind.SOURCE, connector={"type": "queue", "deterministic": False}), op("b", Kind.SINK),
        Edge("a", "b", Partition.FORWARD),
    )
    assert restarted(recovery_set(Adjacency.of(queue), {"a": Ranges.of([0])})) == {"a": "0", "b": "0"}


def test_a_reduce_is_a_cause_unless_its_output_is_ordered() -> None:
    def counts(ordered: bool) -> Topology:
        return job(
            op("a", Kind.SOURCE, 1), op("counts", Kind.REDUCE, 1, key=("k",), ordered_output=ordered),
            op("out", Kind.SINK, 1),
            Edge("a", "counts", Partition.HASH, ("k",)), Edge("counts", "out", Partition.FORWARD),
        )

    assert replay_deterministic(Adjacency.of(counts(False))) >= {"a"}
    assert "counts" not in replay_deterministic(Adjacency.of(counts(False)))
    assert "counts" in replay_deterministic(Adjacency.of(counts(True)))


def test_an_ordered_output_of_random_values_is_not_deterministic() -> None:
    lone = job(op("a", Kind.SOURCE, 1, deterministic=False, ordered_output=True))
    assert replay_deterministic(Adjacency.of(lone)) == frozenset()


def test_a_back_edge_channel_counts_as_an_input_channel() -> None:
    loop = job(
        op("a", Kind.SOURCE, 1), op("b", Kind.UNION, 1),
        Edge("a", "b", Partition.FORWARD), Edge("b", "b", Partition.FORWARD),
    )
    assert replay_deterministic(Adjacency.of(loop)) == {"a"}


def test_a_cycle_without_a_cause_is_deterministic() -> None:
    loop = job(
        op("b", Kind.MAP, 1), op("c", Kind.MAP, 1),
        Edge("b", "c", Partition.FORWARD), Edge("c", "b", Partition.FORWARD),
    )
    assert replay_deterministic(Adjacency.of(loop)) == {"b", "c"}


def test_every_row_says_why_it_restarts() -> None:
    words = job(
        op("lines", Kind.SOURCE), op("words", Kind.FLAT_MAP), op("counts", Kind.REDUCE, 4, key=("word",)),
        op("printed", Kind.SINK, 4),
        Edge("lines", "words", Partition.FORWARD), Edge("words", "counts", Partition.HASH, ("word",)),
        Edge("counts", "printed", Partition.FORWARD),
    )
    found = recovery_set(Adjacency.of(words), {"counts": Ranges.of([1]), "words": Ranges.of([0])})
    assert [(row.operator, str(row.subtasks), row.why) for row in found.restart] == [
        ("lines", "0", "sends to words/0, which restarts"),
        ("lines", "1", "sends to words/1, which restarts"),
        ("words", "0", "failed"),
        ("words", "1", "sends to counts/1, which restarts"),
        ("counts", "1", "failed"),
        ("printed", "1", "receives from counts/1, whose output is not replay-deterministic"),
    ]


@pytest.mark.parametrize("failed", [{"nobody": Ranges.of([0])}, {"a": Ranges.of([2])}])
def test_a_task_that_is_not_there_cannot_have_failed(failed: dict[str, Ranges]) -> None:
    with pytest.raises(ValueError, match="is not part of the topology"):
        recovery_set(Adjacency.of(job(op("a", Kind.SOURCE))), failed)


@pytest.mark.parametrize(("operators", "width"), [(10, 100_000), (1_000, 1_000), (20_000, 50)])
def test_a_million_tasks_are_planned_for_in_seconds(operators: int, width: int) -> None:
    ops = [op(f"o{i}", Kind.SOURCE if i == 0 else Kind.MAP, width) for i in range(operators)]
    edges = [Edge(f"o{i}", f"o{i + 1}", Partition.REBALANCE) for i in range(operators - 1)]
    topology = job(*ops, *edges)
    begin = time.process_time()
    found = recovery_set(Adjacency.of(topology), {f"o{operators // 2}": Ranges.of([3])})
    assert found.tasks > operators * width // 2 - width
    assert time.process_time() - begin < 5
