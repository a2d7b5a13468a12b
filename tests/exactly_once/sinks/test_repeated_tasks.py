"""A worker is lost after it staged rows, and another process takes the same steps again (`--recovery local`).

Its rows differ, as those of a function that is not deterministic. The target gets the rows of the process that the
manifest names, each once, and none of the lost process.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from abscli.engine.sinks.making import make_sink
from abscli.engine.sinks.outputs import Outputs
from formats.native.facts import SinkFile
from formats.native.store import NativeStore
from tests.support.jobs.kinds import KINDS, Kinds, cases
from tests.support.jobs.lines import Lines, write_lines


@pytest.fixture(params=cases(KINDS))
def lines(tmp_path: Path, kinds: Kinds, request: pytest.FixtureRequest) -> Lines:
    write_lines(tmp_path, 3)
    return kinds.lines(request.param, tmp_path)


def staged(lines: Lines, store: NativeStore, attempt_id: str, epoch: int, line: str) -> tuple[SinkFile, ...]:
    """Stage one row as a new process of the sink's first task, and say what the manifest would name."""
    job = lines.graph
    sink = make_sink(
        job.operator("out"), 0, str(lines.folder), attempt_id, lambda: None, job=job.job, storage=store.storage
    )
    sink.write(pa.RecordBatch.from_pylist([{"line": line}]))
    files = sink.cut(epoch)()
    sink.close()
    return files


@pytest.mark.cell("K", "exact", "jsonl", "bucket", "postgres", "upsert", "delta", "iceberg", "kafka")
@pytest.mark.cell("K", "at least once", "stdout")
def test_the_rows_of_the_process_that_the_manifest_names_are_committed(lines: Lines) -> None:
    lines.run(epochs=2)
    before, store = lines.shown(), lines.store()
    attempt, newest = store.attempts()[-1], lines.complete()[-1]
    part = next(part for part in store.parts(newest) if str(part.task) == "out/0")
    outputs = Outputs(lines.graph, str(lines.folder))
    with outputs.hold():
        outputs.take(outputs.examine(store, newest), store, attempt)
        staged(lines, store, attempt.id, newest + 1, "of the lost process")
        files = staged(lines, store, attempt.id, newest + 1, "of its successor")
        outputs.reveal([replace(part, epoch=newest + 1, sink=files)])
        outputs.reveal([replace(part, epoch=newest + 1, sink=files)])
    assert lines.shown() - before == {"of its successor": 1}
    assert before - lines.shown() == {}
