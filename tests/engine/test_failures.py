"""How jobs fail: with the operator, the record and the file that it lies in; or before anything has begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.errors import EngineStopped, JobFailed, UsageError
from abscli.engine.job import run_job
from abscli.engine.journal import Journal
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from formats.errors import Damaged, FormatError, NotFound, OtherJob, StoreInUse
from formats.job.model import Aggregate, Kind, Topology
from formats.native import layout
from formats.native.lock import exclusive
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.inline import STORE, Middle, failing, run, stop_after, store
from tests.support.jobs.small import inline, last_counts, operator, reach, word_count, write_graph, write_words


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
    with pytest.raises(UsageError, match=r"already contains epochs? ") as caught:
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
    assert [p.name for p in (tmp_path / STORE).iterdir()] == ["precious.txt"]


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


@pytest.mark.integration
def test_two_stores_do_not_take_turns_at_one_sink(tmp_path: Path, small_batches: Middle) -> None:
    counts = write_words(tmp_path, lines=4_000)
    callbacks, _ = stop_after(1)
    run_job(word_count(), str(tmp_path / STORE), inline(tmp_path, interval=0.02), **callbacks)  # type: ignore[arg-type]
    plan = plan_recovery(store(tmp_path))
    done = restore(plan, word_count(), inline(tmp_path, until="end"), to=str(tmp_path / "copy"))
    assert done.finished
    assert last_counts(tmp_path) == counts
    with pytest.raises(UsageError, match="contains output of attempt"):
        run(word_count(), tmp_path, from_epoch=plan.body.epoch)
    assert last_counts(tmp_path) == counts


def test_no_input_is_an_error_that_names_the_pattern(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file matches 'in/\*\.txt'"):
        run(word_count(), tmp_path)


def test_an_opaque_operator_cannot_be_run(tmp_path: Path) -> None:
    topology = word_count()
    operators = (*topology.operators[:1], msgspec.structs.replace(topology.operators[1], kind=Kind.OPAQUE))
    with pytest.raises(UsageError, match="words is of kind opaque"):
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
    with pytest.raises((FormatError, EngineStopped), match="missing"):
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
