"""All states of an epoch written at once: a Parquet file each, side by side in processes of their own."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from typing import TYPE_CHECKING, Final, NamedTuple

from abscli.api.rows import Rows
from formats.errors import FormatError
from formats.parallel import process_pool
from formats.query.exported import Exported

if TYPE_CHECKING:
    from formats.reference import ReadOptions
    from formats.view import CheckpointStore, StateFacts

SMALL: Final = 8 << 20
"""Bytes of state up to which starting other processes would take longer than the work."""


class _Task(NamedTuple):
    """What a process is given: the store as it was opened, one of its states, and where that goes."""

    path: str
    system: str
    options: ReadOptions
    epoch: int
    state: StateFacts
    file: str


def export_states(
    opened: tuple[str, str, ReadOptions],
    view: CheckpointStore,
    epoch: int,
    states: Sequence[StateFacts],
    folder: str,
    workers: int | None = None,
) -> Iterator[Exported]:
    """Every state as it is written, in no order.

    opened: path, system and options of the store, for other processes; view: the same, open.
    folder: is there, and has no files of these names.
    workers: processes; None: one for each processor, if there is enough to do.
    """
    tasks = []
    taken: set[str] = set()
    for state in states:
        if state.name is None and len([one for one in states if one.operator == state.operator]) > 1:
            yield Exported(state.operator, None, 0, 0, None, state.opaque or "its states cannot be told apart")
            continue
        file = os.path.join(folder, _file_name(state, taken))
        tasks.append(_Task(*opened, epoch, state, file))
    # the largest first, so that none is left over at the end
    tasks.sort(key=lambda task: -(task.state.bytes or 0))
    if workers is None:
        workers = 1 if _bytes(view, epoch, states) <= SMALL else os.cpu_count() or 1
    if min(workers, len(tasks)) < 2:
        yield from (_export(task, view) for task in tasks)
        return
    with process_pool(min(workers, len(tasks))) as pool:
        for future in as_completed([pool.submit(_export_alone, task) for task in tasks]):
            yield future.result()


def _bytes(view: CheckpointStore, epoch: int, states: Sequence[StateFacts]) -> int:
    """Return how large the states are at most. Flink's metadata does not tell it of operator state."""
    size = sum(SMALL if state.bytes is None else state.bytes for state in states)
    if size > SMALL and any(state.bytes is None for state in states):
        total = view.detail(epoch).facts.state_bytes
        return size if total is None else min(size, total)
    return size


def _file_name(state: StateFacts, taken: set[str]) -> str:
    """A plain name that no other state has."""
    words = state.operator if state.name is None else f"{state.operator}.{state.name}"
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in words).lstrip(".")[:100] or "state"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return f"{name}.parquet"


@functools.lru_cache(maxsize=1)
def _opened(path: str, system: str, options: ReadOptions) -> CheckpointStore:
    """Open the store of an export, once per process: what was read for one state is often needed for the next."""
    from abscli.stores.registry import locate

    found, storage = locate(path, system)
    return found.open(storage, options)


def _export_alone(task: _Task) -> Exported:
    """Write a state in a process that was started for the export."""
    return _export(task, _opened(task.path, task.system, task.options))


def _export(task: _Task, view: CheckpointStore) -> Exported:
    from formats.query.export import write_rows
    from formats.select import Selection, with_places

    operator, name = task.state.operator, task.state.name
    try:
        columns = with_places(view, task.epoch, task.state, None)
        rows = Rows(view, task.epoch, task.state, Selection(tuple(columns)))
        written = write_rows(task.file, rows.schema, iter(rows))
        missing = task.state.opaque or view.hidden(task.epoch, operator, name)
    except FormatError as error:
        return Exported(operator, name, 0, 0, None, str(error))
    return Exported(operator, name, written, os.path.getsize(task.file), task.file, missing)
