"""The job graph: back edges, loops, order, and counts in closed form."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.graph.backedges import back_edges
from abscli.graph.job_graph import JobGraph
from abscli.graph.loops import loops
from formats.job.expand import channels_in, channels_out, neighbours, size_of, task_ids
from formats.job.model import Edge, Kind, Operator, Partition, Topology, key_group_range


def graph(text: str, parallelism: int = 1) -> Topology:
    """`a: ; b: a c; c: b` -> opaque operators with these inputs."""
    inputs = {left.strip(): right.split() for left, right in (part.split(":") for part in text.split(";"))}
    operators = tuple(Operator(id, Kind.OPAQUE, parallelism, 128) for id in inputs)
    edges = tuple(Edge(source, id, Partition.FORWARD) for id in inputs for source in inputs[id])
    return Topology("test", operators, edges)


@st.composite
def graphs(draw: st.DrawFn, largest: int = 8) -> Topology:
    """Any graph, whether barriers reach all of it or not; partitions fit the parallelisms."""
    count = draw(st.integers(1, largest))
    widths = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))
    edges = []
    for target, source in sorted((t, s) for s, t in pairs):
        even = widths[source] == widths[target]
        partition = draw(st.sampled_from([p for p in Partition if even or p is not Partition.FORWARD]))
        edges.append(Edge(f"o{source}", f"o{target}", partition))
    operators = (Operator(f"o{i}", Kind.OPAQUE, width, 128) for i, width in enumerate(widths))
    return Topology("random", tuple(operators), tuple(edges))


def recursive_back_edges(topology: Topology) -> set[tuple[str, str]]:
    """The definition, word by word."""
    found: set[tuple[str, str]] = set()
    done: set[str] = set()

    def visit(node: str, path: tuple[str, ...]) -> None:
        if node in done:
            return
        done.add(node)
        for consumer in topology.operators:
            for edge in topology.edges:
                if edge.source == node and edge.target == consumer.id:
                    if consumer.id in (*path, node):
                        found.add((node, consumer.id))
                    else:
                        visit(consumer.id, (*path, node))

    fed = {edge.target for edge in topology.edges}
    for op in sorted(topology.operators, key=lambda op: op.id in fed):
        visit(op.id, ())
    return found


def reachable(topology: Topology) -> set[tuple[str, str]]:
    """(a, b): a path of at least one edge leads from a to b (Warshall)."""
    pairs = {(edge.source, edge.target) for edge in topology.edges}
    ids = [op.id for op in topology.operators]
    for middle in ids:
        pairs |= {(a, b) for a in ids for b in ids if (a, middle) in pairs and (middle, b) in pairs}
    return pairs


def test_a_chain_has_no_back_edge_and_no_loop() -> None:
    topology = graph("a: ; b: a; c: b")
    assert back_edges(topology) == frozenset()
    assert loops(topology) == []


def test_a_self_loop_is_a_back_edge_and_a_loop() -> None:
    topology = graph("a: ; b: a b")
    assert back_edges(topology) == {("b", "b")}
    assert loops(topology) == [["b"]]


def test_the_edge_that_returns_to_the_path_is_the_back_edge() -> None:
    topology = graph("a: ; b: a d; c: b; d: c")
    assert back_edges(topology) == {("d", "b")}
    assert loops(topology) == [["b", "c", "d"]]


def test_the_search_enters_a_loop_where_the_first_declared_consumer_does() -> None:
    assert back_edges(graph("s: ; a: s b; b: s a")) == {("b", "a")}
    assert back_edges(graph("s: ; b: s a; a: s b")) == {("a", "b")}


def test_the_search_starts_from_the_sources_although_others_are_declared_first() -> None:
    assert back_edges(graph("a: b; b: a s; s: ")) == {("a", "b")}


def test_what_no_source_reaches_is_searched_in_declared_order() -> None:
    assert back_edges(graph("s: ; y: x; x: y")) == {("x", "y")}


def test_an_edge_across_or_forward_is_not_a_back_edge() -> None:
    assert back_edges(graph("a: ; b: a; c: a b; d: c b a")) == frozenset()


def test_loops_that_share_an_operator_are_one_loop() -> None:
    assert loops(graph("s: ; hub: s x y; x: hub; y: hub")) == [["hub", "x", "y"]]


def test_loops_come_in_declared_order() -> None:
    assert loops(graph("b: a; a: b; s: ; d: s e; e: d")) == [["b", "a"], ["d", "e"]]


@given(graphs())
def test_back_edges_are_those_of_the_recursive_definition(topology: Topology) -> None:
    assert back_edges(topology) == recursive_back_edges(topology)


@given(graphs())
def test_without_its_back_edges_every_graph_is_acyclic_and_its_order_respects_every_edge(topology: Topology) -> None:
    job = JobGraph.of(topology)
    place = {id: at for at, id in enumerate(job.order)}
    assert sorted(place) == sorted(job.operators)
    assert all(place[e.source] < place[e.target] for e in topology.edges if not job.is_back(e))


@given(graphs())
def test_no_back_edge_leads_forward_in_the_order(topology: Topology) -> None:
    job = JobGraph.of(topology)
    place = {id: at for at, id in enumerate(job.order)}
    assert all(place[target] <= place[source] for source, target in job.back)


@given(graphs())
def test_loops_are_the_classes_of_mutual_reachability(topology: Topology) -> None:
    paths = reachable(topology)
    ids = [op.id for op in topology.operators]
    classes = [[b for b in ids if (a, b) in paths and (b, a) in paths] for a in ids if (a, a) in paths]
    assert loops(topology) == [part for at, part in enumerate(classes) if part not in classes[:at]]


@given(graphs())
def test_a_graph_has_loops_exactly_if_it_has_back_edges(topology: Topology) -> None:
    job = JobGraph.of(topology)
    assert bool(job.loops) == bool(job.back)
    assert all(any({*edge} <= {*loop} for loop in job.loops) for edge in job.back)


@given(graphs())
def test_counts_are_those_of_an_enumeration(topology: Topology) -> None:
    job = JobGraph.of(topology)
    width = {id: op.parallelism for id, op in job.operators.items()}
    listed = [
        (edge.source, i, edge.target, k)
        for edge in topology.edges
        for i in range(width[edge.source])
        for k in neighbours(edge, i, width[edge.target])
    ]
    assert len(listed) == len(set(listed))
    assert size_of(topology) == (len(task_ids(topology)), len(listed))


@given(graphs())
def test_the_channels_out_of_all_tasks_are_those_into_all_tasks(topology: Topology) -> None:
    width = {op.id: op.parallelism for op in topology.operators}
    for edge in topology.edges:
        p_from, p_to = width[edge.source], width[edge.target]
        down = {channel for i in range(p_from) for channel in channels_out(edge, i, p_to)}
        up = {channel for k in range(p_to) for channel in channels_in(edge, k, p_from)}
        assert down == up


def test_a_forward_edge_joins_equals_and_all_others_join_all() -> None:
    forward = Edge("a", "b", Partition.FORWARD)
    shuffle = Edge("a", "b", Partition.HASH, ("k",))
    assert (neighbours(forward, 2, 3), neighbours(shuffle, 2, 4)) == (range(2, 3), range(4))
    assert list(map(str, channels_out(shuffle, 0, 2))) == ["a/0->b/0", "a/0->b/1"]
    assert list(map(str, channels_in(forward, 1, 2))) == ["a/1->b/1"]


@given(st.integers(1, 200), st.integers(0, 300))
def test_key_groups_are_shared_out_whole_in_order_and_evenly(parallelism: int, extra: int) -> None:
    groups = parallelism + extra
    ranges = [key_group_range(index, parallelism, groups) for index in range(parallelism)]
    assert (ranges[0].start, ranges[-1].stop) == (0, groups)
    assert all(left.stop == right.start for left, right in pairwise(ranges))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    assert all(group * parallelism // groups == index for index, r in enumerate(ranges) for group in r)


def test_the_declared_order_decides_between_operators_that_could_both_come_next() -> None:
    assert JobGraph.of(graph("z: ; a: ; m: z a; b: z")).order == ("z", "a", "m", "b")


def test_inputs_follow_from_and_outputs_follow_the_consumers() -> None:
    job = JobGraph.of(graph("a: ; b: ; d: b a; c: a"))
    assert [edge.source for edge in job.inputs["d"]] == ["b", "a"]
    assert [edge.target for edge in job.outputs["a"]] == ["d", "c"]


@pytest.mark.integration
@pytest.mark.parametrize("closed", [False, True])
def test_a_chain_of_100_000_operators_is_no_deep_recursion_and_takes_seconds_at_most(closed: bool) -> None:
    size = 100_000
    operators = tuple(Operator(f"o{i}", Kind.OPAQUE, 1, 1) for i in range(size))
    edges = [Edge(f"o{i - 1}", f"o{i}", Partition.FORWARD) for i in range(1, size)]
    if closed:
        edges.insert(0, Edge(f"o{size - 1}", "o1", Partition.FORWARD))
    started = time.process_time()
    job = JobGraph.of(Topology("chain", operators, tuple(edges)))
    assert time.process_time() - started < 10
    assert job.order == tuple(op.id for op in operators)
    assert [len(loop) for loop in job.loops] == ([size - 1] if closed else [])
