"""Writing a task's part of an epoch, in the background: state, then logs, then the ack file."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.state.copies import StateCopy
from abscli.protocol.schedule import Delta, steps_of
from formats.ids import ChannelId, TaskId
from formats.native import layout
from formats.native.counters import Counters
from formats.native.facts import (
    LogFacts,
    PartFacts,
    ScheduleFacts,
    SinkFile,
    StateFileFacts,
    header,
)
from formats.native.schedules import KINDS, TakenStep, write_steps
from formats.native.state.row_groups import put_tables
from formats.native.state.tables import StateKey, encode_log
from formats.native.writer import put_file, put_part
from formats.storage import Putting, Storage
from formats.view import Position


@dataclass(frozen=True, slots=True)
class PartDraft:
    """What a copy holds by reference. Times in seconds, `copied` monotonic. schedule: the steps up to the copy.
    watermark: behind it. skipped: records so far."""

    task: TaskId
    epoch: int
    attempt: int
    attempt_id: str
    rows: int
    counters: Counters
    positions: tuple[Position, ...] | None
    round_robin: dict[str, int]
    connector: dict[str, str] | None
    finished: bool
    alignment: float
    copied: float
    sync: float
    schedule: Delta | None = None
    watermark: int | None = None
    skipped: int = 0


class Durable(NamedTuple):
    """What does not wait for the logs. state: the files that now hold the task's state, oldest first; sink: what the
    epoch's completion makes visible."""

    state: tuple[StateFileFacts, ...]
    sink: tuple[SinkFile, ...]


def write_state(
    storage: Putting,
    draft: PartDraft,
    copy: StateCopy | None,
    key: StateKey,
    base: tuple[StateFileFacts, ...],
    stage: Callable[[], tuple[SinkFile, ...]] | None,
) -> Durable:
    """Make state durable, and what a sink stages."""
    sink = stage() if stage is not None else ()
    if copy is None:
        return Durable(base, sink)
    path = layout.state(draft.epoch, str(draft.task), draft.attempt_id)
    file = put_tables(storage, path, copy.tables(), key, in_key_order=copy.in_key_order)
    return Durable((*base, file), sink)


def write_part(
    storage: Storage,
    draft: PartDraft,
    durable: Future[Durable],
    logs: dict[ChannelId, list[pa.RecordBatch]],
    back: frozenset[ChannelId],
) -> PartFacts:
    """Write the logs and, when all is durable, the ack file. Parameters as of `write_logs`."""
    part = write_logs(storage, draft, durable, logs, back)
    put_part(storage, part)
    return part


def write_logs(
    storage: Putting,
    draft: PartDraft,
    durable: Future[Durable],
    logs: dict[ChannelId, list[pa.RecordBatch]],
    back: frozenset[ChannelId],
) -> PartFacts:
    """Write the logs; the part, which nobody has acked yet.

    logs: batches by channel. A back edge has an entry also when its log is empty, another channel only when it is not.
    """
    files, sink = durable.result()
    written = []
    for channel in sorted(back | logs.keys(), key=str):
        batches = logs.get(channel, [])
        rows = sum(batch.num_rows for batch in batches)
        path = layout.log(draft.epoch, str(draft.task), str(channel.sender), draft.attempt_id)
        file = put_file(storage, path, encode_log(batches), rows) if rows else None
        written.append(LogFacts(str(channel), rows, file))
    return PartFacts(
        epoch=draft.epoch,
        attempt=draft.attempt,
        task_name=str(draft.task),
        state=files,
        rows=draft.rows,
        logs=tuple(written),
        sent=draft.counters.sent_by_operator(),
        received=draft.counters.received_by_operator(),
        positions=draft.positions,
        round_robin=draft.round_robin,
        connector=draft.connector,
        sink=sink,
        finished=draft.finished,
        alignment=round(draft.alignment, 6),
        sync=round(draft.sync, 6),
        async_=round(time.monotonic() - draft.copied, 6),
        attempt_id=draft.attempt_id,
        schedule=_schedule(draft.schedule) if draft.schedule is not None else None,
        watermark=draft.watermark,
        skipped=draft.skipped,
        **header(PartFacts),
    )


def _schedule(piece: Delta) -> ScheduleFacts | None:
    steps = write_steps(TakenStep(KINDS[step.kind - 1], step.channel, step.number) for step in steps_of(piece))
    return ScheduleFacts(piece.line, piece.at, steps) if steps is not None else None
