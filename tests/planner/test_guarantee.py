"""What holds from end to end: single weaknesses, and against a list of all paths of small graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.graph.job_graph import JobGraph
from abscli.planner import guarantee as module
from abscli.planner.guarantee import Guarantee, Link, Times, Weakness, guarantee_of
from abscli.protocol.policy import Policy
from formats.job.expand import channels_in
from formats.job.file import parse_topology_bytes
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.job.promises import Promise

ONCE, TWICE = Times.EXACTLY_ONCE, Times.AT_LEAST_ONCE


def of(operators: str, policy: Policy = Policy.ALIGNED) -> Guarantee:
    job = f"version: 1\njob: test\noperators:\n{operators}"
    return guarantee_of(JobGraph.of(parse_topology_bytes(job.encode(), "job.yaml")), policy)


LINES = "  lines: {source: {type: text, path: in}}\n"
WIDE = "  lines: {source: {type: text, path: in}, parallelism: 2}\n"
OUT = "  out: {from: OP, sink: {type: jsonl, path: out}}\n"


def out(operator: str) -> str:
    return OUT.replace("OP", operator)


def counts(aggregate: str, more: str = "", sender: str = "lines") -> str:
    return f"  counts: {{from: {sender}, reduce: {{key: [line], n: {{{aggregate}}}}}{more}}}\n"


@pytest.mark.parametrize("policy", [Policy.ALIGNED, Policy.UNALIGNED])
def test_positions_snapshots_and_a_transaction_give_exactly_once(policy: Policy) -> None:
    (sink,) = of(WIDE + counts('count: "*"') + out("counts"), policy).sinks
    assert (sink.sources, sink.promise, sink.state, sink.output, sink.links) == (
        ("lines",), Promise.TWO_PHASE, ONCE, ONCE, (),
    )  # fmt: skip


def test_under_at_least_once_an_operator_with_several_inputs_weakens_state_and_output() -> None:
    (sink,) = of(WIDE + counts('count: "*"') + out("counts"), Policy.AT_LEAST_ONCE).sinks
    assert (sink.state, sink.output, sink.links) == (TWICE, TWICE, (Link(Weakness.POLICY, ("counts",)),))


def test_at_the_sink_it_weakens_output_alone() -> None:
    (sink,) = of(WIDE + out("lines")   , Policy.AT_LEAST_ONCE).sinks
    assert (sink.state, sink.output, sink.links) == (ONCE, TWICE, (Link(Weakness.POLICY, ("out",)),))


def test_with_one_input_each_at_least_once_is_exactly_once_and_a_back_edge_is_held() -> None:
    loop = "  seen: {from: [lines, again], distinct: [line]}\n  again: {from: seen, flat_map: 'steps:again'}\n"
    assert of(LINES + loop + out("seen"), Policy.AT_LEAST_ONCE).output is ONCE


def test_a_sink_without_transaction_weakens_output_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "promise_of", lambda operator: Promise.AT_LEAST_ONCE)
    guarantee = of(LINES + counts('count: "*"') + out("counts"))
    (sink,) = guarantee.sinks
    assert (sink.state, sink.output) == (guarantee.state, guarantee.output) == (ONCE, TWICE)
    assert sink.links == (Link(Weakness.SINK_REPEATS, ("out",)),)


def test_an_id_is_as_good_as_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "promise_of", lambda operator: Promise.IDEMPOTENT)
    assert of(LINES + out("lines")).output is ONCE


def test_of_a_sink_that_is_not_known_state_is_known_and_output_is_not() -> None:
    (sink,) = of(LINES + "  out: {from: lines, sink: {type: pigeon}}\n").sinks
    assert (sink.state, sink.output, sink.links) == (ONCE, None, (Link(Weakness.SINK_UNKNOWN, ("out",)),))


def test_of_a_source_and_of_an_operator_that_are_not_known_nothing_is_known() -> None:
    (sink,) = of("  in: {source: {type: pigeon}}\n  does: {from: in}\n" + out("does")).sinks
    assert (sink.state, sink.output) == (None, None)
    assert sink.links == (Link(Weakness.SOURCE_UNKNOWN, ("in",)), Link(Weakness.OPERATOR_UNKNOWN, ("does",)))


def test_what_is_a_source_and_a_sink_in_one_is_not_known_either_way() -> None:
    guarantee = of("  all: {}\n")
    assert (guarantee.state, guarantee.output) == (None, None)


def test_only_sinks_behind_it_are_weakened() -> None:
    guarantee = of(LINES + "  in: {source: {type: pigeon}}\n" + out("lines") + out("in").replace("out:", "other:"))
    assert [(sink.sources, sink.output) for sink in guarantee.sinks] == [(("lines",), ONCE), (("in",), None)]
    assert (guarantee.state, guarantee.output) == (None, None)


def test_state_that_no_sink_is_behind_counts_for_the_job() -> None:
    guarantee = of(LINES + "  in: {source: {type: pigeon}}\n" + out("lines") + counts('count: "*"', "", "in"))
    assert (guarantee.sinks[0].state, guarantee.state, guarantee.output) == (ONCE, None, ONCE)


@pytest.mark.parametrize("marked", ["  f: {from: lines, map: 'm:f', deterministic: false}\n" + out("f"),
                                    "  out: {from: lines, sink: {type: csv, path: out, deterministic: false}}\n"])
def test_a_function_that_is_not_deterministic_is_named_and_every_record_counts_once(marked: str) -> None:
    guarantee = of(LINES + marked)
    assert (guarantee.state, guarantee.output) == (ONCE, ONCE)
    assert [link.weakness for link in guarantee.links] == [Weakness.NOT_DETERMINISTIC]


@pytest.mark.parametrize(
    ("operators", "named"),
    [
        (LINES + counts("first: line"), False),
        (LINES + counts("last: line", ", parallelism: 3"), False),
        (WIDE + counts("first: line"), True),
        (WIDE + counts("collect: line, limit: 3"), True),
        (WIDE + counts("first: line", ", ordered_output: true"), False),
        (WIDE + counts("top_n: line, n: 3"), False),
        (WIDE + counts("max: line"), False),
        (WIDE + counts("max: line", ", ttl: {time: at, after: 1h}"), True),
        (WIDE + counts("max: line", ", ttl: {time: line, after: 1h}"), False),
        (LINES + "  f: {from: lines, map: 'm:f', deterministic: false}\n" + counts("last: line", "", "f"), True),
    ],
)
def test_an_aggregate_by_order_is_named_where_the_order_is_not_the_same_again(operators: str, named: bool) -> None:
    guarantee = of(operators + out("counts"))
    links = [link.operators for link in guarantee.links if link.weakness is Weakness.ORDER]
    assert links == ([("counts",)] if named else [])
    assert guarantee.output is ONCE


RUNNING = counts('count: "*"')
WINDOWED = "  lines: {source: {type: jsonl, path: in, event_time: {column: at}}}\n" + counts(
    'count: "*"', ", window: {time: at, tumbling: 1m}"
)


def emitting(when: str) -> str:
    return RUNNING.replace("key: [line]", f"key: [line], emit: {when}")


def after(aggregate: str, sender: str = "counts", more: str = "") -> str:
    return f"  best: {{from: {sender}, reduce: {{key: [line], b: {{{aggregate}}}{more}}}}}\n"


@pytest.mark.parametrize(
    ("operators", "named"),
    [
        (LINES + RUNNING + after("top_n: n, n: 3"), True),
        (LINES + RUNNING + after("sum: n"), True),
        (LINES + RUNNING + after("min: n"), True),
        (LINES + RUNNING + "  f: {from: counts, map: 'm:f'}\n" + after("mean: n", "f"), True),
        (LINES + RUNNING + "  best: {from: counts, distinct: [n]}\n", True),
        (LINES + emitting("change") + after("top_n: n, n: 3"), True),
        (LINES + emitting("record") + after("top_n: n, n: 3"), False),
        (LINES + RUNNING + after("last: n"), False),
        (LINES + counts("max: line") + after("max: n"), False),
        (LINES + counts("max: line") + after("sum: n"), True),
        (LINES + after("top_n: line, n: 3", "lines"), False),
        (WINDOWED + after("top_n: n, n: 3"), False),
    ],
)
def test_an_operator_that_counts_updates_as_rows_is_named(operators: str, named: bool) -> None:
    guarantee = of(operators + out("best"))
    links = [link.operators for link in guarantee.links if link.weakness is Weakness.UPDATES]
    assert links == ([("best",)] if named else [])
    assert guarantee.output is ONCE


def test_a_loop_that_looks_for_a_minimum_counts_no_updates() -> None:
    loop = "  least: {from: [lines, again], reduce: {key: [line], emit: change, n: {min: n}}}\n"
    guarantee = of(LINES + loop + "  again: {from: least, flat_map: 'steps:again'}\n" + out("least"))
    assert [link.weakness for link in guarantee.links if link.weakness is Weakness.UPDATES] == []
    counting = loop.replace("min: n", 'count: "*"')
    guarantee = of(LINES + counting + "  again: {from: least, flat_map: 'steps:again'}\n" + out("least"))
    assert [link.operators for link in guarantee.links if link.weakness is Weakness.UPDATES] == [("least",)]


@st.composite
def jobs(draw: st.DrawFn) -> Topology:
    """Sources, operators and sinks, each behind a source, and any edges that close cycles beside."""
    sources, inner, sinks = draw(st.integers(1, 2)), draw(st.integers(0, 3)), draw(st.integers(1, 2))
    operators, edges = [], []
    for at in range(sources):
        type = draw(st.sampled_from(["text", "pigeon"]))
        operators.append(Operator(f"in{at}", Kind.SOURCE, draw(st.integers(1, 2)), 128, connector={"type": type}))
    for at in range(inner):
        senders = [op.id for op in operators]
        kind = draw(st.sampled_from([Kind.MAP, Kind.OPAQUE]))
        deterministic = draw(st.booleans())
        operators.append(Operator(f"op{at}", kind, draw(st.integers(1, 2)), 128, deterministic=deterministic))
        later = [f"op{other}" for other in range(at, inner)]
        # One earlier sender leads back to a source; a later one, or itself, closes a cycle.
        chosen = {draw(st.sampled_from(senders)), *draw(st.sets(st.sampled_from(senders + later), max_size=1))}
        edges += [Edge(sender, f"op{at}", Partition.REBALANCE) for sender in sorted(chosen)]
    senders = [op.id for op in operators]
    for at in range(sinks):
        type = draw(st.sampled_from(["jsonl", "pigeon"]))
        operators.append(Operator(f"out{at}", Kind.SINK, 1, 128, connector={"type": type}))
        for sender in sorted(draw(st.sets(st.sampled_from(senders), min_size=1, max_size=2))):
            edges.append(Edge(sender, f"out{at}", Partition.REBALANCE))
    return Topology("random", tuple(operators), tuple(edges))


def walks(topology: Topology, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All walks on from a path that visit no operator more than twice: long enough to go round every loop."""
    yield path
    for edge in topology.edges:
        if edge.source == path[-1] and path.count(edge.target) < 2:
            yield from walks(topology, (*path, edge.target))


def on_one_path(topology: Topology, path: tuple[str, ...], policy: Policy) -> tuple[int, int, set[tuple[str, str]]]:
    """How well state and output are kept, 0 (not known) to 2 (exactly once), and what weakens that, word by word."""
    operators = {op.id: op for op in topology.operators}
    back = JobGraph.of(topology).back
    state = output = 2
    weak = set()
    for id in path:
        op = operators[id]
        level = 2
        if (op.connector or {}).get("type") == "pigeon":
            level = 0
            weak.add((id, "source-unknown" if op.kind is Kind.SOURCE else "sink-unknown"))
        if op.kind is Kind.OPAQUE:
            leads_on = any(edge.source == id for edge in topology.edges)
            level = 0
            weak.add((id, "operator-unknown" if leads_on else "sink-unknown"))
        channels = [
            channel
            for edge in topology.edges
            if edge.target == id and (edge.source, id) not in back
            for channel in channels_in(edge, 0, operators[edge.source].parallelism)
        ]
        if policy is Policy.AT_LEAST_ONCE and len(channels) >= 2:
            level = min(level, 1)
            weak.add((id, "policy"))
        if not op.deterministic:
            weak.add((id, "not-deterministic"))
        output = min(output, level)
        if id != path[-1]:
            state = min(state, level)
    return state, output, weak


LEVELS = {None: 0, TWICE: 1, ONCE: 2}


@given(jobs(), st.sampled_from(Policy))
def test_each_sink_has_what_the_weakest_of_all_its_paths_has(topology: Topology, policy: Policy) -> None:
    guarantee = guarantee_of(JobGraph.of(topology), policy)
    senders = {edge.source for edge in topology.edges}
    ends = [op.id for op in topology.operators if op.id not in senders and op.kind in (Kind.SINK, Kind.OPAQUE)]
    assert [sink.sink for sink in guarantee.sinks] == ends
    every = [walk for op in topology.operators if op.kind is Kind.SOURCE for walk in walks(topology, (op.id,))]
    for sink in guarantee.sinks:
        paths = [walk for walk in every if walk[-1] == sink.sink]
        each = [on_one_path(topology, path, policy) for path in set(paths)]
        assert set(sink.sources) == {path[0] for path in paths}
        assert LEVELS[sink.state] == min(state for state, _, _ in each)
        assert LEVELS[sink.output] == min(output for _, output, _ in each)
        links = {(id, str(link.weakness)) for link in sink.links for id in link.operators}
        assert links == set().union(*(weak for _, _, weak in each))


def test_paths_are_not_listed() -> None:
    """Two ways at each of 300 steps are 2**300 paths."""
    steps = [Operator("s", Kind.SOURCE, 1, 128, connector={"type": "text"})]
    edges = []
    for at in range(300):
        before = steps[-1].id
        left, right, joined = (Operator(f"{side}{at}", Kind.UNION, 1, 128) for side in "lrj")
        steps += [left, right, joined]
        edges += [Edge(before, left.id, Partition.FORWARD), Edge(before, right.id, Partition.FORWARD)]
        edges += [Edge(left.id, joined.id, Partition.FORWARD), Edge(right.id, joined.id, Partition.FORWARD)]
    steps.append(Operator("out", Kind.SINK, 1, 128, connector={"type": "csv"}))
    edges.append(Edge("j299", "out", Partition.FORWARD))
    graph = JobGraph.of(Topology("ladder", tuple(steps), tuple(edges)))
    assert guarantee_of(graph, Policy.AT_LEAST_ONCE).links == (
        Link(Weakness.POLICY, tuple(f"j{at}" for at in range(300))),
    )


def test_a_function_of_keys_goes_by_the_order_of_rows_unless_it_promises_not_to() -> None:
    for marks, weak in ((", ordered_output: true", []), ("", [Weakness.ORDER])):
        track = f"  track: {{from: lines, process: {{key: [line], function: 'm:f'}}{marks}}}\n"
        assert [link.weakness for link in of(WIDE + track + out("track")).links] == weak
