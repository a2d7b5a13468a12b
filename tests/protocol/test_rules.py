"""A driver that breaks the rules of the protocol is told so at once: it is a bug, never a fault of the user."""

from __future__ import annotations

import pytest

from abscli.protocol import events as e
from abscli.protocol.coordinator import Coordinator, NextEpoch, next_epoch
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.protocol.turns import BACK_EDGE_TURNS, Turns
from formats.ids import ChannelId, TaskId

S, T, U, STRANGER = (TaskId(name, 0) for name in "stux")
A, B, C, X = (ChannelId(TaskId(name, 0), T) for name in "abcx")
OUT, OF_S = ChannelId(T, U), ChannelId(S, U)
ORDERED = (Policy.ALIGNED, Policy.AT_LEAST_ONCE)


def coordinator(**more: int) -> Coordinator:
    return Coordinator([S, U], [S], attempt=1, first_epoch=1, **more)


def test_back_edges_are_inputs() -> None:
    with pytest.raises(e.ProtocolError, match=r"t/0: back edges b/0->t/0 are not inputs"):
        Task(T, [A], [], [B])


@pytest.mark.parametrize("policy", ORDERED)
def test_a_task_whose_inputs_are_all_back_edges_would_never_copy(policy: Policy) -> None:
    with pytest.raises(e.ProtocolError, match="t/0: no regular input"):
        Task(T, [A], [], [A], policy=policy)
    assert Task(T, [A], [], [A], policy=Policy.UNALIGNED).logged == {A}


@pytest.mark.parametrize("policy", ORDERED)
def test_only_sources_are_triggered_unless_any_task_may_be(policy: Policy) -> None:
    with pytest.raises(e.ProtocolError, match="t/0: unexpected trigger: only sources can be triggered"):
        Task(T, [A], [], policy=policy).on(e.Triggered(1))


def test_only_sources_end() -> None:
    with pytest.raises(e.ProtocolError, match="t/0: unexpected end of input: only sources can end"):
        Task(T, [A], []).on(e.EndOfInput())


def test_a_channel_that_is_not_there_delivers_nothing() -> None:
    for event in (e.RecordsArrived(X, 1, 1), e.BarrierArrived(X, 1)):
        with pytest.raises(e.ProtocolError, match="t/0: x/0->t/0 is not an input"):
            Task(T, [A], []).on(event)


def test_a_barrier_comes_once_on_a_channel() -> None:
    task = Task(T, [A, B, C], [], [B, C])
    task.on(e.BarrierArrived(A, 1))
    task.on(e.BarrierArrived(B, 1))
    with pytest.raises(e.ProtocolError, match="t/0: unexpected barrier 1 on b/0->t/0"):
        task.on(e.BarrierArrived(B, 1))


@pytest.mark.parametrize(("first", "count"), [(1, 0), (0, 1), (1, -1)])
def test_a_batch_has_records_and_they_have_numbers(first: int, count: int) -> None:
    message = f"a/0->t/0: invalid batch of {count} records that begins with record {first}"
    with pytest.raises(e.ProtocolError, match=message):
        e.RecordsArrived(A, first, count)


def test_sources_are_tasks_and_there_are_some() -> None:
    message = r"^every source must be a task, and there must be at least one task$"
    for tasks, sources in (([U], [S]), ([], [])):
        with pytest.raises(e.ProtocolError, match=message):
            Coordinator(tasks, sources, attempt=1, first_epoch=1)


def test_only_tasks_of_the_job_ack() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    with pytest.raises(e.ProtocolError, match="ack of epoch 1 from x/0"):
        machine.on(e.Acked(STRANGER, 1, 1))


def test_only_what_is_being_stored_is_stored() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    with pytest.raises(e.ProtocolError, match="unexpected completion of epoch 1, which was not being stored"):
        machine.on(e.Stored(1))


def test_a_coordinator_that_has_finished_answers_nothing() -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    for task in (S, U):
        machine.on(e.Acked(task, 1, 1, finished=task == S))
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Finish()]
    assert machine.idle
    assert machine.on(e.TriggerDue()) == machine.on(e.StopRequested()) == []


def test_a_task_counts_what_it_sends_and_remembers_its_end() -> None:
    source = Task(S, [], [OF_S], first_epoch=5)
    assert (source.sent, source.finished, source.copied) == ({OF_S: 0}, False, 4)
    source.on(e.Sent(OF_S, 2))
    source.on(e.Sent(OF_S, 3))
    source.on(e.EndOfInput())
    assert source.sent == {OF_S: 5}
    assert source.finished is True
    assert Task(S, [], [OF_S], finished=True).finished is True


def test_a_batch_is_logged_and_processed_without_what_is_known() -> None:
    task, batch = Task(T, [A, B], [], policy=Policy.UNALIGNED), object()
    assert task.on(e.RecordsArrived(A, 1, 5, batch)) == [e.Process(A, 5, batch, 0)]
    task.on(e.PeersRestarted(2, 2, {A: 2}))
    assert task.copied == 1
    task.on(e.BarrierArrived(B, 2))
    wanted = [e.Log(A, (2,), 1, batch, 2), e.Process(A, 1, batch, 2), e.CaughtUp(A)]
    assert task.on(e.RecordsArrived(A, 4, 3, batch)) == wanted


def test_a_sender_that_restarts_again_where_the_count_stands_sends_nothing_twice() -> None:
    task = Task(T, [A], [])
    task.on(e.RecordsArrived(A, 1, 5))
    task.on(e.PeersRestarted(2, 2, {A: 2}))
    assert task.on(e.PeersRestarted(3, 2, {A: 5})) == [e.CaughtUp(A)]
    with pytest.raises(e.ProtocolError, match="expected record 6 on a/0->t/0, got record 5"):
        task.on(e.RecordsArrived(A, 5, 1))


def test_an_epoch_that_waits_only_for_its_write_is_discarded_when_given_up() -> None:
    task = Task(T, [A], [])
    task.on(e.BarrierArrived(A, 1))
    assert task.on(e.Aborted(1)) == [e.Discard(1)]
    assert task.on(e.Persisted(1)) == []


def test_all_open_epochs_go_when_peers_restart() -> None:
    task = Task(T, [A, B], [], [B])
    for epoch in (1, 2):
        task.on(e.BarrierArrived(A, epoch))
    assert task.on(e.PeersRestarted(2, 3, {})) == [e.Discard(1), e.Discard(2)]


def test_the_barrier_of_an_epoch_given_up_here_still_says_what_was_given_up_before() -> None:
    task = Task(T, [A, B], [], policy=Policy.UNALIGNED)
    for epoch in (1, 2):
        task.on(e.BarrierArrived(A, epoch))
    assert task.on(e.Aborted(2)) == [e.Discard(2)]
    assert task.on(e.BarrierArrived(B, 2)) == [e.Discard(1)]


def test_a_new_coordinator_has_one_epoch_open_at_most_and_is_not_done() -> None:
    machine = coordinator()
    assert (machine.finished, machine.idle) == (False, False)
    assert machine.on(e.TriggerDue()) == [e.Trigger(1)]
    assert machine.on(e.TriggerDue()) == []


def test_an_epoch_that_is_due_stays_due_when_one_of_the_sources_ends() -> None:
    machine = Coordinator([S, T], [S, T], attempt=1, first_epoch=1)
    machine.on(e.TriggerDue())
    machine.on(e.TriggerDue())
    machine.on(e.SourceEnded(S))
    machine.on(e.Acked(S, 1, 1))
    machine.on(e.Acked(T, 1, 1))
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
    for task in (S, U):
        machine.on(e.Acked(task, 1, 1))
    assert machine.on(e.Stored(1)) == [e.Complete(1), e.Trigger(2)]


def test_a_channel_that_is_not_replayed_cannot_catch_up() -> None:
    assert coordinator().on(e.ChannelCaughtUp(ChannelId(S, U), 1)) == []


def test_every_open_epoch_is_given_up_when_tasks_are_lost_or_a_later_one_is_complete() -> None:
    lost, complete = coordinator(max_concurrent=3), coordinator(max_concurrent=3)
    for _ in range(3):
        lost.on(e.TriggerDue())
        complete.on(e.TriggerDue())
    actions = lost.on(e.TasksLost(frozenset({S})))
    assert [a.epoch for a in actions if isinstance(a, e.Abort)] == [1, 2, 3]
    for task in (S, U):
        complete.on(e.Acked(task, 3, 1))
    actions = complete.on(e.Stored(3))
    assert [a.epoch for a in actions if isinstance(a, e.Abort)] == [1, 2]


def test_a_lost_source_runs_again_and_the_others_are_as_they_were() -> None:
    def after_the_loss_of_s(*ended: TaskId) -> Coordinator:
        machine = Coordinator([S, T, U], [S, T], attempt=1, first_epoch=1)
        for task in ended:
            machine.on(e.SourceEnded(task))
        machine.on(e.TasksLost(frozenset({S})))
        for task in (T, U):
            machine.on(e.Stopped(task, 2))
        machine.on(e.SourceEnded(S))
        return machine

    assert not after_the_loss_of_s().draining
    assert after_the_loss_of_s(T).draining


@pytest.mark.parametrize("finished", [True, False])
def test_a_lost_source_is_waited_for_unless_it_had_ended_at_the_epoch_that_it_restarts_from(finished: bool) -> None:
    machine = coordinator()
    machine.on(e.TriggerDue())
    machine.on(e.Acked(S, 1, 1, finished=finished))
    machine.on(e.SourceEnded(S))
    assert machine.on(e.Acked(U, 1, 1, logged=1)) == [e.Store(1, False)]
    machine.on(e.Stored(1))
    assert machine.draining
    machine.on(e.TasksLost(frozenset({S})))
    assert e.Restart(2, frozenset({S}), 1) in machine.on(e.Stopped(U, 2))
    assert machine.draining is finished  # an ended source is not told twice that it has ended


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (5, "a/0, a/1, a/2, a/3, a/4"),
        (6, "a/0, a/1, a/2, a/3, a/4 and 1 more"),
        (7, "a/0, a/1, a/2, a/3, a/4 and 2 more"),
    ],
)
def test_an_epoch_that_times_out_names_some_of_the_missing(tasks: int, said: str) -> None:
    machine = Coordinator([TaskId("a", i) for i in range(tasks)], [], attempt=1, first_epoch=1)
    assert machine.on(e.TriggerDue())[0] == e.Trigger(1)
    assert e.Abort(1, f"timed out, waiting for {said}") in machine.on(e.TimedOut(1))


def test_manifests_are_written_one_at_a_time_in_order() -> None:
    machine = coordinator(max_concurrent=3)
    for _ in range(3):
        machine.on(e.TriggerDue())
    for epoch in (2, 1, 3):
        machine.on(e.Acked(S, epoch, 1))
    assert machine.on(e.Acked(U, 1, 1)) == [e.Store(1, False)]
    assert machine.on(e.Acked(U, 2, 1)) == machine.on(e.Acked(U, 3, 1)) == []
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
    task = Task(T, [A, B], [OUT], policy=policy)
    task.on(e.BarrierArrived(A, 2))
    assert task.on(e.BarrierArrived(B, 1)) == []
    assert B not in task.blocked
    assert task.on(e.RecordsArrived(B, 1, 3)) == [e.Process(B, 3, None, 0)]
    actions = task.on(e.BarrierArrived(B, 2))
    assert e.Copy(2) in actions
    assert e.Persist(2) in actions
    assert not task.blocked
