"""Whole jobs in one process: exact results, whatever the batches, and after every kind of end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine import worker
from abscli.engine.channels import inbox
from abscli.engine.channels.wire import JobSpec
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineError, EngineStopped, JobFailed, UsageError
from abscli.engine.inline import InlineWorkers
from abscli.engine.io import sources
from abscli.engine.job import JobOptions, run_job
from abscli.engine.journal import Journal
from abscli.stores.native.plan import own_line, plan_recovery
from abscli.stores.native.restore import restore
from formats.errors import Damaged, FormatError, NotFound, OtherJob, StoreInUse
from formats.job.model import Aggregate, Edge, Kind, Partition, Topology
from formats.native import layout
from formats.native.lock import exclusive
from formats.native.store import NativeStore, files_of
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs import (
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

STORE = "store"


def run(topology: Topology, folder: Path, **more: object) -> object:
    return run_job(topology, str(folder / STORE), inline(folder, **more))


def stop_after(epochs: int) -> tuple[dict[str, object], list[Service]]:
    """Callbacks that ask for a stop as SIGTERM does, once so many epochs are complete."""
    services: list[Service] = []

    def progress(p: Progress) -> None:
        if p.epochs >= epochs and services:
            services.pop().request_stop()

    return {"on_progress": progress, "on_service": services.append}, services


class Middle:
    """Of a job with small batches: it lasts until the store has seen so many complete epochs."""

    epochs = 4


@pytest.fixture
def small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Middle:
    """Sources read little at a time, and slowly while the job is in its middle: a worker acks between two reads."""
    middle = Middle()
    monkeypatch.setattr(sources, "CHUNK", 1024)
    read = sources.LineFiles.next_lines

    def slowly(files: sources.LineFiles) -> tuple[str, bytes] | None:
        if (store(tmp_path).latest() or 0) < middle.epochs:
            time.sleep(0.05)
        return read(files)

    monkeypatch.setattr(sources.LineFiles, "next_lines", slowly)
    return middle


def store(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / STORE))


def test_word_count_is_exact(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    outcome = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path))
    assert outcome.finished
    assert outcome.records == 600
    assert last_counts(tmp_path) == counts


@pytest.mark.parametrize("emit", ["epoch", "record", "batch"])
@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_results_do_not_depend_on_where_batches_end(
    tmp_path: Path, emit: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", chunk)
    counts = write_words(tmp_path, lines=60)
    run(word_count(emit=emit), tmp_path)
    assert last_counts(tmp_path) == counts
    if emit == "record":
        seen = Counter(str(row["word"]) for row in output_rows(tmp_path))
        assert seen == counts


def test_a_cyclic_job_of_parallel_tasks_ends_by_itself_with_every_pair_once(tmp_path: Path) -> None:
    pairs = write_graph(tmp_path)
    outcome = run_job(reach(), str(tmp_path / STORE), inline(tmp_path, interval=0.02))
    assert outcome.finished
    rows = output_rows(tmp_path)
    assert {(str(r["start"]), str(r["node"])) for r in rows} == pairs
    assert len(rows) == len(pairs)


def test_sums_minima_and_maxima_follow_sql(tmp_path: Path) -> None:
    rows = [
        {"k": "a", "v": 3, "s": "x"},
        {"k": "a", "v": None, "s": "b"},
        {"k": "b", "v": None, "s": None},
        {"k": "a", "v": -5, "s": None},
        {"k": None, "v": 1, "s": "z"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    aggregates = tuple(
        Aggregate(f"{function}_{column}", function, column)
        for function, column in [("sum", "v"), ("min", "v"), ("max", "v"), ("min", "s"), ("count", "v")]
    )
    topology = Topology(
        "sql",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "rows.jsonl"}),
            operator("sums", Kind.REDUCE, 2, key=("k",), aggregates=aggregates, emit="epoch"),
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
        ),
        (word_count().edges[1], word_count().edges[2]),
    )
    edges = (
        msgspec.structs.replace(topology.edges[0], source="rows", target="sums", key=("k",)),
        msgspec.structs.replace(topology.edges[1], source="sums"),
    )
    run(msgspec.structs.replace(topology, edges=edges), tmp_path)
    by_key = {row.pop("k"): row for row in output_rows(tmp_path)}
    assert by_key == {
        "a": {"sum_v": -2, "min_v": -5, "max_v": 3, "min_s": "b", "count_v": 2},
        "b": {"sum_v": None, "min_v": None, "max_v": None, "min_s": None, "count_v": 0},
        None: {"sum_v": 1, "min_v": 1, "max_v": 1, "min_s": "z", "count_v": 1},
    }


def test_as_many_workers_run_as_are_asked_for_and_one_where_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[int] = []
    launch = InlineWorkers.launch

    def counted(self: InlineWorkers, spec: JobSpec, abandon: Callable[[EngineError], None]) -> None:
        launched.append(spec.workers)
        launch(self, spec, abandon)

    monkeypatch.setattr(InlineWorkers, "launch", counted)
    for folder, workers in (("a", 1), ("b", 3), ("c", None)):
        counts = write_words(tmp_path / folder, lines=20)
        run_job(word_count(), str(tmp_path / folder / STORE), inline(tmp_path / folder, workers=workers))
        assert last_counts(tmp_path / folder) == counts
    assert launched == [1, 3, 1]


def test_a_restored_source_looks_for_files_only_if_no_epoch_has_kept_its_columns(tmp_path: Path) -> None:
    def restored(path: str, kept: dict[str, str] | None) -> dict[str, str] | None:
        rows = operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": path})
        return sources.make_source(rows, 0, str(tmp_path), (), kept).connector

    (tmp_path / "rows.jsonl").write_text('{"k": 1}\n')
    assert restored("read-and-gone/*.jsonl", {"k": "string"}) == {"k": "string"}
    assert restored("rows.jsonl", None) == {"k": "int64"}


def test_how_far_sources_have_come_is_told_while_they_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK", 1024)
    records: list[int] = []
    read_since: list[int] = []
    read = sources.LineFiles.next_lines

    def slowly(files: sources.LineFiles) -> tuple[str, bytes] | None:
        if records:
            read_since.append(records[-1])
        else:
            time.sleep(0.1)
        return read(files)

    monkeypatch.setattr(sources.LineFiles, "next_lines", slowly)
    write_words(tmp_path)

    def progress(now: Progress) -> None:
        if now.records:
            records.append(now.records)

    run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=None), progress)
    assert 0 < min(read_since) < records[-1] == 600


def test_tasks_of_one_worker_do_not_dial_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[str] = []
    dial = worker.Worker._dial

    def noted(self: worker.Worker, channel: str, addresses: tuple[tuple[str, int], ...]) -> object:
        dialled.append(channel)
        return dial(self, channel, addresses)

    monkeypatch.setattr(worker.Worker, "_dial", noted)
    counts = write_words(tmp_path, lines=20)
    run(word_count(), tmp_path)
    assert sorted(dialled) == ["words/0->counts/1", "words/1->counts/0"]
    assert last_counts(tmp_path) == counts


def test_a_sender_waits_for_a_full_queue_of_its_own_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sources fill four queues of one task, which takes from one of them at a time."""
    monkeypatch.setattr(sources, "CHUNK", 256)
    monkeypatch.setattr(worker, "CHANNEL_BYTES", 1024)
    monkeypatch.setattr(inbox, "TARGET_ROWS", 1)
    queued: list[int] = []
    put = inbox.Inbox.put

    def noted(self: inbox.Inbox, item: inbox.Batch | inbox.Barrier) -> None:
        put(self, item)
        queued.append(self.bytes)

    monkeypatch.setattr(inbox.Inbox, "put", noted)
    write_words(tmp_path, files=4)
    topology = Topology(
        "lines",
        (
            operator("lines", Kind.SOURCE, 4, connector={"type": "text", "path": "in/*.txt"}),
            operator("all", Kind.MAP, 1, function="identity"),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("lines", "all", Partition.REBALANCE), Edge("all", "out", Partition.FORWARD)),
    )
    run(topology, tmp_path, workers=1)
    assert max(queued) < 2 * 1024
    assert len(output_rows(tmp_path)) == 800


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
    with pytest.raises(Damaged, match=r"output part of .* rows is gone"):
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


def test_the_last_line_needs_no_newline_and_bad_bytes_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"one two\r\n\r\none \xff\xfe three")
    (tmp_path / "in" / "b.txt").write_bytes(b"")
    run(word_count(), tmp_path)
    assert last_counts(tmp_path) == {"one": 2, "two": 1, "three": 1}


# -- how jobs fail ----------------------------------------------------------------------------------------


def failing(folder: Path, body: str) -> Topology:
    name = f"fails_{abs(hash(str(folder)))}"
    (folder / f"{name}.py").write_text(body)
    topology = word_count()
    operators = list(topology.operators)
    operators[1] = msgspec.structs.replace(operators[1], function=f"{name}:split")
    return msgspec.structs.replace(topology, operators=tuple(operators))


def test_a_function_that_raises_names_operator_task_record_and_row(tmp_path: Path) -> None:
    write_words(tmp_path, files=1, lines=20_000)
    path = tmp_path / "in" / "0.txt"
    lines = path.read_text().splitlines()
    lines[15_000] = "poison"
    path.write_text("\n".join(lines))
    body = (
        "from abscli.engine.functions import words\n"
        "def split(batch):\n"
        "    if 'poison' in batch.column('line').to_pylist():\n"
        "        raise ValueError('I do not like this')\n"
        "    return words(batch)\n"
    )
    topology = failing(tmp_path, body)
    with pytest.raises(JobFailed) as caught:
        run(topology, tmp_path, interval=0.02)
    text = caught.value.message
    assert "operator words, task words/0, record 15001" in text
    assert "poison" in text
    assert "I do not like this" in text
    s = store(tmp_path)
    if s.latest() is not None:
        assert s.detail(s.latest() or 0).facts.status is Status.COMPLETE


def test_a_function_that_returns_the_wrong_thing_is_named(tmp_path: Path) -> None:
    write_words(tmp_path)
    with pytest.raises(JobFailed, match="returned list, expected RecordBatch"):
        run(failing(tmp_path, "def split(batch): return []"), tmp_path)


def test_a_sum_that_overflows_is_an_error_wherever_batches_end(tmp_path: Path) -> None:
    rows = [{"k": 1, "v": 2**62}, {"k": 1, "v": 2**62}, {"k": 1, "v": -(2**62)}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = word_count(1)
    topology = Topology(
        "sums",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "rows.jsonl"}),
            operator("sums", Kind.REDUCE, 1, key=("k",), aggregates=(Aggregate("s", "sum", "v"),), emit="epoch"),
            operator("out", Kind.SINK, 1, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            msgspec.structs.replace(base.edges[1], source="rows", target="sums", key=("k",)),
            msgspec.structs.replace(base.edges[2], source="sums"),
        ),
    )
    with pytest.raises(JobFailed, match="overflow"):
        run(topology, tmp_path)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with (tmp_path / "edges.jsonl").open("a") as f:
        f.write('{"start": "n1", "node": \n')
    topology = reach()
    connector = {"type": "jsonl", "path": "edges.jsonl", "schema": {"start": "string", "node": "string"}}
    operators = (msgspec.structs.replace(topology.operators[0], connector=connector), *topology.operators[1:])
    with pytest.raises(JobFailed, match=r"edges\.jsonl, record 1\d\d"):
        run(msgspec.structs.replace(topology, operators=operators), tmp_path)


def test_a_store_with_epochs_asks_for_resume(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(word_count(), tmp_path)
    with pytest.raises(UsageError, match=r"has epochs? .* already") as caught:
        run(word_count(), tmp_path)
    assert "--resume" in (caught.value.hint or "")


def test_a_store_of_another_job_is_refused(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(word_count(), tmp_path)
    with pytest.raises(OtherJob):
        run(msgspec.structs.replace(word_count(), job="other"), tmp_path, from_epoch=1)


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    write_words(tmp_path)
    (tmp_path / STORE).mkdir()
    (tmp_path / STORE / "precious.txt").write_text("mine")
    with pytest.raises(OtherJob, match=r"precious\.txt"):
        run(word_count(), tmp_path)
    assert [p.name for p in (tmp_path / STORE).iterdir() if p.name != "lock"] == ["precious.txt"]


def test_a_changed_graph_is_refused_and_a_reordered_one_is_not(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    stopped = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    with pytest.raises(OtherJob, match=r"operator lines has changed .*parallelism was 2, is 4"):
        run(word_count(4), tmp_path, from_epoch=stopped.epoch)
    topology = word_count()
    reordered = msgspec.structs.replace(topology, operators=topology.operators[::-1], edges=topology.edges[::-1])
    run(reordered, tmp_path, from_epoch=stopped.epoch)
    assert last_counts(tmp_path) == counts


def test_a_store_in_use_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    write_words(tmp_path)
    (tmp_path / STORE).mkdir()
    with exclusive(LocalStorage(tmp_path / STORE)), pytest.raises(StoreInUse, match="in use by process"):
        run(word_count(), tmp_path)


def test_the_store_is_held_from_the_first_look_to_the_last_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_words(tmp_path)
    looks: list[str] = []

    def look(when: str) -> None:
        with pytest.raises(StoreInUse), exclusive(LocalStorage(tmp_path / STORE)):
            pass
        looks.append(when)

    complete = Journal.complete

    def look_and_complete(journal: Journal, epoch: int, *arguments: Any, **more: Any) -> Any:
        look("manifest")
        return complete(journal, epoch, *arguments, **more)

    monkeypatch.setattr(Journal, "complete", look_and_complete)
    outcome = run_job(
        word_count(),
        str(tmp_path / STORE),
        inline(tmp_path),
        on_progress=lambda progress: look("progress"),
        on_service=lambda service: look("service"),
        verify=lambda: look("verify"),
    )
    assert outcome.finished
    assert looks[:2] == ["verify", "service"]
    assert {"progress", "manifest"} <= set(looks)
    with exclusive(LocalStorage(tmp_path / STORE)):  # and let go at the end
        pass


def test_output_of_somebody_else_is_not_mixed_with(tmp_path: Path) -> None:
    write_words(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000-0000000001.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="did not write"):
        run(word_count(), tmp_path)


def test_two_stores_do_not_take_turns_at_one_sink(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    plan = plan_recovery(store(tmp_path))
    done = restore(plan, word_count(), inline(tmp_path, until="end"), to=str(tmp_path / "copy"))
    assert done.finished
    assert last_counts(tmp_path) == counts
    with pytest.raises(UsageError, match="made since"):
        run(word_count(), tmp_path, from_epoch=plan.epoch)
    assert last_counts(tmp_path) == counts


def test_no_input_is_an_error_that_names_the_pattern(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file matches 'in/\*\.txt'"):
        run(word_count(), tmp_path)


def test_an_opaque_operator_cannot_be_run(tmp_path: Path) -> None:
    topology = word_count()
    operators = (*topology.operators[:1], msgspec.structs.replace(topology.operators[1], kind=Kind.OPAQUE))
    with pytest.raises(UsageError, match="words is opaque"):
        run(msgspec.structs.replace(topology, operators=(*operators, *topology.operators[2:])), tmp_path)


def test_an_epoch_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(word_count(), tmp_path)
    with pytest.raises(NotFound, match="no epoch 99"):
        run(word_count(), tmp_path, from_epoch=99)


def test_a_damaged_state_file_stops_the_restore_and_is_named(tmp_path: Path) -> None:
    write_words(tmp_path)
    run(word_count(), tmp_path)
    s = store(tmp_path)
    latest = s.latest() or 0
    path = next(p.state[0].path for p in s.parts(latest) if p.state)
    file = tmp_path / STORE / path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises((Damaged, EngineStopped, Exception), match="SHA-256"):
        run(word_count(), tmp_path, from_epoch=latest)


def test_no_manifest_names_a_file_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_words(tmp_path)
    complete = Journal.complete
    lost: list[Path] = []

    def lose_one_first(journal: Journal, epoch: int, *arguments: Any, **more: Any) -> None:
        lost.append(next((tmp_path / STORE / layout.epoch_dir(epoch)).rglob("*.parquet")))
        lost[0].unlink()
        complete(journal, epoch, *arguments, **more)

    monkeypatch.setattr(Journal, "complete", lose_one_first)
    with pytest.raises((FormatError, EngineStopped), match="gone"):
        run(word_count(), tmp_path)
    assert lost[0].parent.exists()
    assert store(tmp_path).latest() is None


def test_a_source_that_shrank_is_an_error(tmp_path: Path, small_batches: Middle) -> None:
    write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    stopped = run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    for path in (tmp_path / "in").iterdir():
        path.write_text("gone")
    with pytest.raises(JobFailed, match="has 4 bytes"):
        run(word_count(), tmp_path, from_epoch=stopped.epoch)


def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        JobOptions("a", "b").engine = "x"  # type: ignore[misc]


def test_dictionary_encoded_columns_cross_the_network_and_key_state_as_their_values(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    body = (
        "import pyarrow as pa\n"
        "from abscli.engine.functions import words\n"
        "def split(batch):\n"
        "    found = words(batch)\n"
        "    return pa.record_batch([found['word'].dictionary_encode()], names=['word'])\n"
    )
    run(failing(tmp_path, body), tmp_path)
    assert last_counts(tmp_path) == counts


def test_filter_map_union_rebalance_and_broadcast_together(tmp_path: Path, small_batches: Middle) -> None:
    rows = [{"n": n} for n in range(3000)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "steps_of_all.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\n"
        "def even(batch): return pc.equal(pc.bit_wise_and(batch['n'], 1), 0)\n"
        "def negate(batch): return pa.record_batch([pc.negate(batch['n'])], names=['n'])\n"
    )
    topology = Topology(
        "all",
        (
            operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "rows.jsonl"}),
            operator("evens", Kind.FILTER, 3, function="steps_of_all:even"),
            operator("negated", Kind.MAP, 2, function="steps_of_all:negate"),
            operator("both", Kind.UNION, 2),
            operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("rows", "evens", Partition.REBALANCE),
            Edge("rows", "negated", Partition.BROADCAST),
            Edge("evens", "both", Partition.REBALANCE),
            Edge("negated", "both", Partition.FORWARD),
            Edge("both", "out", Partition.FORWARD),
        ),
    )
    callbacks, _ = stop_after(2)
    chosen = inline(tmp_path, interval=0.005)
    stopped = run_job(topology, str(tmp_path / STORE), chosen, **callbacks)  # type: ignore[arg-type]
    run(topology, tmp_path, from_epoch=stopped.epoch)
    found = Counter(row["n"] for row in output_rows(tmp_path))
    expected = Counter(n for n in range(3000) if n % 2 == 0)
    for n in range(3000):
        expected[-n] += 2
    assert found == expected
