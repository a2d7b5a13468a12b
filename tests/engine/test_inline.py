"""Whole jobs in one process: exact results, whatever the batches."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from abscli.engine.channels import inbox, peers
from abscli.engine.coordinator import Progress
from abscli.engine.drivers.inline import InlineWorkers
from abscli.engine.errors import EngineError, JobFailed
from abscli.engine.job import JobOptions, run_job
from abscli.engine.sources import making
from abscli.engine.sources.files import line_files
from formats.ids import ChannelId
from formats.job.model import Aggregate, Edge, Kind, Partition, Topology
from tests.support.jobs.inline import STORE, Middle, failing, run, stop_after
from tests.support.jobs.small import (
    inline,
    last_counts,
    operator,
    output_rows,
    reach,
    word_count,
    write_graph,
    write_words,
)


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
    monkeypatch.setattr(line_files, "CHUNK", chunk)
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


def test_as_many_workers_run_as_are_asked_for_and_have_tasks_and_one_where_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[int] = []
    launch = InlineWorkers.launch

    def counted(self: InlineWorkers, number: int, launch_number: int, failed: Callable[[EngineError], None]) -> None:
        launched.append(number)
        launch(self, number, launch_number, failed)

    monkeypatch.setattr(InlineWorkers, "launch", counted)
    for folder, workers in (("a", 1), ("b", 2), ("more than tasks", 3), ("c", None)):
        counts = write_words(tmp_path / folder, lines=20)
        run_job(word_count(), str(tmp_path / folder / STORE), inline(tmp_path / folder, workers=workers))
        assert last_counts(tmp_path / folder) == counts
    assert launched == [0, 0, 1, 0, 1, 0]


def test_a_restored_source_looks_for_files_only_if_no_epoch_has_kept_its_columns(tmp_path: Path) -> None:
    def restored(path: str, kept: dict[str, str] | None) -> dict[str, str] | None:
        rows = operator("rows", Kind.SOURCE, 1, connector={"type": "jsonl", "path": path})
        return making.make_source(rows, 0, str(tmp_path), (), kept).connector

    (tmp_path / "rows.jsonl").write_text('{"k": 1}\n')
    assert restored("read-and-gone/*.jsonl", {"k": "string"}) == {"k": "string"}
    assert restored("rows.jsonl", None) == {"k": "int64"}


def test_how_far_sources_have_come_is_told_while_they_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "CHUNK", 1024)
    records: list[int] = []
    read_since: list[int] = []
    read = line_files.LineFiles.next_lines

    def slowly(files: line_files.LineFiles) -> tuple[str, bytes] | None:
        if records:
            read_since.append(records[-1])
        else:
            time.sleep(0.1)
        return read(files)

    monkeypatch.setattr(line_files.LineFiles, "next_lines", slowly)
    write_words(tmp_path)

    def progress(now: Progress) -> None:
        if now.records:
            records.append(now.records)

    run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=None), progress)
    assert 0 < min(read_since) < records[-1] == 600


def test_tasks_of_one_worker_do_not_dial_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[ChannelId] = []
    dial = peers.Peers._dial

    def noted(self: peers.Peers, channel: ChannelId, addresses: tuple[tuple[str, int], ...]) -> object:
        dialled.append(channel)
        return dial(self, channel, addresses)

    monkeypatch.setattr(peers.Peers, "_dial", noted)
    counts = write_words(tmp_path, lines=20)
    run(word_count(), tmp_path)
    assert [str(channel) for channel in sorted(dialled)] == ["words/0->counts/1", "words/1->counts/0"]
    assert last_counts(tmp_path) == counts


def test_a_sender_waits_for_a_full_queue_of_its_own_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sources fill four queues of one task, which takes from one of them at a time."""
    monkeypatch.setattr(line_files, "CHUNK", 256)
    monkeypatch.setattr(peers, "CHANNEL_BYTES", 1024)
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


def test_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"one two\r\n\r\none three")
    (tmp_path / "in" / "b.txt").write_bytes(b"")
    run(word_count(), tmp_path)
    assert last_counts(tmp_path) == {"one": 2, "two": 1, "three": 1}


def test_a_line_that_is_not_utf_8_ends_the_job_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"one two\none \xff\xfe three\n")
    with pytest.raises(JobFailed, match=r"in/a\.txt, record 2: .*byte 0xff at position 4 is not UTF-8"):
        run(word_count(), tmp_path)


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
