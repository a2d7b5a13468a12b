"""Jobs whose stores are damaged and repaired: they have as many epochs as their input is long, and die where told.

Run as a program it is one of the jobs in a process of its own, which kills itself before a task acks an epoch, when all
others have; or carries a plan out, and kills itself at its n-th change of the file system.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from abscli.engine import journal
from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import JobOptions, run_job
from abscli.engine.sources.files import jsonl, line_files, text
from abscli.engine.state import part_io
from formats.job.expand import task_ids
from formats.job.model import (
    Aggregate,
    DeadLetter,
    Edge,
    How,
    Join,
    Kind,
    Operator,
    Topology,
    Window,
    WindowKind,
)
from formats.job.written import job_document
from formats.native import layout
from formats.native.facts import ManifestFacts, PartFacts, TriggerFacts
from formats.native.store import NativeStore
from formats.storage import LocalStorage, Storage
from tests.support.jobs.silent import KEEPING, track
from tests.support.jobs.small import FORWARD, HASH, operator, reach, write_graph

FUNCTIONS = """
from pathlib import Path

import pyarrow as pa

SUFFIX = Path(__file__).with_name("suffix")

def words(batch):
    end = SUFFIX.read_text() if SUFFIX.exists() else ""
    words = [word for line in batch["line"].to_pylist() for word in line.split()]
    sizes = [len(word) + (end == "+") for word in words]
    words = [end[1:] if end.startswith("=") else word + end.strip("+") for word in words]
    return pa.record_batch([pa.array(words, pa.string()), pa.array(sizes, pa.int64())], ["word", "size"])

def some_words(batch):
    if any("w7" in line for line in batch["line"].to_pylist()):
        raise ValueError("a poison line")
    return words(batch)
"""
"""What it does hangs on a file that no digest of a module covers."""

PATIENCE = 300.0
CHUNK = 400
"""Bytes that a source reads at a time, and for each epoch."""


def counting(parallelism: int = 2) -> Topology:
    """Words of lines, how often each came and its length, and a sink beside the shuffle and one behind it."""
    p = parallelism
    aggregates = (Aggregate("n", "count", "*"), Aggregate("most", "max", "size"))
    return Topology(
        "counting",
        (
            operator("lines", Kind.SOURCE, p, connector={"type": "text", "path": "in/*.txt"}),
            operator("words", Kind.FLAT_MAP, p, function="counting:words"),
            operator("counts", Kind.REDUCE, p, key=("word",), aggregates=aggregates, emit="epoch"),
            operator("raw", Kind.SINK, p, connector={"type": "jsonl", "path": "raw"}),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("lines", "words", FORWARD),
            Edge("words", "counts", HASH, ("word",)),
            Edge("words", "raw", FORWARD),
            Edge("counts", "out", FORWARD),
        ),
    )


def looping(parallelism: int = 2) -> Topology:
    """Reachability in a graph, in which pairs go round a loop of parallel tasks."""
    return reach(parallelism)


def poisoned() -> Topology:
    """The words, but of lines with `w7` in them, which are dead letters."""
    lines, words, *others = counting().operators
    words = msgspec.structs.replace(words, function="counting:some_words", on_error=DeadLetter("dead"))
    return Topology("poisoned", (lines, words, *others), counting().edges)


def alone() -> Topology:
    """The words with one task for each operator."""
    return counting(1)


def beside() -> Topology:
    """The words, and beside them, joined by nothing, a loop that is never at rest."""
    words, loop = counting(), looping()
    ends = {"out": "reached"}
    operators = tuple(
        msgspec.structs.replace(op, id=ends.get(op.id, op.id), connector={**op.connector, "path": "reached"})
        if op.id in ends and op.connector is not None else op
        for op in loop.operators
    )  # fmt: skip
    edges = tuple(msgspec.structs.replace(edge, target=ends.get(edge.target, edge.target)) for edge in loop.edges)
    return Topology("beside", (*words.operators, *operators), (*words.edges, *edges))


SECOND = 1_000_000


def _timed(name: str, *operators: Operator) -> Topology:
    """Rows with a time, one source for each operator but the sink; the operators have two tasks."""
    event = {"schema": {"key": "string", "at": "timestamp"}, "event_time": {"column": "at", "ordered": True}}
    sources = [
        operator(f"rows{i}", Kind.SOURCE, 1, connector={"type": "jsonl", "path": f"in/{i}.jsonl", **event})
        for i in range(2 if operators[0].join else 1)
    ]
    last, out = operators[-1], operator("out", Kind.SINK, 2, connector={"type": "jsonl", "path": "out"})
    edges = [Edge(source.id, operators[0].id, HASH, ("key",)) for source in sources]
    return Topology(name, (*sources, *operators, out), (*edges, Edge(last.id, "out", FORWARD)))


def _windowed(name: str, window: Window) -> Topology:
    counted = (Aggregate("n", "count", "*"),)
    return _timed(
        name, operator("counts", Kind.REDUCE, 2, key=("key",), aggregates=counted, emit="epoch", window=window)
    )


def windows() -> Topology:
    """Rows by key and window, of which some are open in every snapshot."""
    return _windowed("windows", Window("at", WindowKind.TUMBLING, 20 * SECOND))


def sessions() -> Topology:
    """Rows by key and session."""
    return _windowed("sessions", Window("at", WindowKind.SESSION, 4 * SECOND))


def alarms() -> Topology:
    """Keys that are silent, by a function with state and timers."""
    return _timed("alarms", operator("counts", Kind.PROCESS, 2, key=("key",), function="alarms:track", keeping=KEEPING))


def matched() -> Topology:
    """Rows of two sources that are near in time, and those that have none near."""
    join = Join("rows0", ("at", "at"), 2 * SECOND, SECOND, How.OUTER)
    return _timed("matched", operator("counts", Kind.JOIN, 2, key=("key",), join=join))


TIMED: dict[str, Callable[[], Topology]] = {"windows": windows, "sessions": sessions, "alarms": alarms,
                                         "matched": matched}  # fmt: skip
JOBS: dict[str, Callable[[], Topology]] = {"counting": counting, "alone": alone, "beside": beside, "reach": looping,
                                        "poisoned": poisoned, **TIMED}  # fmt: skip


def write_input(folder: Path, job: str, *, lines: int = 400) -> None:
    """For about so many lines a source task."""
    folder.mkdir(parents=True, exist_ok=True)
    if job == "reach":
        write_graph(folder, nodes=lines // 2)
        return
    if job in TIMED:
        _write_times(folder, lines)
        return
    if job == "beside":
        write_graph(folder, nodes=20, turning=True)
    (folder / "in").mkdir()
    (folder / "counting.py").write_text(FUNCTIONS)
    for i in range(2):
        text = [" ".join(f"w{(i * 7 + k * k + j * j * j) % 331}" for j in range(6)) for k in range(lines)]
        (folder / "in" / f"{i}.txt").write_text("\n".join(text) + "\n")


def _write_times(folder: Path, rows: int) -> None:
    """Of seven keys, each of which is silent from time to time; what the second source has is a second later."""
    (folder / "in").mkdir()
    (folder / "alarms.py").write_text(track(12))
    for source in range(2):
        with (folder / "in" / f"{source}.jsonl").open("w") as file:
            for i in range(rows):
                key = (i * i + i // 50) % 7
                at = datetime(2026, 1, 1) + timedelta(seconds=i + source + 15 * (i // 40))
                file.write(json.dumps({"key": f"k{key}", "at": at.isoformat()}) + "\n")


@dataclass
class Pace:
    """Sources read so many chunks for every epoch that is complete, and for one more."""

    epochs: int = 0
    chunks: int = 1

    def install(self, patch: Callable[[object, str, object], None]) -> None:
        """For the whole process. patch: as `setattr`."""
        reads: dict[int, int] = {}
        patch(line_files, "CHUNK", CHUNK)
        for kind in (text.TextSource, jsonl.JsonLinesSource):
            patch(kind, "read", self._slowed(kind.read, reads))

    def _slowed(self, plain: Callable[..., pa.RecordBatch | None], reads: dict[int, int]) -> Callable[..., object]:
        def read(source: text.TextSource | jsonl.JsonLinesSource) -> pa.RecordBatch | None:
            done = reads.get(id(source), 0)
            if done >= (self.epochs + 1) * self.chunks and not source.finished:
                time.sleep(0.002)
                schema = text.LINES if isinstance(source, text.TextSource) else source._schema
                return pa.RecordBatch.from_pylist([], schema)
            reads[id(source)] = done + 1
            return plain(source)

        return read


def run(folder: Path, job: str, *, policy: str = "aligned", epochs: int | None = None, pace: Pace | None = None,
        from_epoch: int | None = None, epoch_timeout: float = 600.0) -> None:  # fmt: skip
    """To the end, or until so many epochs are complete and one more."""
    services: list[Service] = []

    def progress(progress: Progress) -> None:
        if pace is not None:
            pace.epochs = progress.epochs
        if epochs is not None and progress.epochs >= epochs and services:
            services.pop().request_stop()

    options = JobOptions(str(folder), "job.yaml", engine="inline", interval=0.005, workers=2, keep=None,
                         policy=policy, from_epoch=from_epoch, epoch_timeout=epoch_timeout)  # fmt: skip
    run_job(JOBS[job](), str(folder / "store"), options, progress, services.append)


def opened(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / "store"))


def kill_before_ack(task: str, epoch: int, missing: int) -> None:
    """From now on: SIGKILL before this task acks the epoch (or a later one), when all but so many others have."""
    plain = part_io.put_part

    def put(storage: Storage, part: PartFacts) -> None:
        if str(part.task) == task and part.epoch >= epoch:
            names = map(str, task_ids(NativeStore(storage).topology(part.epoch)))
            others = [layout.ack(part.epoch, name, part.attempt_id) for name in names if name != task]
            until = time.monotonic() + PATIENCE
            while sum(storage.size(path) is None for path in others) >= missing and time.monotonic() < until:
                time.sleep(0.002)
            os.kill(os.getpid(), signal.SIGKILL)
        plain(storage, part)

    part_io.put_part = put


def kill_before_manifest(epoch: int) -> None:
    """From now on: SIGKILL when all tasks have acked the epoch (or a later one), before anything else is written."""
    plain = journal.complete

    def complete(storage: Storage, trigger: TriggerFacts, *more: Any, **named: Any) -> ManifestFacts:
        if trigger.epoch >= epoch:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(storage, trigger, *more, **named)

    journal.complete = complete


def kill_at_change(n: int) -> None:
    """From now on: SIGKILL before the n-th change that goes through the file system's names."""
    left = n

    def dying(plain: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **options)

        return call

    for name in ("link", "rename", "replace", "unlink", "mkdir"):
        setattr(os, name, dying(getattr(os, name)))


def main() -> None:
    """FOLDER run JOB POLICY TASK EPOCH MISSING | FOLDER restore N, where TASK may be `manifest`."""
    folder, what, *more = sys.argv[1:]
    if what == "run":
        job, policy, task, epoch, missing = more
        pace = Pace()
        pace.install(setattr)
        if task == "manifest":
            kill_before_manifest(int(epoch))
        else:
            kill_before_ack(task, int(epoch), int(missing))
        run(Path(folder), job, policy=policy, pace=pace)
    else:
        from abscli.api import read_plan

        kill_at_change(int(more[0]))
        plan = read_plan(f"{folder}/plan.json")
        plan.prepare(job=f"{folder}/job.json", store=plan.plan.store).carry_out()


def write_job(folder: Path, topology: Topology) -> None:
    """The job file, as the command line reads it."""
    # Tests write words where the model has enumerations.
    job = job_document(msgspec.convert(msgspec.to_builtins(topology), Topology))
    (folder / "job.json").write_bytes(msgspec.json.encode(job))


def rows_of(folder: Path, sink: str) -> list[str]:
    """The visible rows of a sink, sorted."""
    parts = (folder / sink).glob("part-*.jsonl")
    return sorted(line for part in parts for line in part.read_text().splitlines())


def last_rows(folder: Path, sink: str, key: str) -> dict[str, object]:
    """The newest visible row of each key."""
    parts = sorted((folder / sink).glob("part-*.jsonl"), key=lambda part: part.name.split("-")[::-1])
    return {row[key]: row for part in parts for row in map(json.loads, part.read_text().splitlines())}


if __name__ == "__main__":
    main()
