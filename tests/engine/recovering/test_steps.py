"""A task that is restored, gets the same frames and takes the same steps again puts out the same frames, and comes to
the same state: what a lost worker's replacement rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from abscli.engine.channels.inbox import Barrier
from abscli.engine.local.steps import Differs
from abscli.engine.state.restoring import Restored
from formats.ids import TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology
from formats.native.sink import epoch_of_part
from tests.support.jobs.kills import fan, in_event_time, spread, write_rows
from tests.support.jobs.recording import Recording, digests
from tests.support.jobs.small import countdown, inline, reach, write_countdown, write_graph

pytestmark = pytest.mark.integration


def a_loop(folder: Path) -> Topology:
    write_countdown(folder, files=10, turning=True)
    return countdown()


def a_loop_of_pairs(folder: Path) -> Topology:
    write_graph(folder, turning=True)
    return reach()


def by_key(emit: str) -> Callable[[Path], Topology]:
    def job(folder: Path) -> Topology:
        write_rows(folder)
        return fan(emit)

    return job


def with_event_time(folder: Path) -> Topology:
    write_rows(folder)
    return in_event_time(fan("epoch"), folder)


JOBS = {
    "loop": a_loop, "pairs": a_loop_of_pairs, "event time": with_event_time,
    **{emit: by_key(emit) for emit in ("epoch", "record", "batch")},
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
@pytest.mark.parametrize("job", JOBS)
def test_every_task_alone_does_again_what_it_did_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, policy: str
) -> None:
    topology = JOBS[job](tmp_path)
    recording = Recording(tmp_path)
    recording.run(topology, inline(tmp_path, policy=policy, keep=None, interval=0.05), monkeypatch)
    check_alone(recording, topology)


@pytest.mark.sample(1)
@pytest.mark.parametrize("job", ["pairs", "epoch", "record", "batch"])
def test_so_it_does_where_most_of_its_state_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    topology = JOBS[job](tmp_path)
    recording = Recording(tmp_path)
    recording.run(topology, inline(tmp_path, keep=None, interval=0.05, state_memory=10_000), monkeypatch)
    check_alone(recording, topology)


@pytest.mark.parametrize("policy", ["aligned", "at-least-once"])
def test_a_replay_repeats_aborts_of_later_epochs_that_came_before_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Several epochs are open at once. The copy of one epoch does not contain that the next epoch was aborted."""
    write_rows(tmp_path)
    topology, recording = spread("crossing", 2, 2), Recording(tmp_path)
    recording.run(topology, inline(tmp_path, policy=policy, keep=None, interval=0.01, max_concurrent=4), monkeypatch)
    check_alone(recording, topology)


def check_alone(recording: Recording, topology: Topology) -> None:
    complete = recording.complete
    assert len(recording.given_up) >= 2
    frames = 0
    for epoch, until in pairwise([0, *complete]):
        parts = {part.task: part for part in recording.store.parts(until)}
        restored = Restored(recording.store.storage, topology, recording.store.parts(until))
        for task in task_ids(topology):
            alone = recording.alone(task, epoch, until)
            for channel, items in alone.sent.items():
                assert digests(items) == digests(recording.behind(channel, epoch)[: len(items)]), f"{channel}, {epoch}"
                assert isinstance(items[-1], Barrier)
                assert items[-1].epoch == until
                frames += len(items)
            state = rows_of([] if alone.state is None else [alone.state], topology, task)
            assert state == rows_of(restored.state(task), topology, task), f"{task} at {until}, from {epoch}"
            # One that was shown may still be named by the next epoch, whose copy came before the word of it.
            assert set(alone.parts) == {part for part in parts[task].sink if epoch_of_part(part.name) > epoch}
    assert frames > 30


COUNTS = """
import itertools
import pyarrow as pa
from pathlib import Path
OPEN = Path({folder!r}) / "open"
calls = itertools.count()

def pass_on(batch):
    import time
    if not OPEN.exists():
        time.sleep(0.01)
    return batch.set_column(1, "id", pa.array([next(calls)] * batch.num_rows))
"""


def test_a_function_that_counts_its_calls_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path)
    (tmp_path / "slow.py").write_text(COUNTS.format(folder=str(tmp_path)))
    recording = Recording(tmp_path)
    recording.run(fan(), inline(tmp_path, keep=None, interval=0.05), monkeypatch)
    epoch, until, *_ = recording.complete
    alone = recording.alone(TaskId("same", 0), epoch, until)
    assert any(
        digests(items) != digests(recording.behind(channel, epoch)[: len(items)])
        for channel, items in alone.sent.items()
    )


def test_a_source_that_has_other_records_now_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path)
    recording = Recording(tmp_path)
    recording.run(fan(), inline(tmp_path, keep=None, interval=0.05), monkeypatch)
    for path in (tmp_path / "in").iterdir():
        path.write_text(path.read_text() + '{"key":"late","id":1}\n')
    reason = r"rows/0 does not replay the same steps: .*step \d+: expected 'records 20 of 0', got"
    with pytest.raises(Differs, match=reason):
        recording.alone(TaskId("rows", 0), *recording.complete[:2])


def rows_of(tables: Iterable[pa.Table], topology: Topology, task: TaskId) -> dict[tuple[object, ...], object]:
    """State by key; of files that lie on each other the newest has it."""
    key = topology.operator(task.operator).key
    return {tuple(row[name] for name in key): row for table in tables for row in table.to_pylist()}
