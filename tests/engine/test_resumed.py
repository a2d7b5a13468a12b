"""Jobs in one process that were stopped and go on, from their newest epoch or from an older one: exact results."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from abscli.engine.coordinator import Progress
from abscli.engine.errors import JobFailed
from abscli.engine.job import run_job
from abscli.stores.native.plan import own_line
from formats.errors import Damaged
from formats.job.model import Aggregate, Kind, Topology
from formats.native.store import files_of
from formats.view import Status
from tests.support.jobs.inline import STORE, Middle, run, stop_after, store
from tests.support.jobs.small import (
    inline,
    last_counts,
    open_gate,
    operator,
    output_pairs,
    output_rows,
    reach,
    word_count,
    write_graph,
    write_words,
)


def test_a_stopped_job_goes_on_to_the_same_output(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    stopped = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    assert not stopped.finished
    assert store(tmp_path).manifest(stopped.epoch).idle is False
    outcome = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, from_epoch=stopped.epoch))
    assert outcome.finished
    assert outcome.parent == stopped.epoch
    assert last_counts(tmp_path) == counts


def epoch_with_logs(folder: Path) -> int:
    """Run the loop to its end, and pick an epoch at whose cut records were going round."""

    def progress(now: Progress) -> None:
        if now.epochs and store(folder).manifest(now.epoch).log_records:
            open_gate(folder)

    run_job(reach(), str(folder / STORE), inline(folder, interval=0.02, keep=None), progress)
    s = store(folder)
    return max(epoch for epoch in s.epoch_numbers() if s.has_manifest(epoch) and s.manifest(epoch).log_records)


def test_a_loop_goes_on_from_its_logs(tmp_path: Path) -> None:
    pairs = write_graph(tmp_path, nodes=400, degree=3, turning=True)
    run(reach(), tmp_path, from_epoch=epoch_with_logs(tmp_path))
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


def test_draining_replays_logs_without_reading_sources(tmp_path: Path) -> None:
    pairs = write_graph(tmp_path, nodes=400, degree=3, turning=True)
    epoch = epoch_with_logs(tmp_path)
    drained = run_job(
        reach(), str(tmp_path / STORE), inline(tmp_path, from_epoch=epoch, until="drained", kind="restore")
    )
    assert drained.records == 0
    assert store(tmp_path).manifest(drained.epoch).log_records == 0
    run(reach(), tmp_path, from_epoch=drained.epoch)
    rows = output_pairs(tmp_path)
    assert len(rows) == len(set(rows))
    assert set(rows) == pairs


def test_only_what_changed_is_written_and_kept_epochs_can_all_be_restored(
    tmp_path: Path, small_batches: Middle
) -> None:
    counts = write_words(tmp_path, lines=4_000)
    run(word_count(), tmp_path, interval=0.02, keep=3)
    s = store(tmp_path)
    kept = [row for row in s.epochs() if row.status is Status.COMPLETE]
    assert 1 <= len(kept) <= 3
    used = {f.path for row in kept for part in s.parts(row.epoch) for f in files_of(part)}
    data = {p.relative_to(tmp_path / STORE).as_posix() for p in (tmp_path / STORE).rglob("*.parquet")}
    assert data == used
    assert all(row.reason is None for row in s.epochs())
    for row in kept:
        rows = sum(b.num_rows for b in s.state(row.epoch, "counts"))
        assert rows == s.manifest(row.epoch).state_rows
    total = sum(sum(b.column("n").to_pylist()) for b in s.state(kept[-1].epoch, "counts"))
    assert total == sum(counts.values())


def test_going_back_on_purpose_moves_newer_output_aside(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    run(word_count(), tmp_path, interval=0.02, keep=None)
    first = store(tmp_path).epoch_numbers()[0]
    run(word_count(), tmp_path, from_epoch=first)
    assert last_counts(tmp_path) == counts
    assert any((tmp_path / "out" / "superseded").iterdir())


def test_branches_keep_their_own_output(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    run(word_count(), tmp_path, interval=0.02, keep=None)
    first, second = store(tmp_path).epoch_numbers()[:2]
    run(word_count(), tmp_path, from_epoch=first, keep=None)
    run(word_count(), tmp_path, from_epoch=second, keep=None)
    assert last_counts(tmp_path) == counts
    last = store(tmp_path).latest() or 0
    whole = [last, second, first]
    assert [n for n in own_line(store(tmp_path)) if n in whole] == whole


def test_an_attempt_that_ended_before_its_first_epoch_does_not_bring_its_output_back(
    tmp_path: Path, small_batches: Middle
) -> None:
    counts = write_words(tmp_path, lines=4_000)
    topology = word_count(emit="record")
    run(topology, tmp_path, interval=0.02, keep=None)
    epochs = store(tmp_path).epoch_numbers()
    first, middle = epochs[0], epochs[len(epochs) // 2]
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(JobFailed, match="cannot read"):
        run(topology, tmp_path, from_epoch=middle, interval=None, keep=None)
    (tmp_path / "away").rename(tmp_path / "in")
    assert store(tmp_path).epoch_numbers() == epochs
    callbacks, _ = stop_after(1)
    again = inline(tmp_path, from_epoch=first, interval=0.02, keep=None)
    stopped = run_job(topology, str(tmp_path / STORE), again, **callbacks)  # type: ignore[arg-type]
    assert not set(own_line(store(tmp_path))) & set(epochs[1:])
    run(topology, tmp_path, from_epoch=stopped.epoch)
    assert len(output_rows(tmp_path)) == counts.total()


def test_a_part_that_is_gone_is_not_passed_over(tmp_path: Path, small_batches: Middle) -> None:
    write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    stopped = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    for path in (tmp_path / "out").glob(f"*-{stopped.epoch:010d}.jsonl"):
        path.unlink()
    with pytest.raises(Damaged, match=r"output part of .* rows is missing"):
        run(word_count(), tmp_path, from_epoch=stopped.epoch)


def test_keys_of_every_unit_of_time_survive_a_restore(tmp_path: Path) -> None:
    rows = [{"t": f"2024-01-01T00:00:{i % 60:02d}"} for i in range(500)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = word_count()
    topology = Topology(
        "times",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "rows.jsonl"}),
            operator("counts", Kind.REDUCE, 2, key=("t",), aggregates=(Aggregate("n", "count", "*"),), emit="epoch"),
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            msgspec.structs.replace(base.edges[1], source="rows", key=("t",)),
            base.edges[2],
        ),
    )
    run(topology, tmp_path)
    with (tmp_path / "rows.jsonl").open("a") as f:
        f.write("".join(json.dumps(row) + "\n" for row in rows))
    run(topology, tmp_path, from_epoch=store(tmp_path).latest())
    latest = store(tmp_path).latest() or 0
    state = [row for batch in store(tmp_path).state(latest, "counts") for row in batch.to_pylist()]
    assert len(state) == 60
    assert sum(row["n"] for row in state) == 500


@pytest.mark.soak
@pytest.mark.parametrize("keep", [1, 2])
def test_few_kept_epochs_and_several_in_flight_can_always_be_restored(
    tmp_path: Path, small_batches: Middle, keep: int
) -> None:
    small_batches.epochs = 30
    counts = write_words(tmp_path, lines=8_000)
    callbacks, _ = stop_after(25)
    chosen = inline(tmp_path, interval=0.005, keep=keep, max_concurrent=3)
    run_job(word_count(), str(tmp_path / STORE), chosen, **callbacks)  # type: ignore[arg-type]
    for row in store(tmp_path).epochs():
        assert row.reason is None or "contains it" in row.reason
    run(word_count(), tmp_path, from_epoch=store(tmp_path).latest())
    assert last_counts(tmp_path) == counts


def test_from_epoch_zero_starts_again(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    run(word_count(), tmp_path)
    run(word_count(), tmp_path, from_epoch=0)
    assert last_counts(tmp_path) == counts
