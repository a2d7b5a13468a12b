"""What follows from the loss of workers: the set that restarts is the planner's, and restarts are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abscli.engine.errors import EngineStopped, JobFailed, RaisedAt
from abscli.engine.losses.decisions import (
    LONGEST_PAUSE,
    WITHIN_EPOCHS,
    Loss,
    Restarts,
    Scope,
    all_tasks,
    by_operator,
    everything,
    merged,
    of_worker,
    reads_in_vain,
    restarting,
    texts,
)
from abscli.planner.placement import subtasks_of, worker_of
from abscli.planner.plan import plan_partial
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology
from tests.support.jobs.kills import fan, pipelines, spread
from tests.support.jobs.small import reach, word_count

JOBS = {"words": word_count(4), "reach": reach(3), "fan": fan(), "pipelines": pipelines(3)}


@pytest.mark.parametrize("job", JOBS)
@given(workers=st.integers(1, 5), data=st.data())
def test_the_engine_restarts_what_the_planner_prints(job: str, workers: int, data: st.DataObject) -> None:
    topology = JOBS[job]
    lost = data.draw(st.sets(st.integers(0, workers - 1), min_size=1))
    dead = sorted(all_tasks(subtasks_of(topology, lost, workers)))
    if not dead:  # more workers than any operator has tasks
        return
    plan = plan_partial(topology, dead)
    restart = restarting(topology, lost, workers, Scope.SUBGRAPH, epoch=3)
    printed: dict[str, str] = {}
    for row in plan.restart:
        printed[row.operator] = ",".join(filter(None, [printed.get(row.operator), row.subtasks]))
    assert {id: str(numbers) for id, numbers in restart.subtasks.items()} == texts(restart.subtasks)
    assert {id: len(set(numbers)) for id, numbers in restart.subtasks.items()} == {
        id: sum(_count(span) for span in text.split(",")) for id, text in printed.items()
    }
    assert plan.untouched == sum(op.parallelism for op in topology.operators) - len(all_tasks(restart.subtasks))


def _count(span: str) -> int:
    first, _, last = span.partition("-")
    return int(last or first) - int(first) + 1


@pytest.mark.parametrize(
    ("topology", "unresponsive", "scope", "epoch", "in_vain"),
    [
        pytest.param(spread("shuffle", 2, 2), [1], Scope.SUBGRAPH, 3, True, id="all sources send to a failed task"),
        pytest.param(pipelines(), [1], Scope.SUBGRAPH, 3, False, id="a pipeline on another worker is unaffected"),
        pytest.param(pipelines(), [0, 1], Scope.SUBGRAPH, 3, True, id="all pipelines"),
        pytest.param(pipelines(), [1], Scope.FULL, 3, True, id="full recovery"),
        pytest.param(spread("shuffle", 2, 2), [1], Scope.LOCAL, 3, False, id="local recovery keeps other tasks"),
        pytest.param(spread("shuffle", 2, 2), [1], Scope.LOCAL, 0, True, id="no complete epoch"),
        pytest.param(spread("shuffle", 2, 2), [], Scope.FULL, 0, False, id="every worker answers"),
    ],
)  # fmt: skip
def test_records_are_read_in_vain_if_a_failure_would_restart_every_source(
    topology: Topology, unresponsive: list[int], scope: Scope, epoch: int, in_vain: bool
) -> None:
    assert reads_in_vain(topology, unresponsive, 2, scope, epoch) == in_vain


@pytest.mark.parametrize("job", JOBS)
@given(workers=st.integers(1, 5))
def test_every_task_is_on_one_worker(job: str, workers: int) -> None:
    topology = JOBS[job]
    tasks = [task for number in range(workers) for task in all_tasks(subtasks_of(topology, [number], workers))]
    assert sorted(tasks) == sorted(all_tasks(everything(topology)))
    assert all(task in all_tasks(subtasks_of(topology, [worker_of(task.subtask, workers)], workers)) for task in tasks)


def test_a_worker_that_is_not_there_has_no_tasks() -> None:
    with pytest.raises(ValueError, match=r"invalid worker numbers \[2\]: expected numbers from 0 to 1"):
        subtasks_of(word_count(), [2], 2)


def test_receivers_that_go_on_drop_what_comes_again() -> None:
    restart = restarting(fan(), [0], 2, Scope.SUBGRAPH, epoch=3)
    assert texts(restart.subtasks) == {"rows": "0", "same": "0", "counts": "0", "out": "0"}
    assert restart.replayed == {ChannelId(TaskId("same", 0), TaskId("counts", 1))}


def test_from_the_beginning_and_in_full_everything_restarts() -> None:
    for scope, epoch in ((Scope.SUBGRAPH, 0), (Scope.FULL, 3)):
        restart = restarting(pipelines(), [1], 2, scope, epoch)
        assert (restart.subtasks, restart.replayed) == (everything(pipelines()), frozenset())


SOME_TASKS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)))


@given(SOME_TASKS, SOME_TASKS)
def test_sets_of_tasks_are_merged(some: list[tuple[str, int]], more: list[tuple[str, int]]) -> None:
    topology = pipelines()
    names = {"a": "rows", "b": "out"}
    one = by_operator([TaskId(names[op], i) for op, i in some], topology)
    other = by_operator([TaskId(names[op], i) for op, i in more], topology)
    assert all_tasks(merged(one, other)) == all_tasks(one) | all_tasks(other)


def test_a_workers_share_of_a_set() -> None:
    subtasks = by_operator([TaskId("counts", i) for i in (0, 1, 3)], word_count(4))
    assert texts(of_worker(subtasks, 1, word_count(4), 2)) == {"counts": "1,3"}
    assert of_worker(subtasks, 2, word_count(4), 4) == {}


# -- how often ------------------------------------------------------------------------------------------------


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    restarts = Restarts(4)
    assert [restarts.pause(5) for _ in range(5)] == [0.0, 0.25, 0.5, 1.0, None]


def test_a_job_that_has_come_far_since_may_restart_again() -> None:
    restarts = Restarts(1)
    assert restarts.pause(2) == 0.0
    assert restarts.pause(2 + WITHIN_EPOCHS - 1) is None
    assert restarts.pause(2 + WITHIN_EPOCHS) == 0.0


def test_no_restarts_means_none() -> None:
    assert Restarts(0).pause(100) is None


@given(most=st.integers(1, 200), steps=st.lists(st.integers(0, 12), min_size=1, max_size=300))
def test_within_ten_epochs_there_are_never_more_than_allowed(most: int, steps: list[int]) -> None:
    restarts, epochs, granted = Restarts(most), 0, []
    for step in steps:
        epochs += step
        pause = restarts.pause(epochs)
        recent = [at for at in granted if epochs - at < WITHIN_EPOCHS]
        assert (pause is None) == (len(recent) >= most)
        if pause is not None:
            assert 0 <= pause <= LONGEST_PAUSE
            granted.append(epochs)


def test_a_function_that_raises_at_the_same_record_again_always_will() -> None:
    restarts = Restarts(3)
    at = RaisedAt(TaskId("counts", 1), "{'word': 'x'}")
    assert not restarts.raised_again(at, 4)
    assert not restarts.raised_again(RaisedAt(TaskId("counts", 0), at.row), 4)
    assert restarts.raised_again(at, 5)


def test_long_after_it_may_have_passed() -> None:
    restarts = Restarts(3)
    at = RaisedAt(TaskId("counts", 1), "{'word': 'x'}")
    assert not restarts.raised_again(at, 4)
    assert not restarts.raised_again(at, 4 + WITHIN_EPOCHS)


def test_what_ends_the_job_is_the_function_that_raised_or_the_loss_itself() -> None:
    lost = Loss("worker 1 was lost", EngineStopped("worker 1 was lost", hint="go on"))
    raised = Loss("it raised", JobFailed("it raised"))
    assert Restarts(3).exhausted({1: lost, 0: raised}) is raised.error
    assert Restarts(0).exhausted({1: lost}) is lost.error
    error = Restarts(2).exhausted({1: lost})
    assert isinstance(error, EngineStopped)
    assert error.message == (
        "worker 1 was lost; tasks have been restarted 2 times within 10 epochs, which is as often as --restarts allows"
    )
    assert error.hint == "go on"
