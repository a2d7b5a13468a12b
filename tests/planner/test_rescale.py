"""What new tasks inherit: state by key group, logs by rule, splits, and counters that begin anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.planner.rescale import (
    How,
    Identity,
    Rule,
    changes,
    heir,
    lifted,
    reroute,
    rule_of,
    with_parallelism,
)
from abscli.report.findings import Finding
from abscli.stores.native.checks.conservation import check_conservation
from formats.ids import ChannelId, task_name
from formats.job.model import Edge, Kind, Operator, Partition, Topology, key_group_range
from formats.native.facts import FooterFacts, LogFacts, PartFacts, RowGroupFacts, StateFileFacts, header
from formats.native.state.references import depth, reach
from formats.view import Position, Repeat

GROUPS = 12
HASH, FORWARD, REBALANCE, BROADCAST = Partition.HASH, Partition.FORWARD, Partition.REBALANCE, Partition.BROADCAST


def job(parallelism: int, *edges: Edge) -> Topology:
    """A source, a keyed operator, one that is not, and a sink, all with so many tasks."""
    p = parallelism
    return Topology(
        "job",
        (
            Operator("lines", Kind.SOURCE, p, GROUPS),
            Operator("seen", Kind.DISTINCT, p, GROUPS, key=("k",)),
            Operator("plain", Kind.MAP, p, GROUPS),
            Operator("out", Kind.SINK, p, GROUPS),
        ),
        edges or (Edge("lines", "seen", HASH, ("k",)), Edge("seen", "plain", FORWARD), Edge("plain", "out", REBALANCE)),
    )


def operators(topology: Topology) -> dict[str, Operator]:
    return {op.id: op for op in topology.operators}


class Letters:
    """Logs are text: a record is a letter, and its key is where it stands in the alphabet."""

    def by_key(self, log: str, rule: Rule, width: int) -> Iterable[tuple[int, str]]:
        return [((ord(letter) - 97) % rule.max_parallelism * width // rule.max_parallelism, letter) for letter in log]

    def in_turn(self, log: str, first: int, width: int) -> Iterable[tuple[int, str]]:
        return [((first + k) % width, letter) for k, letter in enumerate(log)]

    def count(self, log: str) -> int:
        return len(log)

    def alike(self, logs: Sequence[str]) -> bool:
        return len(set(logs)) == 1


def routed(rule: Rule, logs: dict[tuple[int, int], str], receivers: int, width: tuple[int, int]) -> dict[str, str]:
    pieces = reroute(rule, logs, receivers, width, Letters())
    assert pieces is not None
    return {f"{i}->{j}": "".join(log) for (i, j), log in sorted(pieces.items())}


# -- rules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("edge", "rule"), [
    (Edge("lines", "seen", HASH, ("k",)), Rule(How.KEY, ("k",), GROUPS)),
    (Edge("lines", "out", REBALANCE), Rule(How.TURN)),
    (Edge("lines", "out", BROADCAST), Rule(How.COPY)),
    (Edge("plain", "seen", FORWARD), Rule(How.KEY, ("k",), GROUPS, paired=True)),
    (Edge("seen", "plain", FORWARD), Rule(How.KEY, ("k",), GROUPS, paired=True)),
    (Edge("lines", "plain", FORWARD), None),
])  # fmt: skip
def test_the_rule_of_an_edge_goes_by_its_partition_and_by_who_has_state(edge: Edge, rule: Rule | None) -> None:
    assert rule_of(edge, operators(job(4)), operators(job(7))) == rule


@pytest.mark.parametrize("partition", list(Partition))
def test_records_stay_with_receivers_that_stay(partition: Partition) -> None:
    edge = Edge("lines", "plain", partition, ("k",) if partition is HASH else ())
    rule = rule_of(edge, operators(job(3)), operators(with_parallelism(job(3), {"lines": 1, "out": 5})))
    assert rule == Rule(How.KEEP, paired=partition is FORWARD)


def test_logs_of_senders_that_vanish_go_to_one_that_stays_in_the_order_of_each_channel() -> None:
    logs = {(0, 0): "ab", (1, 0): "cd", (2, 0): "ef", (2, 1): "gh", (3, 1): "ij"}
    assert routed(Rule(How.KEEP), logs, 2, (2, 2)) == {"0->0": "abef", "0->1": "gh", "1->0": "cd", "1->1": "ij"}


def test_records_of_a_hash_edge_go_to_the_owner_of_their_key() -> None:
    assert routed(Rule(How.KEY, ("k",), GROUPS), {(0, 0): "alb", (0, 1): "gac"}, 2, (1, 12)) == {
        "0->0": "aa", "0->1": "b", "0->11": "l", "0->2": "c", "0->6": "g",
    }  # fmt: skip


def test_records_of_a_forward_edge_go_from_the_owner_of_their_key_to_itself() -> None:
    assert routed(Rule(How.KEY, ("k",), GROUPS, paired=True), {(0, 0): "abg"}, 1, (2, 2)) == {"0->0": "ab", "1->1": "g"}


def test_records_of_a_rebalance_edge_are_dealt_out() -> None:
    assert routed(Rule(How.TURN), {(0, 0): "abc", (1, 0): "de"}, 1, (2, 2)) == {
        "0->0": "ac", "0->1": "b", "1->0": "e", "1->1": "d",
    }  # fmt: skip


def test_a_broadcast_is_taken_over_if_all_receivers_have_the_same_before_them() -> None:
    assert routed(Rule(How.COPY), {(0, 0): "ab", (0, 1): "ab"}, 2, (1, 3)) == {"0->0": "ab", "0->1": "ab", "0->2": "ab"}
    for unlike in ({(0, 0): "ab", (0, 1): "a"}, {(0, 0): "ab"}):
        assert reroute(Rule(How.COPY), unlike, 2, (1, 3), Letters()) is None


@given(st.data())
def test_no_record_is_lost_or_doubled_and_each_channel_keeps_its_order_per_key(data: st.DataObject) -> None:
    p, q, p2, q2 = (data.draw(st.integers(1, 4)) for _ in range(4))
    how = data.draw(st.sampled_from([How.KEY, How.TURN]))
    pairs = data.draw(st.sets(st.tuples(st.integers(0, p - 1), st.integers(0, q - 1))))
    logs = {pair: data.draw(st.text("abcdefghijkl", min_size=1, max_size=5)) for pair in sorted(pairs)}
    new = reroute(Rule(how, ("k",), GROUPS), logs, q, (p2, q2), Letters()) or {}
    joined = {pair: "".join(pieces) for pair, pieces in new.items()}
    assert sorted("".join(joined.values())) == sorted("".join(logs.values()))
    for sender in range(p):
        mine = ["".join(log) for (i, _), log in logs.items() if i == sender]
        heirs = "".join(log for (i, _), log in joined.items() if i == heir(sender, p2))
        assert all(heirs.count(letter) >= "".join(mine).count(letter) for letter in set("".join(mine)))
    if how is How.KEY:
        for (_, j), log in joined.items():
            assert {(ord(letter) - 97) * q2 // GROUPS for letter in log} == {j}


# -- state ----------------------------------------------------------------------------------------------------


def state_file(name: str, own: range) -> StateFileFacts:
    """A file with a row group of ten rows for each of these key groups."""
    groups = tuple(RowGroupFacts(g, g, 10, 4 + 100 * k, 100, "0" * 64) for k, g in enumerate(own))
    return StateFileFacts(name, 5000, 10 * len(own), name, groups, FooterFacts(4 + 100 * len(own), "0" * 64))


def part(topology: Topology, task: str, **more: object) -> PartFacts:
    values: dict[str, object] = {
        "epoch": 5, "attempt": 1, "task_name": task, "state": (), "rows": 0, "logs": (), "sent": {}, "received": {},
        "positions": None, "round_robin": {}, "connector": None, "sink": (), "finished": False, "alignment": 0.1,
        "sync": 0.1, "async_": 0.1, "attempt_id": "", **header(PartFacts),
    }  # fmt: skip
    return PartFacts(**{**values, **more})  # type: ignore[arg-type]


def parts(topology: Topology) -> dict[str, list[PartFacts]]:
    """Of every task; `seen` has a file a task, `lines` two splits a task, of which those of the first are read."""
    made: dict[str, list[PartFacts]] = {}
    for op in topology.operators:
        for i in range(op.parallelism):
            own = key_group_range(i, op.parallelism, GROUPS)
            more: dict[str, object] = {}
            if op.id == "seen":
                more = {"state": (state_file(f"f{i}", own),), "rows": 10 * len(own)}
            elif op.id == "lines":
                splits = tuple(Position(f"s{i + op.parallelism * k}", i, i) for k in range(2))
                more = {"positions": splits, "finished": i == 0}
            made.setdefault(op.id, []).append(part(topology, task_name(op.id, i), **more))
    return made


Parts = dict[str, list[PartFacts]]


def lift(old: Topology, new: Topology, before: Parts, **more: object) -> Parts:
    made: Parts = {}
    identity = Identity(9, 2, "a" * 32)
    for one in lifted(old, new, before, more.pop("logs", {}), identity, **more):  # type: ignore[arg-type]
        made.setdefault(one.operator, []).append(one)
    return made


def held(one: PartFacts, topology: Topology) -> list[tuple[str, int]]:
    """Which key group of which file a part has, by its row groups."""
    op = topology.operator("seen")
    own = key_group_range(one.task.subtask, op.parallelism, GROUPS)
    return [
        (file.path, group.first) for file in one.state for group in file.row_groups if group.first in reach(file, own)
    ]


@given(st.lists(st.integers(1, GROUPS), min_size=2, max_size=5))
def test_every_key_group_of_every_file_has_one_owner_however_often_a_job_is_rescaled(widths: list[int]) -> None:
    topology = job(widths[0])
    current = parts(topology)
    wanted = sorted(entry for one in current["seen"] for entry in held(one, topology))
    for width in widths[1:]:
        new = job(width)
        current = lift(topology, new, current)
        topology = new
        assert sorted(entry for one in current["seen"] for entry in held(one, new)) == wanted
        for i, one in enumerate(current["seen"]):
            own = key_group_range(i, width, GROUPS)
            assert all(group in own for _, group in held(one, new))
            assert one.rows in (None, 10 * len(own))
            assert depth(one.state, own) == (1 if len(own) else 0)


def test_tasks_that_are_merged_know_how_many_keys_they_have_and_those_that_are_split_do_not() -> None:
    merged = lift(job(12), job(3), parts(job(12)))["seen"]
    assert [one.rows for one in merged] == [40, 40, 40]
    assert [one.rows for one in lift(job(3), job(12), parts(job(3)))["seen"]] == [None] * 12


def test_an_operator_that_keeps_its_parallelism_keeps_its_parts() -> None:
    old = job(3)
    made = lift(old, with_parallelism(old, {"out": 2}), parts(old))
    assert [one.state for one in made["seen"]] == [one.state for one in parts(old)["seen"]]
    assert [one.positions for one in made["lines"]] == [one.positions for one in parts(old)["lines"]]
    assert [one.finished for one in made["lines"]] == [True, False, False]
    assert changes(old, with_parallelism(old, {"out": 2, "seen": 3})) == (("out", 3, 2),)


# -- sources and counters -------------------------------------------------------------------------------------


def test_splits_are_dealt_out_anew_by_name_with_their_positions() -> None:
    made = lift(job(2), job(3), parts(job(2)))["lines"]
    assert [[(p.split, p.offset) for p in one.positions or ()] for one in made] == [
        [("s0", 0), ("s3", 1)], [("s1", 1)], [("s2", 0)],
    ]  # fmt: skip
    assert not any(one.finished for one in made)


def conservation(topology: Topology, made: dict[str, list[PartFacts]], policy: str) -> list[Finding]:
    return list(check_conservation(topology, tuple(one for mine in made.values() for one in mine), policy))


def test_counters_begin_anew_and_logged_records_count_as_sent() -> None:
    new = job(3)
    file = state_file("log", range(1))
    logs = {("lines", "seen"): {(0, 2): LogFacts("lines/0->seen/2", 4, file)}}
    made = lift(job(2), new, parts(job(2)), logs=logs)
    assert made["lines"][0].sent == {"seen": (0, 0, 4)}
    assert made["seen"][2].received == {"lines": (0, 0, 0)}
    assert [log.records for log in made["seen"][2].logs] == [4]
    assert made["plain"][0].round_robin == {"out": 0}
    assert conservation(new, made, "unaligned") == []
    assert conservation(new, made, "aligned") != []  # a regular channel has a log


def test_what_repeats_after_a_restore_is_still_known_after_a_rescale() -> None:
    new = job(3)
    told = {"lines/3->seen/3": 5, "lines/0->seen/0": 2, "seen/3->plain/3": 1}
    repeats = tuple(Repeat(ChannelId.parse(channel), records) for channel, records in told.items())
    made = lift(job(4), new, parts(job(4)), repeats=repeats)
    assert made["seen"][0].received == {"lines": (7, 0, 0)}
    assert made["plain"][0].received == {"seen": (1,)}
    assert conservation(new, made, "at-least-once") == []
