"""Schedules, what workers know of them, and the frames that are kept (the rules L of `abscli.protocol.schedule`)."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.protocol.causal import Knowledge, decode, encode, longest
from abscli.protocol.events import Aborted, BarrierArrived, ProtocolError, Triggered
from abscli.protocol.kept import KeptBarrier, KeptFrames, KeptRecords
from abscli.protocol.policy import Policy
from abscli.protocol.schedule import STEP_BYTES, Delta, Replay, Schedule, Step, StepKind
from abscli.protocol.task import Task
from formats.ids import ChannelId, TaskId

T, U, V = (TaskId(name, 0) for name in "tuv")
TU, UV = ChannelId(T, U), ChannelId(U, V)

steps = st.builds(
    Step, st.sampled_from(StepKind), st.integers(0, 2**32 - 1), st.integers(1, 2**64 - 1)
)  # fmt: skip


def records(count: int, channel: int = 0) -> Step:
    return Step(StepKind.RECORDS, channel, count)


def copied(epoch: int) -> Step:
    return Step(StepKind.COPIED, 0, epoch)


def schedule_of(*taken: Step, start: int = 0, line: int = 1) -> Schedule:
    schedule = Schedule(T, line, start)
    for step in taken:
        schedule.append(step)
    return schedule


# -- steps ----------------------------------------------------------------------------------------------------


@given(steps)
def test_a_step_is_read_as_it_was_written_in_16_bytes(step: Step) -> None:
    assert len(step.encode()) == STEP_BYTES == 16
    assert Step.decode(step.encode()) == step


@given(st.binary(max_size=20))
def test_bytes_are_a_step_or_are_refused(data: bytes) -> None:
    try:
        step = Step.decode(data)
    except ProtocolError:
        return
    assert Step.decode(step.encode()) == step


@pytest.mark.parametrize(("channel", "number"), [(-1, 1), (2**32, 1), (0, -1), (0, 2**64), (0, 0)])
def test_a_step_that_cannot_be_is_refused(channel: int, number: int) -> None:
    with pytest.raises(ProtocolError):
        Step(StepKind.RECORDS, channel, number)


# -- one schedule ---------------------------------------------------------------------------------------------


@given(st.lists(steps, max_size=12), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8))
def test_pieces_in_any_order_and_number_give_the_schedule_or_are_refused_for_a_gap(
    taken: list[Step], cuts: list[tuple[int, int]]
) -> None:
    whole = schedule_of(*taken, start=3)
    learned = Schedule(T, 1, 3)
    for first, count in cuts:
        full = whole.piece(3 + first)
        delta = Delta(T, 1, 3, full.at, full.steps[: count * STEP_BYTES]) if full.at <= whole.end else full
        before = learned.end
        if delta.at > learned.end:
            with pytest.raises(ProtocolError, match="or earlier of attempt 1, got position"):
                learned.merge(delta)
            continue
        assert learned.merge(delta) == (delta.end > before)
        assert not learned.merge(delta)
        assert learned.end == max(before, delta.end)
        assert list(learned.steps()) == taken[: learned.end - 3]


def test_two_different_steps_at_one_position_are_refused() -> None:
    schedule = schedule_of(records(1), records(2))
    message = "t/0: conflicting determinants at position 1 of attempt 1: "
    message += "expected 'records 2 of 0', got 'records 3 of 0'"
    with pytest.raises(ProtocolError, match=message):
        schedule.merge(schedule_of(records(1), records(3)).piece(0))


def test_a_new_line_replaces_an_older_one_and_nothing_is_believed_of_that() -> None:
    schedule = schedule_of(records(1), records(2), line=1)
    old = schedule.piece(0)
    assert schedule.merge(schedule_of(records(5), line=4).piece(0))
    assert not schedule.merge(old)
    assert (schedule.line, list(schedule.steps())) == (4, [records(5)])


def test_a_new_line_is_learned_from_its_beginning_only() -> None:
    with pytest.raises(ProtocolError, match="of attempt 2"):
        schedule_of(records(1)).merge(schedule_of(records(1), records(2), line=2).piece(1))


def test_a_complete_epoch_takes_away_what_is_before_its_copy() -> None:
    schedule = schedule_of(records(1), copied(1), records(2), copied(2), records(3))
    assert schedule.prune(1)
    assert (schedule.start, list(schedule.steps())) == (2, [records(2), copied(2), records(3)])
    assert not schedule.prune(1)
    assert not schedule.prune(7)


def test_a_mark_is_looked_for_at_the_places_of_steps_only() -> None:
    """The bytes of a mark can stand across two steps."""
    mark = copied(1).encode()
    for shift in range(1, STEP_BYTES):
        data = (mark[-shift:] + mark + mark)[:32] if shift else mark * 2
        schedule = Schedule(T, 1)
        schedule.merge(Delta(T, 1, 0, 0, data))
        place = next((i for i in (0, 16) if data[i : i + 16] == mark), None)
        assert schedule.prune(1) == (place is not None)


def test_a_piece_from_who_has_pruned_more_prunes_here_too() -> None:
    ahead = schedule_of(records(1), copied(1), records(2))
    behind = schedule_of(records(1))
    ahead.prune(1)
    assert behind.merge(ahead.piece(0))
    assert (behind.start, list(behind.steps())) == (2, [records(2)])


# -- taking steps again ---------------------------------------------------------------------------------------


def test_steps_are_taken_again_in_their_order() -> None:
    replay = Replay(schedule_of(records(1), records(2), records(3), start=4), 5)
    assert (replay.next, replay.left, replay.at) == (records(2), 2, 5)
    with pytest.raises(ProtocolError, match="step 5: expected 'records 2 of 0', got 'records 3 of 0'"):
        replay.taken(records(3))
    own = replay.copy()
    own.taken(records(2))
    assert (own.rest, replay.rest) == ((records(3),), (records(2), records(3)))
    replay.taken(records(2))
    replay.taken(records(3))
    assert (replay.next, replay.left, replay.at) == (None, 0, 7)


def test_steps_that_are_not_known_any_more_cannot_be_taken() -> None:
    with pytest.raises(ProtocolError, match="at least 4, where the determinant log begins"):
        Replay(schedule_of(start=4), 3)


@pytest.mark.parametrize("policy", Policy)
def test_what_was_heard_of_later_epochs_is_heard_again_without_harm(policy: Policy) -> None:
    """At least once, barrier 2 of a comes before the copy of 1, and epoch 3 is given up before it."""
    a, b = ChannelId(U, T), ChannelId(V, T)

    def fresh(first_epoch: int) -> Task:
        return Task(T, [a, b], [], policy=policy, first_epoch=first_epoch)

    task = fresh(1)
    task.on(Aborted(3))
    task.on(BarrierArrived(a, 1))
    if policy is Policy.AT_LEAST_ONCE:
        task.on(BarrierArrived(a, 2))
    task.on(BarrierArrived(b, 1))
    again = task.ahead()
    assert again == [Aborted(3)] + [BarrierArrived(a, 2)] * (policy is Policy.AT_LEAST_ONCE)
    restored = fresh(2)
    for machine in (restored, task):
        for event in again:
            machine.on(event)
    assert restored.ahead() == task.ahead() == again
    rest = [BarrierArrived(c, e) for e in (2, 3, 4) for c in (a, b) if BarrierArrived(c, e) not in again]
    if policy is Policy.UNALIGNED:
        task.on(BarrierArrived(a, 1)) if a in task.awaits(1) else None
    assert [restored.on(event) for event in rest] == [task.on(event) for event in rest]


def test_a_source_has_heard_of_nothing_but_aborts() -> None:
    source = Task(T, [], [])
    source.on(Aborted(2))
    source.on(Triggered(1))
    assert source.ahead() == [Aborted(2)]


# -- what workers know ----------------------------------------------------------------------------------------


def test_what_is_said_on_a_connection_is_said_once() -> None:
    mine, other = Knowledge(), Knowledge()
    mine.begin(T, 1)
    mine.connect("c")
    mine.record(T, records(1))
    first = mine.news("c")
    assert [(delta.at, delta.end) for delta in first] == [(0, 1)]
    assert mine.news("c") == ()
    mine.record(T, records(2))
    second = mine.news("c")
    assert [(delta.at, delta.end) for delta in second] == [(1, 2)]
    other.merge(first)
    other.merge(second)
    assert other.report() == mine.report()


def test_a_connection_that_begins_anew_has_been_told_nothing() -> None:
    mine = Knowledge()
    mine.begin(T, 1)
    mine.connect("c")
    mine.record(T, records(1))
    first = mine.news("c")
    mine.connect("c")
    assert mine.news("c") == first


def test_a_frame_that_was_left_out_is_noticed() -> None:
    mine, other = Knowledge(), Knowledge()
    mine.begin(T, 1)
    mine.connect("c")
    mine.record(T, records(1))
    mine.news("c")
    mine.record(T, records(2))
    with pytest.raises(ProtocolError, match="expected the first determinants from position 0, got position 1"):
        other.merge(mine.news("c"))


def test_what_is_known_of_others_is_said_too() -> None:
    first, second, third = Knowledge(), Knowledge(), Knowledge()
    first.begin(T, 1)
    second.begin(U, 1)
    first.connect("c")
    second.connect("d")
    first.record(T, records(1))
    second.merge(first.news("c"))
    second.record(U, records(1))
    third.merge(second.news("d"))
    assert third.report() == second.report()
    assert {delta.task for delta in third.report()} == {T, U}


def test_a_void_schedule_is_forgotten_and_comes_back_from_nobody() -> None:
    mine, other = Knowledge(), Knowledge()
    mine.begin(T, 1)
    mine.record(T, records(1))
    old = mine.report()
    other.merge(old)
    other.connect("c")
    other.void([T], line=2)
    other.merge(old)
    assert other.report() == (Delta(T, 2, 0, 0),)
    assert other.news("c") == other.report()
    mine.begin(T, 2, position=7)
    mine.record(T, records(3))
    other.merge(mine.report())
    assert other.report() == mine.report()


def test_the_longest_schedule_of_the_newest_line_is_taken() -> None:
    short, long = schedule_of(records(1)), schedule_of(records(1), records(2))
    later = schedule_of(records(9), line=2)
    assert longest([[short.piece(0)], [long.piece(0)], []]) == (long.piece(0),)
    assert longest([[later.piece(0)], [long.piece(0)]]) == (later.piece(0),)


def test_a_task_starts_where_its_copy_was_made() -> None:
    mine = Knowledge()
    mine.merge([schedule_of(records(1), copied(1), records(2)).piece(0)])
    assert mine.resume(T, 1, 2).next == records(2)
    assert mine.resume(T, 1, 5).next is None
    again = mine.schedule(T)
    assert again is not None
    assert (again.line, again.start, again.end) == (1, 5, 5)
    assert mine.resume(T, 3, 0).next is None
    assert mine.report() == (Delta(T, 3, 0, 0),)


pieces = st.builds(
    lambda task, line, start, more, taken: Delta(
        task, line, start, start + more, b"".join(step.encode() for step in taken)
    ),
    st.sampled_from([T, U, V]), st.integers(0, 2**64 - 1), st.integers(0, 2**60), st.integers(0, 5),
    st.lists(steps, max_size=4),
)  # fmt: skip


@given(st.lists(pieces, max_size=5))
def test_pieces_are_read_as_they_were_written(deltas: list[Delta]) -> None:
    data = encode(deltas, {T: 0, U: 1, V: 2})
    assert decode(data, [T, U, V]) == tuple(deltas)
    for end in range(len(data)):
        try:
            assert len(decode(data[:end], [T, U, V])) < len(deltas)
        except ProtocolError:
            continue


@given(st.binary(max_size=80))
def test_bytes_are_pieces_or_are_refused(data: bytes) -> None:
    try:
        deltas = decode(data, [T, U, V])
    except ProtocolError:
        return
    assert encode(deltas, {T: 0, U: 1, V: 2}) == data


WORKERS = 4
moves = st.one_of(
    st.tuples(st.just("step"), st.integers(0, WORKERS - 1), st.just(0)),
    st.tuples(st.just("send"), st.integers(0, WORKERS - 1), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("arrive"), st.integers(0, WORKERS - 1), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("arrive"), st.integers(0, WORKERS - 1), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("reconnect"), st.integers(0, WORKERS - 1), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("complete"), st.integers(0, WORKERS - 1), st.just(0)),
)


@given(st.lists(moves, max_size=80))
def test_who_has_taken_a_frame_knows_every_step_that_it_rests_on(todo: list[tuple[str, int, int]]) -> None:
    """Causes, kept apart from knowledge: of each worker, how many steps of each task its state rests on."""
    tasks = [TaskId("t", i) for i in range(WORKERS)]
    workers = [Knowledge() for _ in tasks]
    rests = [[0] * WORKERS for _ in tasks]
    flying: dict[tuple[int, int], deque[tuple[tuple[Delta, ...], list[int]]]] = {}
    for number, worker in enumerate(workers):
        worker.begin(tasks[number], 1)
        for other in range(WORKERS):
            worker.connect(other)
            flying[number, other] = deque()

    def take(number: int, step: Step) -> None:
        workers[number].record(tasks[number], step)
        rests[number][number] += 1

    for move, one, other in todo:
        match move:
            case "step":
                take(one, records(1 + rests[one][one]))
            case "send" if one != other:
                flying[one, other].append((workers[one].news(other), list(rests[one])))
            case "arrive" if flying[one, other]:
                deltas, causes = flying[one, other].popleft()
                workers[other].merge(deltas)
                rests[other] = [max(pair) for pair in zip(rests[other], causes, strict=True)]
                take(other, records(1, channel=one))
            case "reconnect":
                workers[one].connect(other)
                flying[one, other].clear()
            case "complete":
                take(one, copied(rests[one][one]))
                workers[one].complete(rests[one][one] - 1)
        for worker, causes in zip(workers, rests, strict=True):
            for task, count in zip(tasks, causes, strict=True):
                schedule = worker.schedule(task)
                assert count == 0 or (schedule is not None and schedule.end >= count)


# -- kept frames ----------------------------------------------------------------------------------------------


def test_what_was_sent_behind_the_barrier_of_a_complete_epoch_is_kept() -> None:
    kept = KeptFrames()
    kept.begin(TU, 0)
    kept.records(TU, 1, 2, 10, "a")
    kept.barrier(TU, 1)
    kept.records(TU, 3, 1, 5, "b")
    kept.barrier(TU, 2)
    assert kept.behind(TU, 0) == [
        KeptRecords(1, 2, 10, "a"), KeptBarrier(1), KeptRecords(3, 1, 5, "b"), KeptBarrier(2)
    ]  # fmt: skip
    kept.complete(1)
    assert (kept.size, kept.behind(TU, 1)) == (5, [KeptRecords(3, 1, 5, "b"), KeptBarrier(2)])
    assert kept.holes(1) == []
    assert kept.holes(0) == [TU]
    assert kept.behind(TU, 2) == []
    kept.complete(7)
    assert kept.size == 5


def test_past_the_bound_nothing_is_kept_before_the_next_barrier() -> None:
    kept = KeptFrames(bound=10)
    kept.begin(TU, 0)
    kept.begin(UV, 0)
    assert kept.records(UV, 1, 1, 4)
    assert kept.records(TU, 1, 1, 6)
    assert not kept.records(TU, 2, 1, 1)
    assert kept.size == 0
    assert kept.holes(0) == [TU, UV]
    assert kept.holes(0, [TU]) == [TU]
    assert kept.records(TU, 3, 1, 9), "what is not kept is not too much"
    kept.barrier(TU, 1)
    kept.records(TU, 4, 1, 1)
    kept.barrier(UV, 1)
    assert kept.holes(0) == [TU, UV]
    assert kept.holes(1) == []
    assert kept.behind(TU, 1) == [KeptRecords(4, 1, 1)]


def test_a_channel_that_begins_again_keeps_nothing_of_before() -> None:
    kept = KeptFrames()
    kept.begin(TU, 0)
    kept.records(TU, 1, 1, 4)
    kept.begin(TU, 3)
    assert (kept.size, kept.behind(TU, 3), kept.holes(3)) == (0, [], [])


sends = st.lists(st.one_of(st.integers(1, 4), st.none(), st.just("complete")), max_size=40)


@given(sends, st.one_of(st.none(), st.integers(0, 12)))
def test_where_there_is_no_hole_nothing_is_missing(todo: list[object], bound: int | None) -> None:
    kept = KeptFrames(bound)
    kept.begin(TU, 0)
    sent: list[int | str] = []
    epoch = complete = 0
    for move in todo:
        if isinstance(move, int):
            kept.records(TU, 1 + sum(n for n in sent if isinstance(n, int)), move, move)
            sent.append(move)
        elif move is None:
            epoch += 1
            kept.barrier(TU, epoch)
            sent.append(f"barrier {epoch}")
        elif complete < epoch:
            complete += 1
            kept.complete(complete)
        assert bound is None or kept.size <= bound
        if bound is None:
            assert not kept.holes(complete)
        for base in range(complete, epoch + 1):
            if not kept.holes(base):
                behind = sent[sent.index(f"barrier {base}") + 1 :] if base else sent
                assert behind == [
                    frame.count if isinstance(frame, KeptRecords) else f"barrier {frame.epoch}"
                    for frame in kept.behind(TU, base)
                ]
