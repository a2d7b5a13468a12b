"""A real job whose tasks are watched: the frames on every channel and the steps of every task. Afterwards each task can
be run alone, from its copy of an epoch in the store, with nothing but these."""

from __future__ import annotations

import functools
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

from abscli.engine import worker
from abscli.engine.build import build_tasks
from abscli.engine.channels.inbox import Barrier, Batch
from abscli.engine.channels.messages import JobSpec
from abscli.engine.coordinator import Progress, Service
from abscli.engine.job import JobOptions, run_job
from abscli.engine.local.steps import Steps
from abscli.engine.state.memory import StateMemory
from abscli.engine.task import RunningTask
from abscli.protocol.causal import Knowledge
from abscli.protocol.events import TimedOut
from abscli.protocol.schedule import Delta, Step, StepKind
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status
from tests.support.jobs.small import open_gate

Item = Batch | Barrier
STORE = "store"


class Recording:
    """What a job has done. items: by channel, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items: dict[ChannelId, list[Item]] = defaultdict(list)
        self._knowledge = Knowledge()
        self.given_up: list[int] = []
        self._gate_opened_at: int | None = None
        self._spec: JobSpec | None = None
        self._service: Service | None = None

    def run(self, topology: Topology, options: JobOptions, monkeypatch: pytest.MonkeyPatch) -> None:
        """To its end; every third epoch is given up where it can be, and the gate opens when two have been."""
        with monkeypatch.context() as patch:
            patch.setattr(worker, "build_tasks", self._build)
            run_job(topology, str(self.folder / STORE), options, self._progress, self._meet)
        (self.folder / "open").unlink()

    def _build(self, spec: JobSpec, pool: ThreadPoolExecutor, **more: Any) -> list[RunningTask]:
        self._spec = spec
        send = more.pop("send")

        def record(channel: ChannelId, item: Item) -> None:
            self.items[channel].append(item)
            send(channel, item)

        def steps(task: TaskId) -> Steps:
            self._knowledge.begin(task, 1)
            return Steps(self._knowledge, task)

        more["steps"] = steps
        return build_tasks(spec, pool, send=record, **more)

    def _meet(self, service: Service) -> None:
        self._service = service

    def _progress(self, progress: Progress) -> None:
        for epoch in progress.open_epochs:
            if epoch % 3 == 0 and epoch not in self.given_up:
                self.given_up.append(epoch)
                assert self._service is not None
                self._service._do(TimedOut(epoch))
        if progress.epochs >= 4 and len(self.given_up) >= 2 and self._gate_opened_at is None:
            self._gate_opened_at = progress.epoch
            open_gate(self.folder)

    @functools.cached_property
    def store(self) -> NativeStore:
        """Of the job."""
        return NativeStore(LocalStorage(self.folder / STORE))

    @property
    def complete(self) -> list[int]:
        """The epochs that were when the gate was still closed: functions look at it, so what came later they would not
        do again."""
        assert self._gate_opened_at is not None
        rows = self.store.epochs()
        return sorted(row.epoch for row in rows if row.status is Status.COMPLETE and row.epoch <= self._gate_opened_at)

    def behind(self, channel: ChannelId, epoch: int) -> list[Item]:
        """What was sent on a channel after its barrier of the epoch."""
        items = self.items[channel]
        places = (i for i, item in enumerate(items) if isinstance(item, Barrier) and item.epoch == epoch)
        return items[next(places) + 1 :] if epoch else items

    def alone(self, task: TaskId, epoch: int, until: int) -> Alone:
        """The task by itself from its copy of one epoch to that of another."""
        assert self._spec is not None
        spec = msgspec.structs.replace(self._spec, attempt_id=f"{epoch:032x}")
        knowledge = Knowledge()
        knowledge.merge([self._steps_between(task, epoch, until)])
        replay = knowledge.resume(task, 1, 0)
        sent: dict[ChannelId, list[Item]] = defaultdict(list)
        with ThreadPoolExecutor(1) as pool:
            (one,) = build_tasks(
                spec,
                pool,
                epoch=epoch,
                first_epoch=epoch + 1,
                mine=lambda operator, index: TaskId(operator, index) == task,
                send=lambda channel, item: sent[channel].append(item),
                acked=lambda *_: pytest.fail("a copy of an epoch that is over was acked"),
                ended=lambda task: None,
                caught_up=lambda channel: None,
                later=lambda function: function(),
                steps=lambda task: Steps(knowledge, task, replay),
                again=lambda task: True,
                memory=None if spec.state_memory is None else StateMemory(spec.state_memory),
            )
            for channel, inbox in one.inboxes.items():
                for item in self.behind(channel, epoch):
                    inbox.put(item) if isinstance(item, Barrier) else inbox.put_rest(item)
            while one.repeats:
                assert one.step(), f"{task} waits for what never came"
        state = one.operator.state if one.operator is not None else None
        copy = state.copy(until + 1, None) if state is not None else None
        table = pa.concat_tables(copy.tables()) if copy is not None else None
        parts = one.sink.parts if one.sink is not None else ()
        one.close()
        return Alone(dict(sent), table, parts)

    def _steps_between(self, task: TaskId, epoch: int, until: int) -> Delta:
        """As if they were all that is known of the task."""
        schedule = self._knowledge.schedule(task)
        assert schedule is not None
        steps = list(schedule.steps())
        start = steps.index(Step(StepKind.COPIED, 0, epoch)) + 1 if epoch else 0
        end = steps.index(Step(StepKind.COPIED, 0, until))
        return Delta(task, 1, 0, 0, b"".join(step.encode() for step in steps[start:end]))


@dataclass(frozen=True, slots=True)
class Alone:
    """What a task that ran alone sent, its state (None: none), and what its sink staged."""

    sent: dict[ChannelId, list[Item]]
    state: pa.Table | None
    parts: tuple[Any, ...] = field(default=())


def digests(items: list[Item]) -> list[int | str]:
    """Of frames as the wire has them: numbers, places of barriers, and the bytes of the rows."""
    return [
        f"barrier {item.epoch} at {item.watermark}" if isinstance(item, Barrier)
        else xxhash.xxh3_64_intdigest(memoryview(item.rows.serialize()), item.first)
        for item in items
    ]  # fmt: skip
