"""Writing a task's part of an epoch, in the background: state, then logs, then the ack file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from formats.ids import ends_of
from formats.native import layout
from formats.native.counters import Counters
from formats.native.facts import LogFacts, PartFacts, SinkFile, header
from formats.native.tables import encode_log, encode_state
from formats.native.writer import put_file, put_part
from formats.storage import Storage
from formats.view import FileFacts, Position


@dataclass(frozen=True, slots=True)
class PartDraft:
    """What a copy holds by reference. Times in seconds, `copied` monotonic."""

    task: str
    epoch: int
    attempt: int
    attempt_id: str
    rows: int
    counters: Counters
    positions: tuple[Position, ...] | None
    round_robin: dict[str, int]
    connector: dict[str, str] | None
    sink: tuple[SinkFile, ...]
    finished: bool
    alignment: float
    copied: float
    sync: float


def write_state(
    storage: Storage,
    draft: PartDraft,
    table: pa.Table | None,
    key: Sequence[str],
    base: tuple[FileFacts, ...],
    stage: Callable[[], None] | None,
) -> tuple[FileFacts, ...]:
    """Make state (and what a sink staged) durable; the files that now hold the task's state, oldest first."""
    if stage is not None:
        stage()
    if table is None:
        return base
    path = layout.state(draft.epoch, draft.task, draft.attempt_id)
    return (*base, put_file(storage, path, encode_state(table, key), table.num_rows))


def write_part(
    storage: Storage,
    draft: PartDraft,
    state: Future[tuple[FileFacts, ...]],
    logs: dict[str, list[pa.RecordBatch]],
    back: frozenset[str],
) -> PartFacts:
    """Write the logs and, when all is durable, the ack file.

    logs: batches by channel. A back edge has an entry also when its log is empty, another channel only when it is not.
    """
    files = state.result()
    written = []
    for channel in sorted(back | logs.keys()):
        batches = logs.get(channel, [])
        rows = sum(batch.num_rows for batch in batches)
        sender = ends_of(channel)[0]
        path = layout.log(draft.epoch, draft.task, sender, draft.attempt_id)
        file = put_file(storage, path, encode_log(batches), rows) if rows else None
        written.append(LogFacts(channel, rows, file))
    part = PartFacts(
        epoch=draft.epoch,
        attempt=draft.attempt,
        task=draft.task,
        state=files,
        rows=draft.rows,
        logs=tuple(written),
        sent=draft.counters.sent_by_operator(),
        received=draft.counters.received_by_operator(),
        positions=draft.positions,
        round_robin=draft.round_robin,
        connector=draft.connector,
        sink=draft.sink,
        finished=draft.finished,
        alignment=round(draft.alignment, 6),
        sync=round(draft.sync, 6),
        async_=round(time.monotonic() - draft.copied, 6),
        attempt_id=draft.attempt_id,
        **header(PartFacts),
    )
    put_part(storage, part)
    return part
