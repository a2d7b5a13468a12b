"""The counters of an epoch by channel, from the parts of its tasks, as they are: whole, out of order, or in part."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formats.ids import ChannelId, TaskId, channel_name, task_name
from formats.job.expand import channels_in, channels_out, neighbours, tasks
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.native.counters import Channels, Counters, by_operator, channel_facts
from formats.native.facts import LogFacts, PartFacts, header
from formats.view import ChannelFacts, ChannelLine, ChannelTable

WIDTHS = st.integers(1, 4)
COUNT = st.integers(0, 9)


@st.composite
def epochs(draw: st.DrawFn, *, sound: bool = False) -> tuple[Topology, list[PartFacts]]:
    """Three operators in a loop; tasks that may not have acked, counters that may be too few or too many unless
    `sound`."""
    wide, narrow = draw(WIDTHS), draw(WIDTHS)
    operators = (
        Operator("a", Kind.SOURCE, wide, 128, connector={"type": "text", "path": "in"}),
        Operator("b", Kind.UNION, wide, 128),
        Operator("c", Kind.REDUCE, narrow, 128, key=("k",)),
    )
    edges = (
        Edge("a", "b", Partition.FORWARD),
        Edge("b", "c", Partition.HASH, ("k",)),
        Edge("c", "b", Partition.BROADCAST),
    )
    width = {op.id: op.parallelism for op in operators}
    parts = []
    for op in operators:
        for i in range(op.parallelism):
            if draw(st.integers(0, 9)) == 0:
                continue
            counts: dict[str, dict[str, tuple[int, ...]]] = {"sent": {}, "received": {}}
            for edge in edges:
                for here, there, name in ((edge.source, edge.target, "sent"), (edge.target, edge.source, "received")):
                    if here == op.id:
                        wrong = 0 if sound else draw(st.sampled_from([0] * 9 + [1, -1]))
                        channels = len(neighbours(edge, i, width[there])) + wrong
                        counts[name][there] = tuple(draw(COUNT) for _ in range(channels))
            logs = [
                LogFacts(channel_name(task_name(edge.source, j), task_name(op.id, i)), draw(COUNT), None)
                for edge in edges if edge.target == op.id
                for j in neighbours(edge, i, width[edge.source]) if draw(st.booleans())
            ]  # fmt: skip
            parts.append(part(task_name(op.id, i), logs=tuple(logs), **counts))
    return Topology("j", operators, edges), draw(st.permutations(parts)) if draw(st.booleans()) else parts


def part(task: str, **facts: Any) -> PartFacts:
    known: dict[str, Any] = {
        "epoch": 1, "attempt": 1, "task_name": task, "state": (), "rows": 0, "positions": None, "round_robin": {},
        "connector": None, "sink": (), "finished": False, "alignment": 0.0, "sync": 0.0, "async_": 0.0,
        "attempt_id": "", **header(PartFacts),
    }  # fmt: skip
    return PartFacts(**known, **facts)


def literal(topology: Topology, parts: list[PartFacts]) -> list[ChannelFacts]:
    """Channel by channel, as the words of the format say."""
    tasks = {part.task: part for part in parts}
    width = {op.id: op.parallelism for op in topology.operators}
    found = []
    for edge in topology.edges:
        for i in range(width[edge.source]):
            for j in neighbours(edge, i, width[edge.target]):
                sender, receiver = tasks.get(TaskId(edge.source, i)), tasks.get(TaskId(edge.target, j))
                channel = ChannelId(TaskId(edge.source, i), TaskId(edge.target, j))
                to, of = neighbours(edge, i, width[edge.target]), neighbours(edge, j, width[edge.source])
                sent = dict(zip(to, sender.sent[edge.target], strict=False)) if sender else {}
                received = dict(zip(of, receiver.received[edge.source], strict=False)) if receiver else {}
                logged = {log.channel: log.records for log in receiver.logs} if receiver else None
                logged_here = None if logged is None else logged.get(channel, 0)
                found.append(ChannelFacts(channel, sent.get(j), received.get(i), logged_here))
    return found


@given(epochs())
def test_every_channel_has_its_counters_and_what_nobody_has_said_is_unknown(
    epoch: tuple[Topology, list[PartFacts]],
) -> None:
    topology, parts = epoch
    found = list(channel_facts(topology, by_operator(topology, parts)))
    assert found == literal(topology, parts)
    channels = Channels(topology, by_operator(topology, parts))
    assert list(channels) == found
    assert list(channels.logged()) == [channel for channel in found if channel.logged]
    assert len(channels) == len(found)
    for back in (None, {("c", "b")}):
        assert list(channels.lines(back)) == list(ChannelTable(found).lines(back)) == [
            ChannelLine(str(c.channel), c.sent, c.received, c.logged, back and c.channel.sender.operator == "c")
            for c in found
        ]


@given(epochs(sound=True))
def test_the_sums_of_an_edge_are_those_of_its_channels(epoch: tuple[Topology, list[PartFacts]]) -> None:
    topology, parts = epoch
    channels = Channels(topology, by_operator(topology, parts))
    for edge, found in zip(topology.edges, channels.edges(), strict=True):
        mine = [c for c in channels if c.edge == (edge.source, edge.target)]
        assert (found.source, found.target, found.channels) == (edge.source, edge.target, len(mine))
        for name in ("sent", "received", "logged"):
            values = [getattr(c, name) for c in mine]
            assert getattr(found, name) == (None if None in values else sum(values))


def test_a_part_of_a_task_that_the_graph_does_not_have_is_left_out() -> None:
    topology = Topology("j", (Operator("a", Kind.SOURCE, 1, 128, connector={"type": "text", "path": "in"}),), ())
    parts = [part(task, logs=(), sent={}, received={}) for task in ("a/0", "a/1", "a/x", "z/0")]
    assert by_operator(topology, parts) == {"a": parts[:1]}
    assert by_operator(topology, parts[1:]) == {"a": [None]}


@given(epochs(), st.integers(1, 100))
def test_counters_by_channel_come_back_from_those_by_operator(
    epoch: tuple[Topology, list[PartFacts]], first: int
) -> None:
    """Each task counts other numbers; the channels of the epoch have them again."""
    topology, _ = epoch
    edges = topology.edges
    width = {op.id: op.parallelism for op in topology.operators}
    numbers = count(first)
    counters = {
        (op.id, i): Counters(
            {c: next(numbers) for e in edges if e.source == op.id for c in channels_out(e, i, width[e.target])},
            {c: next(numbers) for e in edges if e.target == op.id for c in channels_in(e, i, width[e.source])},
        )
        for op, i in tasks(topology)
    }
    parts = [
        part(task_name(*task), logs=(), sent=own.sent_by_operator(), received=own.received_by_operator())
        for task, own in counters.items()
    ]
    channels = list(channel_facts(topology, by_operator(topology, parts)))
    assert {c.channel: c.sent for c in channels} == {
        k: n for own in counters.values() for k, n in own.sent.items()
    }
    assert {c.channel: c.received for c in channels} == {
        k: n for own in counters.values() for k, n in own.received.items()
    }
