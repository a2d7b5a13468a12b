"""The states of an epoch by name: operator states from the metadata, keyed ones from the state files.

Reading the rows is the work of `formats.flink.keyed` and `formats.flink.operator_state`; this module finds the
operator and lists what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.errors import NotFound
from formats.flink.handles import Mode, OperatorState, handles, state_size
from formats.view import StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.flink.store import FlinkStore

KINDS = {Mode.SPLIT_DISTRIBUTE: "list", Mode.UNION: "union", Mode.BROADCAST: "broadcast"}


def list_states(store: FlinkStore, epoch: int) -> list[StateFacts]:
    """Every state, by operator. Keyed state that is not read is one row without a name, and says so."""
    metadata = store.metadata(epoch)
    names = store.names(metadata)
    return [row for operator in metadata.operators for row in _of(operator, names[operator.id])]


def _of(operator: OperatorState, name: str) -> Iterator[StateFacts]:
    keyed = [
        (field, state_size(handle))
        for subtask in operator.subtasks
        for field, handle in handles(subtask)
        if field in ("managed_keyed", "raw_keyed")
    ]
    for field, kind in (("managed_keyed", "keyed"), ("raw_keyed", "raw keyed")):
        sizes = [size for f, size in keyed if f == field]
        if sizes:
            said = "names and rows are in the state files"
            yield StateFacts(name, None, kind, (), None, sum(sizes), said)
    rows: dict[tuple[str, Mode], int] = {}
    for subtask in operator.subtasks:
        if subtask.managed_operator is not None:
            for part in subtask.managed_operator.states:
                rows[part.name, part.mode] = rows.get((part.name, part.mode), 0) + len(part.offsets)
    for (state, mode), number in rows.items():
        yield StateFacts(name, state, KINDS[mode], (), None if mode is Mode.BROADCAST else number, None)


def read_state(store: FlinkStore, epoch: int, operator: str, name: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of one state; NotFound if there is none of that name."""
    found = store.find_operator(epoch, operator)
    raise NotFound(f"operator {found.id} has no state {name!r} that can be read", path=store.path)
