"""A worker is lost, and its tasks alone restart and take the same steps again: every result is exact, and where it
could not be, everything restarts, with the reason (rules L of `abscli.protocol.schedule`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abscli.engine.channels import peers
from abscli.engine.coordinator import Progress
from abscli.engine.errors import UsageError
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.engine.local import repeating, room
from abscli.engine.local.places import Places
from abscli.engine.losses.decisions import alone, by_operator, texts
from abscli.engine.telemetry.news import FramesLetGo, Recovered, Recovering
from abscli.sim.traces import check_traces
from formats.ids import ChannelId, TaskId
from formats.job.expand import task_ids
from formats.native.schedules import TakenStep, read_steps
from formats.storage import LocalStorage
from formats.view import Status
from formats.watermark import END
from tests.engine.recovering.alone import check_alone, local, planned, widened
from tests.engine.recovering.test_live import STORE, on_spark, store, survive
from tests.support.commands import result_of, run_command
from tests.support.jobs.kills import (
    Due,
    Kills,
    after,
    check_counted,
    check_rows,
    fan,
    in_event_time,
    pipelines,
    spread,
    write_rows,
)
from tests.support.jobs.small import (
    countdown,
    inline,
    last_counts,
    open_gate,
    output_pairs,
    output_rows,
    reach,
    write_countdown,
    write_graph,
)

pytestmark = pytest.mark.minutes

# -- it alone -------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_behind_a_shuffle_every_row_counts_once(tmp_path: Path, policy: str, lost: int) -> None:
    counts = write_rows(tmp_path)
    options = inline(tmp_path, policy=policy, **local)
    _, (recovery,) = survive(fan(), tmp_path, options, [(after(2, open_epoch=True), [lost])])
    check_alone(recovery, fan(), lost)
    check_counted(tmp_path, counts)


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_barriers_that_come_again_have_the_watermarks_that_they_had(tmp_path: Path, policy: str) -> None:
    """What comes again is dropped by number, barriers too; the tasks behind them go on with theirs."""
    write_rows(tmp_path)
    topology = in_event_time(fan("epoch"), tmp_path)
    options = inline(tmp_path, policy=policy, keep=None, trace=str(tmp_path / "trace.jsonl"), **local)
    moments = [(after(2, open_epoch=True), [0]), (after(4, open_epoch=True), [1])]
    _, recoveries = survive(topology, tmp_path, options, moments)
    assert all(recovery.again is not None for recovery in recoveries)
    assert check_traces([str(tmp_path / "trace.jsonl")]).first is None
    kept = store(tmp_path)
    complete = [row.epoch for row in kept.epochs() if row.status is Status.COMPLETE]
    before: dict[TaskId, int] = {}
    for part in (part for epoch in sorted(complete) for part in kept.parts(epoch)):
        if part.watermark is not None:
            assert part.watermark >= before.get(part.task, part.watermark)
            before[part.task] = part.watermark
    assert before == dict.fromkeys(task_ids(topology), END)


@pytest.mark.sample(1)
@pytest.mark.parametrize("emit", ["epoch", "batch"])
def test_what_is_put_out_at_a_barrier_or_a_batch_is_put_out_again(tmp_path: Path, emit: str) -> None:
    """Receivers have half of it: epochs that were given up, and the ends of batches, have to be where they were."""
    counts = write_rows(tmp_path)
    options = inline(tmp_path, max_concurrent=2, interval=0.03, **local)
    moments = [(after(2, open_epoch=True), [1]), (after(4, open_epoch=True), [0])]
    _, recoveries = survive(fan(emit), tmp_path, options, moments)
    assert all(recovery.again is not None for recovery in recoveries)
    rows = [(str(row["key"]), int(str(row["n"]))) for row in output_rows(tmp_path)]
    assert len(rows) == len(set(rows))
    assert {key: max(n for k, n in rows if k == key) for key, _ in rows} == counts


@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_of_pairs_is_exact(tmp_path: Path, policy: str) -> None:
    pairs = write_graph(tmp_path, turning=True)
    options = inline(tmp_path, policy=policy, **local)
    _, (recovery,) = survive(reach(), tmp_path, options, [(after(2, open_epoch=True), [1])])
    check_alone(recovery, reach(), 1)
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_with_a_rebalance_is_exact(tmp_path: Path, policy: str, lost: int) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    options = inline(tmp_path, policy=policy, **local)
    _, (recovery,) = survive(countdown(), tmp_path, options, [(after(2, open_epoch=True), [lost])])
    check_alone(recovery, countdown(), lost)
    assert last_counts(tmp_path, "id") == counts


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    options = inline(tmp_path, policy="at-least-once", **local)
    kills = Kills([(after(2, open_epoch=True), [0])], tmp_path)
    plans: list[dict[str, str]] = []

    def news(event: Any) -> None:
        kills.news(event)
        if isinstance(event, Recovering):
            plans.append(planned(tmp_path, 0))

    assert run_job(countdown(), str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=news).finished
    (recovery,) = kills.recoveries
    assert plans[-1] == texts(recovery.subtasks)
    if recovery.again is None:
        assert "sent behind it, both are lost" in recovery.cause
        assert all(last_counts(tmp_path, "id")[id] >= count for id, count in counts.items())
    else:
        check_alone(recovery, countdown(), 0)
        # Nobody goes back, so nothing repeats either.
        assert last_counts(tmp_path, "id") == counts


def test_two_tasks_do_not_restart_alone_where_the_copy_of_one_holds_what_the_other_sent_behind_its_own() -> None:
    """At least once; what the sender puts out now under these numbers would be dropped, and may be something else."""

    def why_not(*lost: TaskId) -> str | None:
        chosen = alone(topology, by_operator(lost, topology), 3, places.ahead)
        return chosen if isinstance(chosen, str) else None

    topology = fan()
    sender, receiver = TaskId("rows", 0), TaskId("counts", 1)
    channel = ChannelId(sender, receiver)
    places = Places(topology, attempt=1)
    for task in task_ids(topology):
        sent, received = {sender: [(channel, 7)]}.get(task, []), {receiver: [(channel, 9)]}.get(task, [])
        places.acked(task, 3, (1, 20), sent, received)
    places.complete(3)
    assert why_not(sender, receiver) == f"task {receiver} has in epoch 3 what {sender} sent behind it, both are lost"
    assert why_not(sender) is None
    assert why_not(receiver) is None
    places.restart(2)
    assert why_not(sender, receiver) is None


def test_the_store_tells_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_countdown(tmp_path, files=10, turning=True)
    _, (recovery,) = survive(countdown(), tmp_path, inline(tmp_path, **local), [(after(2, open_epoch=True), [0])])
    again = recovery.again
    assert again is not None
    assert again.steps
    assert again.determinant_bytes
    (facts,) = result_of("inspect", capsys, tmp_path / STORE)["raw"]["recoveries"]
    assert facts["deterministic_replay"] == {
        "steps": again.steps, "determinant_bytes": again.determinant_bytes, "buffer_bytes": again.buffer_bytes
    }  # fmt: skip
    code, out, _ = run_command("inspect", capsys, tmp_path / STORE)
    assert code == 0
    assert f"{again.steps} steps replayed, from" in " ".join(out.split())


def test_every_part_holds_the_steps_since_an_epoch_before(tmp_path: Path) -> None:
    """From copy to copy without a gap, before a loss and after it, and with the records that the counters count."""
    write_rows(tmp_path)
    options = inline(tmp_path, keep=None, **local)
    survive(fan(), tmp_path, options, [(after(2, open_epoch=True), [1])])
    epochs = [number for number in store(tmp_path).epoch_numbers() if store(tmp_path).has_manifest(number)]
    assert len(epochs) > 4
    ends: dict[TaskId, int] = {}
    read: dict[TaskId, int] = {}
    for epoch in epochs:
        for part in store(tmp_path).parts(epoch):
            assert part.schedule is not None
            assert part.schedule.line == 1
            taken = [step for step, times in read_steps(part.schedule.steps) for _ in range(times)]
            assert taken[-1] == TakenStep("c", 0, epoch)
            end = ends.get(part.task, 0)
            assert part.schedule.first <= end
            ends[part.task] = part.schedule.first + len(taken)
            new = taken[end - part.schedule.first :]
            records = sum(step.number for step in new if step.kind == "r")
            inputs = sum(sum(row) for row in part.received.values())
            count = inputs if part.positions is None else sum(split.records or 0 for split in part.positions)
            assert records == count - read.get(part.task, 0)
            read[part.task] = count


def test_no_part_holds_steps_where_none_are_kept(tmp_path: Path) -> None:
    write_rows(tmp_path, files=2)
    assert run_job(pipelines(), str(tmp_path / STORE), inline(tmp_path)).finished
    acks = [part for epoch in store(tmp_path).epoch_numbers() for part in store(tmp_path).parts(epoch)]
    assert [part.schedule for part in acks] == [None] * len(acks)


# -- which moments --------------------------------------------------------------------------------------------


def test_of_three_workers_two_are_lost_at_once(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=9, turning=True)
    options = inline(tmp_path, workers=3, **local)
    _, (recovery,) = survive(countdown(3), tmp_path, options, [(after(2), [0, 2])])
    check_alone(recovery, countdown(3), 0, 2, of=3)
    assert last_counts(tmp_path, "id") == counts


def test_all_workers_are_lost_at_once(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    survive(countdown(), tmp_path, inline(tmp_path, **local), [(after(2), [0, 1])])
    assert last_counts(tmp_path, "id") == counts


@pytest.mark.parametrize("second", [0, 1])
def test_another_is_lost_while_one_recovers(tmp_path: Path, second: int) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    kills = Kills([(after(2), [0])], tmp_path)

    def progress(state: Progress) -> None:
        kills.progress(state)
        service = kills._service
        if service is not None and len(kills.pids) == 1 and service.losses.is_starting:
            kills.kill(second)

    outcome = run_job(
        countdown(), str(tmp_path / STORE), inline(tmp_path, **local), progress, kills.meet, on_news=kills.news
    )
    assert outcome.finished
    assert len(kills.pids) == 2
    assert [recovery.cause for recovery in kills.recoveries if recovery.again is None] == []
    assert last_counts(tmp_path, "id") == counts


def test_again_and_again(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    moments = [(after(n), [n % 2]) for n in (2, 3, 4, 5, 6)]
    _, recoveries = survive(countdown(), tmp_path, inline(tmp_path, restarts=5, **local), moments)
    assert [recovery.again is not None for recovery in recoveries] == [True] * 5
    assert last_counts(tmp_path, "id") == counts


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_resumed_job_recovers_as_well_before_its_first_epoch(tmp_path: Path, policy: str, parallelism: int) -> None:
    """Rescaled, too: counters begin anew, and the epoch's parts are not of these tasks."""
    counts = write_countdown(tmp_path, files=10, turning=True)
    services: list[Any] = []

    def stop(progress: Progress) -> None:
        if progress.epochs >= 2:
            services[0].request_stop()

    first = run_job(countdown(), str(tmp_path / STORE), inline(tmp_path, policy="aligned"), stop, services.append)
    epoch = first.epoch
    if parallelism != 2:
        epoch = publish(LocalStorage(tmp_path / STORE), Rescale(epoch, countdown(parallelism), str(tmp_path)))
    options = inline(tmp_path, from_epoch=epoch, policy=policy, workers=parallelism, **local)
    moments = [(after(0, open_epoch=True), [0])]
    _, (recovery,) = survive(countdown(parallelism), tmp_path, options, moments)
    check_alone(recovery, countdown(parallelism), 0, of=parallelism)
    assert last_counts(tmp_path, "id") == counts


# -- real processes -------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("lost", [[0], [1], [0, 1]])
def test_a_python_worker_gets_sigkill(tmp_path: Path, spark: Any, lost: list[int]) -> None:
    counts = write_rows(tmp_path)
    options = on_spark(tmp_path, spark, **local)
    _, (recovery,) = survive(fan(), tmp_path, options, [(after(2, open_epoch=True), lost)])
    if len(lost) == 1:
        check_alone(recovery, fan(), *lost)
    check_counted(tmp_path, counts)


@pytest.mark.sample(1)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
def test_a_loop_on_spark_survives_two_kills(tmp_path: Path, spark: Any, policy: str) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    moments = [(after(2, open_epoch=True), [1]), (after(4), [0])]
    _, recoveries = survive(countdown(), tmp_path, on_spark(tmp_path, spark, policy=policy, **local), moments)
    for recovery, lost in zip(recoveries, (1, 0), strict=True):
        check_alone(recovery, countdown(), lost)
    assert last_counts(tmp_path, "id") == counts


# -- everything instead ---------------------------------------------------------------------------------------


def test_before_the_first_epoch(tmp_path: Path) -> None:
    counts = write_rows(tmp_path)
    due: Due = lambda progress: progress.records > 0  # noqa: E731
    _, (recovery,) = survive(pipelines(), tmp_path, inline(tmp_path, interval=60.0, **local), [(due, [1])])
    assert widened(recovery) == "no epoch is complete"
    check_rows(tmp_path, counts)


def test_past_the_bound_of_kept_frames(tmp_path: Path) -> None:
    counts = write_countdown(tmp_path, files=10, turning=True)
    let_go: list[FramesLetGo] = []
    kills = Kills([(after(2), [0])], tmp_path)

    def news(event: Any) -> None:
        kills.news(event)
        if isinstance(event, FramesLetGo):
            let_go.append(event)

    options = inline(tmp_path, backup_buffer=100, **local)
    assert run_job(countdown(), str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=news).finished
    (recovery,) = kills.recoveries
    assert "than --backup-buffer allows" in widened(recovery)
    assert let_go
    assert last_counts(tmp_path, "id") == counts


def test_what_memory_has_no_room_for_is_sent_again_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "DISK_TIMES", 1 << 20)
    monkeypatch.setattr(room, "FILE_BYTES", 1 << 12)
    counts = write_countdown(tmp_path, files=10, turning=True)
    options = inline(tmp_path, backup_buffer=100, **local)
    _, (recovery,) = survive(countdown(), tmp_path, options, [(after(2, open_epoch=True), [0])])
    check_alone(recovery, countdown(), 0)
    assert last_counts(tmp_path, "id") == counts


def test_what_does_not_come_again_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that goes round goes no further once the gate is open: who took it before would wait for ever."""
    monkeypatch.setattr(repeating, "STALLED_SECONDS", 1.0)
    pairs = write_graph(tmp_path, turning=True)
    kills = Kills([(after(2, open_epoch=True), [0])], tmp_path)

    def progress(state: Progress) -> None:
        kills.progress(state)
        if kills.pids:
            open_gate(tmp_path)

    options = inline(tmp_path, interval=1.0, **local)
    assert run_job(reach(), str(tmp_path / STORE), options, progress, kills.meet, on_news=kills.news).finished
    assert set(output_pairs(tmp_path)) == pairs


def test_a_task_that_replays_its_steps_never_makes_a_sender_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes the rows of several frames. A sender that waits would send only the first of them."""
    counts, topology, bound = write_rows(tmp_path), spread("crossing", 2, 2), peers.CHANNEL_BYTES
    kills = Kills([(after(2, open_epoch=True), [0])], tmp_path)

    def news(event: Any) -> None:
        if isinstance(event, Recovering | Recovered):
            monkeypatch.setattr(peers, "CHANNEL_BYTES", 1 if isinstance(event, Recovering) else bound)
        kills.news(event)

    options = inline(tmp_path, **local)
    assert run_job(topology, str(tmp_path / STORE), options, kills.progress, kills.meet, on_news=news).finished
    (recovery,) = kills.recoveries
    check_alone(recovery, topology, 0)
    check_counted(tmp_path, counts)


# -- what is refused ------------------------------------------------------------------------------------------


def test_what_means_nothing_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path, files=1)
    with pytest.raises(UsageError, match="--backup-buffer requires --recovery local"):
        run_job(fan(), str(tmp_path / STORE), inline(tmp_path, backup_buffer=1))
    assert not (tmp_path / STORE).exists()
