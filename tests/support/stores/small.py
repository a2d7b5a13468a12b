"""Small native stores for tests, written with the writer that the engine uses, of a job that never ran.

The job: `lines` (source, 2 tasks) -> `seen` (distinct, 2 tasks, on a loop with itself) -> `out` (sink, 1 task).
Counters, logs and positions agree, so that every check passes on a store that nobody has touched.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from formats.ids import channel_name, task_name
from formats.job.expand import task_ids
from formats.job.model import Edge, Kind, Operator, Partition, Topology, key_group_range
from formats.native import layout
from formats.native.facts import AttemptFacts, LogFacts, PartFacts, StateFileFacts, TriggerFacts, header
from formats.native.hashing import key_groups
from formats.native.state.row_groups import put_state
from formats.native.state.tables import KEY_GROUP, encode_log
from formats.native.store import NativeStore
from formats.native.writer import (
    complete,
    create,
    put_aborted,
    put_attempt,
    put_fence,
    put_file,
    put_part,
    put_topology,
    put_trigger,
)
from formats.storage import LocalStorage, MemoryStorage, Storage
from formats.view import FileFacts, Position

MAX_PARALLELISM = 8
FIRST = f"{1:032x}"
"""The id of attempt 1 of every store made here."""
TRIGGERED = "2026-01-02T03:04:{:02d}.000Z"


def loop_job(parallelism: int = 2, job: str = "reach") -> Topology:
    """The cyclic job of the module's first lines; a parallelism of 1 makes the smallest such store."""
    p = parallelism
    return Topology(
        job=job,
        operators=(
            Operator("lines", Kind.SOURCE, p, MAX_PARALLELISM, connector={"type": "text", "path": "in/*.txt"}),
            Operator("seen", Kind.DISTINCT, p, MAX_PARALLELISM, key=("line",)),
            Operator("out", Kind.SINK, 1, MAX_PARALLELISM, connector={"type": "jsonl", "path": "out"}),
        ),
        edges=(
            Edge("lines", "seen", Partition.HASH, ("line",)),
            Edge("seen", "seen", Partition.HASH, ("line",)),
            Edge("seen", "out", Partition.REBALANCE),
        ),
    )


def line_of(text: str, own: range) -> str:
    """The text, with a number after it where its key group would not be among these."""
    candidates = [text, *(f"{text}{n}" for n in range(99))]
    groups = key_groups([pa.array(candidates)], MAX_PARALLELISM).tolist()
    return next(line for line, group in zip(candidates, groups, strict=True) if group in own)


@dataclass(frozen=True)
class Build:
    """A store being made: which epochs it gets is up to the caller."""

    storage: Storage
    topology: Topology
    policy: str = "aligned"
    attempt: int = 1

    @property
    def id(self) -> str:
        return f"{self.attempt:032x}"

    @property
    def sha256(self) -> str:
        return put_topology(self.storage, self.topology)

    def width(self, operator: str) -> int:
        return self.topology.operator(operator).parallelism

    def begin(self, *, first_epoch: int = 1, parent: int = 0) -> AttemptFacts:
        """The store's own facts and this attempt's."""
        create(self.storage, self.topology.job)
        facts = AttemptFacts(
            attempt=self.attempt,
            kind="run",
            generation=1,
            parent=parent,
            first_epoch=first_epoch,
            policy=self.policy,
            topology_sha256=self.sha256,
            directory="jobs",
            started=TRIGGERED.format(0),
            id=self.id,
            **header(AttemptFacts),
        )
        put_attempt(self.storage, facts)
        return facts

    def trigger(self, epoch: int, parent: int) -> TriggerFacts:
        facts = TriggerFacts(
            epoch=epoch,
            parent=parent,
            attempt=self.attempt,
            generation=1,
            policy=self.policy,
            topology_sha256=self.sha256,
            triggered=TRIGGERED.format(epoch),
            attempt_id=self.id,
            **header(TriggerFacts),
        )
        put_trigger(self.storage, facts)
        return facts

    def part(self, epoch: int, task: str, base: tuple[StateFileFacts, ...] = ()) -> PartFacts:
        """A task's part, its files written. Per epoch, every channel from `lines` has carried 10 records; every
        back-edge channel 4, of which the last 2 are logged and so not received; those to the sink none, so that it
        names no parts."""
        operator, _, index = task.rpartition("/")
        p, i = self.width("seen"), int(index)
        state, logs, rows = base, [], 0
        sent: dict[str, tuple[int, ...]] = {}
        received: dict[str, tuple[int, ...]] = {}
        positions = None
        if operator == "lines":
            sent = {"seen": (10 * epoch,) * p}
            positions = (Position(f"in/{i}.txt", 100 * epoch, 10 * p * epoch),)
        elif operator == "seen":
            sent = {"seen": (4 * epoch,) * p, "out": (0,)}
            received = {"lines": (10 * epoch,) * p, "seen": (4 * epoch - 2,) * p}
            lines = [line_of(f"{task} {epoch} {x}", key_group_range(i, p, MAX_PARALLELISM)) for x in "ab"]
            groups = key_groups([pa.array(lines)], MAX_PARALLELISM)
            table = pa.table({KEY_GROUP: pa.array(groups), "line": lines})
            state = (*base, put_state(self.storage, layout.state(epoch, task, self.id), table, ["line"]))
            rows = sum(file.rows or 0 for file in state)
            for j in range(p):
                sender = task_name("seen", j)
                batch = pa.record_batch({"line": [f"{sender} x", f"{sender} y"]})
                log = self.file(layout.log(epoch, task, sender, self.id), encode_log([batch]), 2)
                logs.append(LogFacts(channel_name(sender, task), 2, log))
        else:
            received = {"seen": (0,) * p}
        return PartFacts(
            epoch=epoch,
            attempt=self.attempt,
            task_name=task,
            state=state,
            rows=rows,
            logs=tuple(logs),
            sent=sent,
            received=received,
            positions=positions,
            round_robin={"out": 0} if operator == "seen" else {},
            connector=None,
            sink=(),
            finished=False,
            alignment=0.001,
            sync=0.0005,
            async_=0.002,
            attempt_id=self.id,
            **header(PartFacts),
        )

    def file(self, path: str, data: bytes, rows: int) -> FileFacts:
        return put_file(self.storage, path, data, rows)

    def tasks(self) -> list[str]:
        return list(map(str, task_ids(self.topology)))

    def complete(self, epoch: int, parent: int, *, idle: bool = False, base: int | None = None) -> None:
        """A complete epoch. base: an epoch whose state files it refers to as well (nothing is written twice)."""
        trigger = self.trigger(epoch, parent)
        older = {}
        if base is not None:
            older = {part.task_name: part.state for part in self.parts(base)}
        parts = tuple(self.part(epoch, task, older.get(task, ())) for task in self.tasks())
        for part in parts:
            put_part(self.storage, part)
        complete(self.storage, trigger, self.topology.job, parts, idle=idle)

    def parts(self, epoch: int) -> tuple[PartFacts, ...]:
        return NativeStore(self.storage).parts(epoch)

    def open(self, epoch: int, parent: int, *, missing: tuple[str, ...] = (), aborted: str | None = None) -> None:
        """An epoch without a manifest: some tasks have not acked, or it was given up for a reason."""
        self.trigger(epoch, parent)
        for task in self.tasks():
            if task not in missing:
                put_part(self.storage, self.part(epoch, task))
        if aborted is not None:
            facts = NativeStore(self.storage).attempt(layout.attempt(self.attempt))
            put_aborted(self.storage, epoch, facts, aborted)


def make_store(
    where: str | os.PathLike[str] | Storage, *, parallelism: int = 2, policy: str = "aligned", more: bool = True
) -> Build:
    """A store with epochs 1 and 2 complete (2 refers to files of 1), 3 aborted, 4 complete with parent 2, and 5
    incomplete: its last `seen` task and `out/0` have not acked. Without `more`: 1 and an incomplete 2."""
    if not isinstance(where, str | os.PathLike):
        return _build(where, parallelism, policy, more)
    for name, data in _files(parallelism, policy, more).items():
        path = Path(where, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Build(LocalStorage(where), loop_job(parallelism), policy)


@functools.cache
def _files(parallelism: int, policy: str, more: bool) -> dict[str, bytes]:
    """The files of such a store, built once per process: thousands of tests begin with one."""
    memory = MemoryStorage()
    _build(memory, parallelism, policy, more)
    return memory.files


def _build(storage: Storage, parallelism: int, policy: str, more: bool) -> Build:
    build = Build(storage, loop_job(parallelism), policy)
    build.begin()
    build.complete(1, 0)
    missing = (task_name("seen", parallelism - 1), "out/0")
    if not more:
        build.open(2, 1, missing=("out/0",))
        return build
    build.complete(2, 1, base=1)
    build.open(3, 2, missing=missing, aborted="timed out, waiting for out/0")
    build.complete(4, 2, base=2)
    build.open(5, 4, missing=missing)
    return build


def take_over(build: Build) -> Build:
    """The same store in the hands of attempt 2, which went on from epoch 4 and fenced what attempt 1 had left open."""
    later = dataclasses.replace(build, attempt=2)
    attempt = later.begin(first_epoch=7, parent=4)
    for number in (5, 6):
        put_fence(build.storage, number, attempt)
    return later


def in_memory(build: Build) -> MemoryStorage:
    """A copy of a store's bytes, to be damaged."""
    from formats.storage import walk

    copy = MemoryStorage()
    for name, _ in walk(build.storage):
        copy.files[name] = build.storage.read(name)
    return copy
