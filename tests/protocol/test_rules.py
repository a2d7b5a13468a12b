"""A driver that breaks the rules of the protocol is told so at once: it is a bug, never a fault of the user."""

from __future__ import annotations

import pytest

from abscli.protocol import events as e
from abscli.protocol.coordinator import Coordinator, NextEpoch, next_epoch
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
        with pytest.raises(e.ProtocolError, match=r"^sources must be tasks, and there must be tasks$"):
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


def test_a_task_counts_what_it_sends_and_remembers_its_end() -> None:
    source = Task("s", [], ["o"], first_epoch=5)
    assert (source.sent, source.finished, source.copied) == ({"o": 0}, False, 4)
    source.on(e.Sent("o", 2))
    source.on(e.Sent("o", 3))
    source.on(e.EndOfInput())
    assert source.sent == {"o": 5}
    assert source.finished is True
    assert Task("s", [], ["o"], finished=True).finished is True


def test_a_batch_is_logged_and_processed_without_what_is_known() -> None:
    task, batch = Task("t", ["a", "b"], [], policy=Policy.UNALIGNED), object()
    assert task.on(e.RecordsArrived("a", 1, 5, batch)) == [e.Process("a", 5, batch, 0)]
    task.on(e.PeersRestarted(2, 2, {"a": 2}))
    assert task.copied == 1
    task.on(e.BarrierArrived("b", 2))
    wanted = [e.Log("a", (2,), 1, batch, 2), e.Process("a", 1, batch, 2), e.CaughtUp("a")]
    assert task.on(e.RecordsArrived("a", 4, 3, batch)) == wanted


def test_a_sender_that_restarts_again_where_the_count_stands_sends_nothing_twice() -> None:
    task = Task("t", ["a"], [])
    task.on(e.RecordsArrived("a", 1, 5))
    task.on(e.PeersRestarted(2, 2, {"a": 2}))
    assert task.on(e.PeersRestarted(3, 2, {"a": 5})) == [e.CaughtUp("a")]
    with pytest.raises(e.ProtocolError, match="record 5 came on a, 6 was next"):
        task.on(e.RecordsArrived("a", 5, 1))


def test_an_epoch_that_waits_only_for_its_write_is_discarded_when_given_up() -> None:
    task = Task("t", ["a"], [])
    task.on(e.BarrierArrived("a", 1))
    assert task.on(e.Aborted(1)) == [e.Discard(1)]
    assert task.on(e.Persisted(1)) == []


def test_all_open_epochs_go_when_peers_restart() -> None:
    task = Task("t", ["a", "b"], [], ["b"])
    for epoch in (1, 2):
        task.on(e.BarrierArrived("a", epoch))
    assert task.on(e.PeersRestarted(2, 3, {})) == [e.Discard(1), e.Discard(2)]


def test_the_barrier_of_an_epoch_given_up_here_still_says_what_was_given_up_before() -> None:
    task = Task("t", ["a", "b"], [], policy=Policy.UNALIGNED)
    for epoch in (1, 2):
        task.on(e.BarrierArrived("a", epoch))
    assert task.on(e.Aborted(2)) == [e.Discard(2)]
    assert task.on(e.BarrierArrived("b", 2)) == [e.Discard(1)]


def test_a_new_coordinator_has_one_epoch_open_at_most_and_is_not_done() -> None:
    machine = coordinator()
    assert (machine.finished, machine.idle) == (False, False)
    assert machine.on(e.TriggerDue()) == [e.Trigger(1)]
    assert machine.on(e.TriggerDue()) == []


def test_an_epoch_that_is_due_stays_due_when_one_of_the_sources_ends() -> None:
    machine = Coordinator(["s", "t"], ["s", "t"], attempt=1, first_epoch=1)
    machine.on(e.TriggerDue())
    machine.on(e.TriggerDue())
    machine.on(e.SourceEnded("s"))
    machine.on(e.Acked("s", 1, 1))
    machine.on(e.Acked("t", 1, 1))
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Trigger(2)]


FREE = {
    "last_begun": False,
    "recovering": False,
    "open_epochs": 0,
    "max_concurrent": 2,
    "due": False,
    "draining": False,
}


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        ({}, NextEpoch.AFTER_INTERVAL),
        ({"open_epochs": 1}, NextEpoch.AFTER_INTERVAL),
        ({"open_epochs": 2}, NextEpoch.WHEN_ONE_IS_DECIDED),
        ({"draining": True}, NextEpoch.AFTER_PAUSE),
        ({"draining": True, "open_epochs": 1}, NextEpoch.WHEN_ONE_IS_DECIDED),
        ({"due": True}, NextEpoch.AT_ONCE),
        ({"due": True, "draining": True, "open_epochs": 1}, NextEpoch.AT_ONCE),
        ({"due": True, "draining": True, "open_epochs": 2}, NextEpoch.WHEN_ONE_IS_DECIDED),
        ({"due": True, "draining": True, "open_epochs": 2, "recovering": True}, NextEpoch.WHEN_RECOVERED),
        ({"due": True, "recovering": True, "last_begun": True}, NextEpoch.NEVER),
    ],
)
def test_the_next_epoch_begins_by_the_first_line_that_holds(facts: dict[str, bool | int], begins: NextEpoch) -> None:
    assert next_epoch(**{**FREE, **facts}) is begins  # type: ignore[arg-type]


def test_a_second_request_to_stop_changes_nothing() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    machine.on(e.StopRequested())
    machine.on(e.StopRequested())
    for task in ("s", "a"):
        machine.on(e.Acked(task, 1, 1))
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Trigger(2)]


def test_a_channel_that_is_not_replayed_cannot_catch_up() -> None:
    assert coordinator().on(e.ChannelCaughtUp("s->a", 1)) == []


def test_every_open_epoch_is_given_up_when_tasks_are_lost_or_a_later_one_is_complete() -> None:
    lost, complete = coordinator(max_concurrent=3), coordinator(max_concurrent=3)
    for _ in range(3):
        lost.on(e.TriggerDue())
        complete.on(e.TriggerDue())
    actions = lost.on(e.TasksLost(frozenset({"s"})))
    assert [a.epoch for a in actions if isinstance(a, e.Abort)] == [1, 2, 3]
    for task in ("s", "a"):
        complete.on(e.Acked(task, 3, 1))
    actions = complete.on(e.Stored(3))
    assert [a.epoch for a in actions if isinstance(a, e.Abort)] == [1, 2]


def test_a_lost_source_runs_again_and_the_others_are_as_they_were() -> None:
    def after_the_loss_of_s(*ended: str) -> Coordinator:
        machine = Coordinator(["s", "t", "a"], ["s", "t"], attempt=1, first_epoch=1)
        for task in ended:
            machine.on(e.SourceEnded(task))
        machine.on(e.TasksLost(frozenset({"s"})))
        for task in ("t", "a"):
            machine.on(e.Stopped(task, 2))
        machine.on(e.SourceEnded("s"))
        return machine

    assert not after_the_loss_of_s().draining
    assert after_the_loss_of_s("t").draining


@pytest.mark.parametrize("finished", [True, False])
def test_a_lost_source_is_waited_for_unless_it_had_ended_at_the_epoch_that_it_restarts_from(finished: bool) -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    machine.on(e.Acked("s", 1, 1, finished=finished))
    machine.on(e.SourceEnded("s"))
    assert machine.on(e.Acked("a", 1, 1, logged=1)) == [e.Store(1, False)]
    machine.on(e.Stored(1))
    assert machine.draining
    machine.on(e.TasksLost(frozenset({"s"})))
    assert e.Restart(2, frozenset({"s"}), 1) in machine.on(e.Stopped("a", 2))
    assert machine.draining is finished  # an ended source is not told twice that it has ended


@pytest.mark.parametrize(
    ("tasks", "said"),
    [(5, "a0, a1, a2, a3, a4"), (6, "a0, a1, a2, a3, a4 and 1 more"), (7, "a0, a1, a2, a3, a4 and 2 more")],
)
def test_an_epoch_that_times_out_names_some_of_the_missing(tasks: int, said: str) -> None:
    names = [f"a{i}" for i in range(tasks)]
    machine = Coordinator(names, [], attempt=1, first_epoch=1)
    assert machine.on(e.TriggerDue())[0] == e.Trigger(1)
    assert e.Abort(1, f"timed out, waiting for {said}") in machine.on(e.TimedOut(1))


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


@pytest.mark.parametrize("policy", ORDERED)
def test_an_epoch_that_another_input_has_gone_past_is_given_up_and_blocks_nothing(policy: Policy) -> None:
    """R7, where the later barrier came first: with `a` waiting in 2 and `b` in 1 neither would ever go on."""
    task = Task("t", ["a", "b"], ["o"], policy=policy)
    task.on(e.BarrierArrived("a", 2))
    assert task.on(e.BarrierArrived("b", 1)) == []
    assert "b" not in task.blocked
    assert task.on(e.RecordsArrived("b", 1, 3)) == [e.Process("b", 3, None, 0)]
    actions = task.on(e.BarrierArrived("b", 2))
    assert e.Copy(2) in actions
    assert e.Persist(2) in actions
    assert not task.blocked
