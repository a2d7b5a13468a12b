"""A driver that breaks the rules of the protocol is told so at once: it is a bug, never a fault of the user."""

from __future__ import annotations

import pytest

from abscli.protocol import events as e
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.protocol.turns import BACK_EDGE_TURNS, Turns

ORDERED = (Policy.ALIGNED, Policy.AT_LEAST_ONCE)


def coordinator(**more: int) -> Coordinator:
    return Coordinator(["s", "a"], ["s"], attempt=1, first_epoch=1, **more)


def test_back_edges_are_inputs() -> None:
    with pytest.raises(e.ProtocolError, match=r"t: back edges \['b'\] are no inputs"):
        Task("t", ["a"], [], ["b"])


@pytest.mark.parametrize("policy", ORDERED)
def test_a_task_whose_inputs_are_all_back_edges_would_never_copy(policy: Policy) -> None:
    with pytest.raises(e.ProtocolError, match="t: no regular input"):
        Task("t", ["a"], [], ["a"], policy=policy)
    assert Task("t", ["a"], [], ["a"], policy=Policy.UNALIGNED).logged == {"a"}


@pytest.mark.parametrize("policy", ORDERED)
def test_only_sources_are_triggered_unless_any_task_may_be(policy: Policy) -> None:
    with pytest.raises(e.ProtocolError, match="t: only sources are triggered"):
        Task("t", ["a"], [], policy=policy).on(e.Triggered(1))


def test_only_sources_end() -> None:
    with pytest.raises(e.ProtocolError, match="t: only sources end"):
        Task("t", ["a"], []).on(e.EndOfInput())


def test_a_channel_that_is_not_there_delivers_nothing() -> None:
    for event in (e.RecordsArrived("x", 1, 1), e.BarrierArrived("x", 1)):
        with pytest.raises(e.ProtocolError, match="t: x is not an input"):
            Task("t", ["a"], []).on(event)


def test_a_barrier_comes_once_on_a_channel() -> None:
    task = Task("t", ["a", "b", "c"], [], ["b", "c"])
    task.on(e.BarrierArrived("a", 1))
    task.on(e.BarrierArrived("b", 1))
    with pytest.raises(e.ProtocolError, match="t: barrier 1 came twice on b"):
        task.on(e.BarrierArrived("b", 1))


@pytest.mark.parametrize(("first", "count"), [(1, 0), (0, 1), (1, -1)])
def test_a_batch_has_records_and_they_have_numbers(first: int, count: int) -> None:
    with pytest.raises(e.ProtocolError, match=f"a: a batch of {count} records from record {first}"):
        e.RecordsArrived("a", first, count)


def test_sources_are_tasks_and_there_are_some() -> None:
    for tasks, sources in ((["a"], ["s"]), ([], [])):
        with pytest.raises(e.ProtocolError, match="sources must be tasks"):
            Coordinator(tasks, sources, attempt=1, first_epoch=1)


def test_only_tasks_of_the_job_ack() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    with pytest.raises(e.ProtocolError, match="ack of epoch 1 from x"):
        machine.on(e.Acked("x", 1, 1))


def test_only_what_is_being_stored_is_stored() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    with pytest.raises(e.ProtocolError, match="epoch 1 was not being stored"):
        machine.on(e.Stored(1))


def test_a_coordinator_that_has_finished_answers_nothing() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    for task in ("s", "a"):
        machine.on(e.Acked(task, 1, 1, finished=task == "s"))
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Finish()]
    assert machine.idle
    assert machine.on(e.TriggerDue()) == machine.on(e.StopRequested()) == []


def test_manifests_are_written_one_at_a_time_in_order() -> None:
    machine = coordinator(max_concurrent=3)
    for _ in range(3):
        machine.on(e.TriggerDue())
    for epoch in (2, 1, 3):
        machine.on(e.Acked("s", epoch, 1))
    assert machine.on(e.Acked("a", 1, 1)) == [e.Store(1, False)]
    assert machine.on(e.Acked("a", 2, 1)) == machine.on(e.Acked("a", 3, 1)) == []
    assert machine.on(e.TimedOut(2)) == []
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Store(2, False)]
    assert machine.on(e.Stored(2)) == [e.Complete(2), e.Store(3, False)]


def test_back_edges_are_read_first_but_with_a_bound() -> None:
    turns = Turns()
    both = [turns.back_edge_next(True, True) for _ in range(2 * (BACK_EDGE_TURNS + 1))]
    assert both == ([True] * BACK_EDGE_TURNS + [False]) * 2
    assert [turns.back_edge_next(True, False) for _ in range(9)] == [True] * 9
    assert not turns.back_edge_next(True, True)
    assert not turns.back_edge_next(False, True)
    assert not turns.back_edge_next(False, False)
    assert turns.back_edge_next(True, True)


def test_policies_are_what_the_table_says() -> None:
    def row(policy: Policy) -> tuple[bool, ...]:
        return policy.blocks, policy.holds, policy.copies_at_first, policy.logs_regular, policy.exactly_once

    assert row(Policy.ALIGNED) == (True, True, False, False, True)
    assert row(Policy.UNALIGNED) == (False, False, True, True, True)
    assert row(Policy.AT_LEAST_ONCE) == (False, True, False, False, False)
