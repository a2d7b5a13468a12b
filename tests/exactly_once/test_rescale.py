"""A job that goes on with other numbers of tasks: with loops and logs, killed in the middle, and back again."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineError
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.job import run_job
from abscli.planner.rescale import with_parallelism
from abscli.report.findings import Finding
from abscli.stores.native.check import check
from abscli.stores.native.plan import newest_whole, plan_digest, plan_recovery
from abscli.stores.native.restore import copy_epoch, restore
from abscli.stores.reasons import NoPlan
from formats.errors import NoRecovery, OtherJob
from formats.job.model import Edge, Partition, Topology
from formats.native import layout
from formats.native.remove import stored_files
from formats.native.state.references import refers
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.exactly_once.children import Children, How
from tests.support.jobs.small import (
    countdown,
    held_at,
    inline,
    last_counts,
    open_gate,
    output_pairs,
    reach,
    skewed,
    word_count,
    write_countdown,
    write_graph,
    write_skewed,
    write_words,
)

pytestmark = pytest.mark.minutes

UNFINISHED = {"missing-ack", "unreferenced-file"}
"""What `abs validate` says of an epoch that was begun and not ended, and of what was written for it."""


def storage(folder: Path) -> LocalStorage:
    return LocalStorage(str(folder / "store"))


def store(folder: Path) -> NativeStore:
    return NativeStore(storage(folder))


def rescale(folder: Path, topology: Topology, epoch: int | None = None) -> int:
    """The epoch that the newest one, or this, becomes with the parallelism of `topology`."""
    newest = store(folder).latest() if epoch is None else epoch
    assert newest is not None
    return publish(storage(folder), Rescale(newest, topology, str(folder)))


def rows(folder: Path, epoch: int, operator: str) -> list[str]:
    return sorted(str(row) for batch in store(folder).state(epoch, operator) for row in batch.to_pylist())


def findings(folder: Path) -> tuple[Finding, ...]:
    return check(storage(folder), None, quick=False, progress=lambda done, total: None).report.all_findings


def wide(topology: Topology, width: int, *operators: str) -> Topology:
    return with_parallelism(topology, dict.fromkeys(operators, width))


def counting(parallelism: int = 1) -> Topology:
    """The word count, whose counts may be as many tasks as they like."""
    topology = word_count(1)
    *edges, last = topology.edges
    loose = (*edges, Edge(last.source, last.target, Partition.REBALANCE))
    return wide(msgspec.structs.replace(topology, edges=loose), parallelism, "counts")


def run(folder: Path, topology: Topology, stop: Any = None, **options: Any) -> Any:
    """stop: asked after each report of progress; when it says so, the job takes a last epoch and ends."""
    services: list[Service] = []

    def progress(now: Progress) -> None:
        if stop is not None and services and stop(now):
            services.pop().request_stop()

    chosen = inline(folder, **{"interval": 0.05, "keep": None, **options})
    return run_job(topology, str(folder / "store"), chosen, progress, services.append)


# -- state ----------------------------------------------------------------------------------------------------


def test_from_1_to_128_tasks_and_back_is_the_same_state_row_by_row(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(tmp_path, counting())
    first = store(tmp_path).latest() or 0
    original = rows(tmp_path, first, "counts")
    written = sum(file.bytes for file in stored_files(storage(tmp_path)) if file.path.endswith(".parquet"))
    many = rescale(tmp_path, counting(128))
    again = rescale(tmp_path, counting())
    assert rows(tmp_path, many, "counts") == rows(tmp_path, again, "counts") == original
    assert written == sum(f.bytes for f in stored_files(storage(tmp_path)) if f.path.endswith(".parquet"))
    s = store(tmp_path)
    assert {len(part.state) for part in s.parts(many) if part.operator == "counts"} <= {0, 1}
    assert s.manifest(many).state_rows == s.manifest(again).state_rows == s.manifest(first).state_rows
    assert s.manifest(many).state_bytes == s.manifest(first).state_bytes
    assert [s.manifest(epoch).generation for epoch in (first, many, again)] == [1, 2, 3]
    assert findings(tmp_path) == ()


def test_a_job_counts_on_exactly_on_128_tasks_and_then_on_one(tmp_path: Path) -> None:
    counts = write_words(tmp_path, files=4, lines=3000)
    run(tmp_path, counting(), stop=lambda now: now.epochs >= 1, interval=0.01)
    many = rescale(tmp_path, counting(128))
    run(tmp_path, counting(128), stop=lambda now: now.epochs >= 1, interval=0.01, from_epoch=many)
    newest = store(tmp_path).latest() or 0
    one = rescale(tmp_path, counting())
    assert rows(tmp_path, one, "counts") == rows(tmp_path, newest, "counts")
    assert run(tmp_path, counting(), from_epoch=one).finished
    assert last_counts(tmp_path) == counts
    assert findings(tmp_path) == ()


def test_files_that_a_kept_epoch_refers_to_outlive_the_generation_that_wrote_them(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    run(tmp_path, counting())
    wanted = rows(tmp_path, store(tmp_path).latest() or 0, "counts")
    lifted = rescale(tmp_path, counting(5))
    # Nothing changes any more: what the newest epoch has is in the first one's file, whose epoch goes.
    run(tmp_path, counting(5), from_epoch=lifted, keep=1)
    assert len(store(tmp_path).epoch_numbers()) == 1
    newest = store(tmp_path).latest() or 0
    assert refers([file for part in store(tmp_path).parts(newest) for file in part.state])
    assert rows(tmp_path, newest, "counts") == wanted
    assert last_counts(tmp_path) == counts
    assert findings(tmp_path) == ()


def test_a_flipped_byte_in_a_row_group_stops_the_task_that_needs_it(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(tmp_path, counting())
    lifted = rescale(tmp_path, counting(3))
    (file, *_) = (file for part in store(tmp_path).parts(lifted) for file in part.state)
    path = tmp_path / "store" / file.path
    data = bytearray(path.read_bytes())
    data[file.row_groups[0].offset + 9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(EngineError, match="its row group of key groups"):
        run(tmp_path, counting(3), from_epoch=lifted)
    assert "digest-mismatch" in {finding.code.value for finding in findings(tmp_path)}


# -- logs and loops -------------------------------------------------------------------------------------------


def reaching(folder: Path, policy: str) -> set[tuple[str, str]]:
    """A job round a loop on four tasks, stopped in the middle with records in the loop; what it has to find."""
    pairs = write_graph(folder, nodes=250, degree=3, turning=True)

    def stop(now: Progress) -> bool:
        return now.epochs >= 2 and store(folder).manifest(now.epoch).log_records > 0

    run(folder, wide(reach(4), 4, "out"), stop, policy=policy)
    assert store(folder).manifest(store(folder).latest() or 0).log_records > 0
    return pairs


@pytest.mark.parametrize("policy", ["aligned", "unaligned", "at-least-once"])
def test_a_loop_with_records_in_it_goes_from_4_to_7_to_3_tasks(tmp_path: Path, policy: str) -> None:
    pairs = reaching(tmp_path, policy)
    for width in (7, 3):
        topology = wide(reach(4), width, "pairs", "steps", "out")
        before = store(tmp_path).latest() or 0
        lifted = rescale(tmp_path, topology)
        s = store(tmp_path)
        assert s.manifest(lifted).log_records == s.manifest(before).log_records > 0
        assert s.manifest(lifted).policy == s.manifest(before).policy
        assert rows(tmp_path, lifted, "pairs") == rows(tmp_path, before, "pairs")
        if width == 3:
            open_gate(tmp_path)
        run(tmp_path, topology, None if width == 3 else lambda now: now.epochs >= 2, from_epoch=lifted)
    assert Counter(output_pairs(tmp_path)) == Counter(pairs)
    assert findings(tmp_path) == ()


def test_what_is_on_its_way_in_an_unaligned_epoch_is_counted_once_by_other_tasks(tmp_path: Path) -> None:
    counts = write_skewed(tmp_path)
    run(tmp_path, skewed(), lambda now: held_at(tmp_path) is not None and not open_gate(tmp_path), policy="unaligned")
    epoch = held_at(tmp_path) or 0
    logged = store(tmp_path).manifest(epoch).log_records
    assert logged > 0
    for width in (5, 3):
        topology = wide(skewed(), width, "counts", "out")
        epoch = rescale(tmp_path, topology, epoch)
        assert store(tmp_path).manifest(epoch).log_records == logged
    run(tmp_path, topology, from_epoch=epoch)
    assert last_counts(tmp_path) == counts
    assert findings(tmp_path) == ()


def test_records_on_a_forward_edge_without_a_key_stop_a_rescale_before_anything_is_written(tmp_path: Path) -> None:
    write_countdown(tmp_path, turning=True)

    def stop(now: Progress) -> bool:
        channels = store(tmp_path).detail(now.epoch).channels if now.epochs else ()
        return any(channel.logged and channel.edge == ("ring", "step") for channel in channels)

    run(tmp_path, countdown(), stop, policy="unaligned")
    s = store(tmp_path)
    epoch = next(n for n in reversed(s.epoch_numbers()) if any(
        channel.logged and channel.edge == ("ring", "step") for channel in s.detail(n).channels
    ))  # fmt: skip
    before = stored_files(storage(tmp_path))
    with pytest.raises(NoRecovery, match=r"forward edge ring->step cannot be redistributed from 2 to 3 tasks of step"):
        rescale(tmp_path, wide(countdown(), 3, "ring", "step"), epoch)
    answer = plan_recovery(s, epoch=epoch, parallelism={"ring": 3, "step": 3})
    assert isinstance(answer, NoPlan)
    assert "no state key" in answer.message
    assert stored_files(storage(tmp_path)) == before


def test_another_graph_is_no_rescale(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(tmp_path, counting())
    with pytest.raises(OtherJob, match="parallelism was 1, is 4") as refused:
        run(tmp_path, counting(4), from_epoch=store(tmp_path).latest())
    assert "--parallelism counts=4" in (refused.value.hint or "")


# -- plans ----------------------------------------------------------------------------------------------------


def test_a_plan_with_another_parallelism_is_carried_out_and_gone_on_with_after_a_crash(tmp_path: Path) -> None:
    counts = write_words(tmp_path, lines=3000)
    run(tmp_path, counting(), stop=lambda now: now.epochs >= 1, interval=0.01)
    plan = plan_recovery(store(tmp_path), parallelism={"counts": 6})
    assert not isinstance(plan, NoPlan)
    assert plan.body.parallelism == {"counts": 6}
    assert next(row for row in plan.body.restart if row.operator == "counts").subtasks == "0-5"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "in", copy / "in")
    chosen = inline(copy, until="drained", keep=None, accept_missing=True)
    done = restore(plan, counting(), chosen, to=str(copy / "store"))
    assert store(copy).topology(done.epoch).operator("counts").parallelism == 6
    # The restore in the store itself ends right behind the rescale: it is gone on with from there.
    assert plan.body.epoch is not None
    order = Rescale(plan.body.epoch, counting(6), str(tmp_path), plan_digest(plan))
    lifted = publish(storage(tmp_path), order)
    attempts = len(store(tmp_path).attempts())
    done = restore(plan, counting(), inline(tmp_path, keep=None))
    assert (done.parent, done.parallelism) == (lifted, {"counts": 6})
    assert len(store(tmp_path).attempts()) == attempts + 1
    assert last_counts(tmp_path) == counts


def test_a_copy_of_a_rescaled_epoch_has_the_job_graphs_of_all_attempts_that_led_to_it(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(tmp_path, counting())
    for width in (5, 2):
        rescale(tmp_path, counting(width))
    newest = store(tmp_path).latest()
    assert newest is not None
    copy_epoch(store(tmp_path), newest, str(tmp_path / "copy" / "store"))
    assert len(store(tmp_path / "copy").attempts()) == len(store(tmp_path).attempts()) == 3
    assert findings(tmp_path / "copy") == ()


# -- killed ---------------------------------------------------------------------------------------------------

JOB = """version: 1
job: reach
operators:
  edges:
    source: {type: jsonl, path: edges.jsonl}
  pairs:
    parallelism: 4
    from:
      edges: {partition: hash, key: [start, node]}
      steps: {partition: hash, key: [start, node]}
    distinct: [start, node]
  steps:
    parallelism: 4
    from: {pairs: {partition: forward}}
    flat_map: reaching:steps
  out:
    parallelism: 4
    from: {pairs: {partition: forward}}
    sink: {type: jsonl, path: out}
"""

def numbers(width: int) -> list[str]:
    return [word for id in ("pairs", "steps", "out") for word in ("--parallelism", f"{id}={width}")]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.soak), 15])
def test_a_rescale_killed_at_every_change_is_resumed_and_the_result_is_exact(
    tmp_path: Path, children: Children, stride: int
) -> None:
    """stride: from one change at which it is killed to the next. The soak tier kills it at every change."""
    (tmp_path / "job.yaml").write_text(JOB)
    pairs = reaching(tmp_path, "unaligned")
    run_again = ("run", "job.yaml", "--store", "store", "--engine", "inline", "--resume")
    for width in (7, 3):
        before = store(tmp_path).latest() or 0
        wanted = rows(tmp_path, before, "pairs")
        logged = store(tmp_path).manifest(before).log_records
        assert logged > 0
        kills = 0
        while (newest := store(tmp_path).latest()) == before:
            kill = How(signal=signal.SIGKILL, at=kills * stride + 1, paced=False)
            done = children.run(tmp_path, *run_again, *numbers(width), how=kill)
            if stride > 1 and done.code == 0:
                break  # the next change of the stride is past the last one
            assert done.code == -signal.SIGKILL, done
            assert {finding.code.value for finding in findings(tmp_path)} <= UNFINISHED
            whole = newest_whole(store(tmp_path))
            assert not isinstance(whole, NoPlan)
            assert rows(tmp_path, whole[0].facts.epoch, "pairs") == wanted
            kills += 1
        assert newest is not None
        s = store(tmp_path)
        own = layout.home(newest, s.manifest(newest).attempt_id) + "/"
        written = [file.path for file in stored_files(storage(tmp_path)) if file.path.startswith(own)]
        # At least the facts of the tasks and one log; how many logs hold records depends on when the job was stopped.
        assert kills * stride >= len(written) >= 2, written
        assert s.topology(newest).operator("pairs").parallelism == width
        assert (s.manifest(newest).parent, s.manifest(newest).log_records) == (before, logged)
        if width == 3:
            open_gate(tmp_path)
            done = children.run(tmp_path, *run_again, *numbers(width), how=How(paced=False))
            assert done.code == 0, done
    assert Counter(output_pairs(tmp_path)) == Counter(pairs)
    assert {finding.code.value for finding in findings(tmp_path)} <= UNFINISHED
