"""A worker fails, and its successor replays the same steps (`--recovery local`), before or after the rows are staged.

The rows differ, since a function is not deterministic. The target gets the rows of the process that the manifest names,
each once, and none of the failed process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from abscli.engine import patience
from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.making import make_sink
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.sinks.postgres import sink as postgres
from formats.ids import EpochId
from formats.native.facts import SinkFile
from formats.native.store import NativeStore
from tests.support.jobs.kinds import KINDS, Kinds, cases
from tests.support.jobs.lines import Lines, write_lines

Stage = Callable[[Lines, NativeStore, EpochId], tuple[SinkFile, ...]]


@pytest.fixture(params=cases(KINDS))
def lines(tmp_path: Path, kinds: Kinds, request: pytest.FixtureRequest) -> Lines:
    write_lines(tmp_path, 3)
    return kinds.lines(request.param, tmp_path)


def staged(
    lines: Lines, store: NativeStore, at: EpochId, line: str, check_lease: Callable[[], None] = lambda: None
) -> tuple[SinkFile, ...]:
    """Stage one row as a new process of the sink's first task, and return the files that the manifest would name."""
    job, epoch = lines.graph, at.number
    sink = make_sink(
        job.operator("out"), 0, str(lines.folder), at.attempt_id, check_lease, job=job.job, storage=store.storage
    )
    sink.write(pa.RecordBatch.from_pylist([{"line": line}]))
    files = sink.cut(epoch)()
    sink.close()
    return files


class LeaseLost(Exception):
    """The lease of a failed worker has ended."""


@dataclass
class FailedWorker:
    """A worker that stops after its lease check, before it stages its rows. Its successor works meanwhile."""

    successor: Callable[[], tuple[SinkFile, ...]]
    named: tuple[SinkFile, ...] = ()

    def check_lease(self) -> None:
        if self.named:
            raise LeaseLost
        self.named = self.successor()


def works(lines: Lines, store: NativeStore, at: EpochId) -> tuple[SinkFile, ...]:
    """Fail after the rows were staged."""
    staged(lines, store, at, "of the failed process")
    return staged(lines, store, at, "of its successor")


def stops(lines: Lines, store: NativeStore, at: EpochId) -> tuple[SinkFile, ...]:
    """Continue after the successor has staged its rows."""
    failed = FailedWorker(lambda: staged(lines, store, at, "of its successor"))
    with contextlib.suppress(LeaseLost, EngineStopped):  # a prepared transaction of the successor has the key
        staged(lines, store, at, "of the failed process", failed.check_lease)
    return failed.named


def stops_again(lines: Lines, store: NativeStore, at: EpochId) -> tuple[SinkFile, ...]:
    """Continue after the successor has staged its rows, as the second of three processes."""
    staged(lines, store, at, "of the first process")
    return stops(lines, store, at)


@pytest.mark.cell("K", "exact", "jsonl", "bucket", "postgres", "upsert", "delta", "iceberg", "kafka")
@pytest.mark.cell("K", "at least once", "stdout")
@pytest.mark.parametrize("stage", [works, stops, stops_again])
def test_the_rows_of_the_process_that_the_manifest_names_are_committed(
    lines: Lines, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT", "200ms")
    monkeypatch.setattr(patience, "SECONDS", 0.5)
    lines.run(epochs=2)
    before, store = lines.shown(), lines.store()
    attempt, newest = store.attempts()[-1], lines.complete()[-1]
    part = next(part for part in store.parts(newest) if str(part.task) == "out/0")
    outputs = Outputs(lines.graph, str(lines.folder))
    with outputs.hold():
        outputs.take(outputs.examine(store, newest), store, attempt)
        files = stage(lines, store, EpochId(attempt.id, newest + 1))
        outputs.publish([replace(part, epoch=newest + 1, sink=files)])
        outputs.publish([replace(part, epoch=newest + 1, sink=files)])
    assert lines.shown() - before == {"of its successor": 1}
    assert before - lines.shown() == {}
