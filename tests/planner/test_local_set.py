"""Who restarts when schedules are kept: the lost tasks, and what receives from one that cannot repeat itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.planner.adjacency import Adjacency
from abscli.planner.local_set import AGAIN, LocalSet, local_set, restart_set
from abscli.planner.plan import plan_partial
from abscli.planner.ranges import Ranges
from abscli.stores.native.plan import plan_graph
from abscli.stores.native.text.plan import next_command
from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from tests.planner.test_recovery_set import Task, channels_of, job, op, tasks_of, topologies
from tests.tiers import examples


def tasks(found: LocalSet) -> tuple[set[Task], set[Task]]:
    """Those that take their steps again, and those that go back."""
    again, back = (
        {(row.operator, i) for row in rows for start, stop in row.subtasks.spans for i in range(start, stop)}
        for rows in (found.again, found.back)
    )
    return again, back


def local(topology: Topology, *lost: Task) -> LocalSet:
    by_operator = {o.id: Ranges.of([i for id, i in lost if id == o.id]) for o in topology.operators}
    return local_set(Adjacency.of(topology), {id: subtasks for id, subtasks in by_operator.items() if subtasks})


def restarting(topology: Topology, *lost: Task, ahead: tuple[ChannelId, ...] = ()) -> LocalSet:
    by_operator = {o.id: Ranges.of([i for id, i in lost if id == o.id]) for o in topology.operators}
    lost_tasks = {id: subtasks for id, subtasks in by_operator.items() if subtasks}
    return restart_set(Adjacency.of(topology), lost_tasks, 3, ahead)


def literally(topology: Topology, lost: set[Task]) -> tuple[set[Task], set[Task]]:
    """Channel by channel."""
    marks = {o.id: (o.deterministic, (o.connector or {}).get("deterministic", True)) for o in topology.operators}
    marked = {id for id, both in marks.items() if not all(both)}
    back = {task for task in lost if task[0] in marked}
    while more := {receiver for sender, receiver, _ in channels_of(topology) if sender in back} - back:
        back |= more
    return lost - back, back


@settings(max_examples=examples(200))
@given(topologies(), st.data())
def test_it_is_the_closure_over_receivers_of_what_cannot_be_repeated(topology: Topology, data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.sampled_from(tasks_of(topology)), min_size=1, max_size=3))
    found = local(topology, *lost)
    assert tasks(found) == literally(topology, lost)
    assert all(row.why == AGAIN for row in found.again)


SHUFFLED = job(
    op("s", Kind.SOURCE), op("a", Kind.MAP), op("b", Kind.REDUCE, key=("k",)), op("c", Kind.SINK),
    Edge("s", "a", Partition.REBALANCE), Edge("a", "b", Partition.HASH, ("k",)), Edge("b", "c", Partition.FORWARD),
)  # fmt: skip


def test_behind_a_shuffle_nobody_goes_back_with_a_lost_worker() -> None:
    found = local(SHUFFLED, ("a", 1), ("b", 1))
    assert tasks(found) == ({("a", 1), ("b", 1)}, set())
    recovery = found.recovery(Adjacency.of(SHUFFLED))
    assert [(row.source, row.target, str(row.senders), str(row.receivers)) for row in recovery.dedup] == [
        ("a", "b", "1", "0"), ("b", "c", "1", "1"),
    ]  # fmt: skip


def test_what_receives_from_a_lost_task_that_cannot_repeat_itself_goes_back_and_says_why() -> None:
    random = job(
        op("s", Kind.SOURCE), op("a", Kind.MAP, deterministic=False), op("b", Kind.MAP), op("c", Kind.SINK),
        Edge("s", "a", Partition.FORWARD), Edge("a", "b", Partition.FORWARD), Edge("b", "c", Partition.FORWARD),
    )  # fmt: skip
    assert tasks(local(random, ("b", 0))) == ({("b", 0)}, set())
    found = local(random, ("s", 0), ("a", 0))
    assert tasks(found) == ({("s", 0)}, {("a", 0), ("b", 0), ("c", 0)})
    assert [(row.operator, row.why) for row in found.back] == [
        ("a", "failed, and is marked as not deterministic"),
        ("b", "receives from a/0, whose output cannot be repeated"),
        ("c", "receives from b/0, whose output cannot be repeated"),
    ]


RANDOM = job(
    op("s", Kind.SOURCE), op("a", Kind.MAP, deterministic=False), op("b", Kind.REDUCE, key=("k",)), op("c", Kind.SINK),
    Edge("s", "a", Partition.FORWARD), Edge("a", "b", Partition.HASH, ("k",)), Edge("b", "c", Partition.FORWARD),
)  # fmt: skip


@settings(max_examples=examples(200))
@given(topologies(), st.data())
def test_a_running_job_restarts_the_least_set_of_lost_tasks_or_everything(
    topology: Topology, data: st.DataObject
) -> None:
    """Whoever was not lost is not given its input again: within a worker nothing is kept."""
    lost = data.draw(st.sets(st.sampled_from(tasks_of(topology)), min_size=1, max_size=6))
    again, back = literally(topology, lost)
    chosen = restarting(topology, *lost)
    if back <= lost:
        assert tasks(chosen) == (again, back)
        assert chosen.everything is None
    else:
        assert tasks(chosen) == (set(), set(tasks_of(topology)))
        assert chosen.everything is not None


def test_where_more_than_the_lost_would_go_back_the_plan_says_why_everything_does() -> None:
    reason = "operator a is marked `deterministic: false`, and b/1 has received from a/0"
    plan = plan_partial(RANDOM, [TaskId("s", 0), TaskId("a", 0), TaskId("b", 0), TaskId("c", 0)], local=True)
    assert plan.untouched == 0
    assert [(row.operator, row.subtasks, row.reason) for row in plan.restart][:3] == [
        ("s", "0", "failed"), ("s", "1", f"everything restarts, since {reason}"), ("a", "0", "failed"),
    ]  # fmt: skip
    assert restarting(RANDOM, ("s", 1), ("b", 1), ("c", 1)).everything is None


def test_at_least_once_a_copy_that_holds_what_a_lost_sender_sent_behind_its_own_is_not_gone_on_from() -> None:
    channel = ChannelId(TaskId("a", 0), TaskId("b", 1))
    chosen = restarting(SHUFFLED, ("a", 0), ("b", 1), ahead=(channel,))
    assert chosen.everything == "task b/1 has in epoch 3 what a/0 sent behind it, both are lost"
    assert restarting(SHUFFLED, ("a", 0), ahead=(channel,)).everything is None
    assert restarting(SHUFFLED, ("b", 1), ahead=(channel,)).everything is None
    # Who goes back takes what is sent to it now.
    whole = [(id, i) for id in "sabc" for i in range(2)]
    assert restarting(RANDOM, *whole, ahead=(channel,)).everything is None


def test_a_plan_is_as_valid_as_of_the_recovery_set() -> None:
    plan = plan_partial(SHUFFLED, [TaskId("b", 1)], local=True)
    assert [(row.operator, row.subtasks, row.reason) for row in plan.restart] == [("b", "1", AGAIN)]
    assert plan.untouched == 7
    assert plan_partial(SHUFFLED, [TaskId("b", 1)]).untouched < 7


def test_subtasks_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="b/7 is not part of the topology"):
        local_set(Adjacency.of(SHUFFLED), {"b": Ranges.of([7])})


def test_a_wide_job_is_planned_in_ranges() -> None:
    wide = Topology(
        "wide",
        tuple(Operator(id, Kind.MAP if i else Kind.SOURCE, 100_000, 128) for i, id in enumerate("abcdefghij")),
        tuple(Edge(a, b, Partition.HASH, ("k",)) for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
    )
    found = local(wide, ("e", 7))
    assert found.recovery(Adjacency.of(wide)).tasks == 1


def test_the_next_command_of_a_plan_from_a_graph_makes_the_same_plan() -> None:
    plan = plan_graph(SHUFFLED, ["b/1"], local=True)
    assert next_command(plan) == "abs plan-recovery STORE --failed b/1 --recovery local"
    assert next_command(plan_graph(SHUFFLED, ["b/1"])) == "abs plan-recovery STORE --failed b/1"
