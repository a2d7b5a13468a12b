"""A part of a task's keyed state on local disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from abscli.engine.state.key_table import KeyIndex
from abscli.engine.state.keyed_state import KeyedState, key_groups_of
from abscli.engine.state.scratch_file import ScratchFile
from formats.native.state.tables import KEY_GROUP

HASH, PROBE, STAMP = range(3)
"""The first columns beside the keys; values follow."""


class SpillFile:
    """What a state was when this was made: its key columns, and what else there is by slot. It may be read by several
    threads."""

    def __init__(self, state: KeyedState) -> None:
        self._key = state.key
        self._file = ScratchFile()
        chunks = (pa.record_batch(chunk, names=list(state.key)) for chunk in state.index.chunks)
        self._keys = [self._file.append(chunk) for chunk in chunks]
        self._rest = self._file.append(_rest(state))

    def load(self, state: KeyedState) -> None:
        """Make an empty state what it was."""
        rest = self._file.read(self._rest)
        hashes, probes, stamps = (rest.column(i).to_numpy().copy() for i in (HASH, PROBE, STAMP))
        index = KeyIndex.of([batch.columns for batch in self._read_keys()], hashes, probes)
        values = {name: rest.column(name) for name in rest.schema.names[STAMP + 1 :]}
        state.come_back(index, stamps, values)

    def table(self, since: int, max_parallelism: int) -> pa.Table:
        """Rows that changed in this interval or later, as a state file has them."""
        rest = self._file.read(self._rest)
        keys = pa.Table.from_batches(self._read_keys())
        groups = pa.array(key_groups_of(rest.column(HASH).to_numpy(), max_parallelism))
        names = rest.schema.names[STAMP + 1 :]
        columns = [groups, *keys.columns, *(rest.column(name) for name in names)]
        table = pa.table(columns, names=[KEY_GROUP, *self._key, *names])
        changed = rest.column(STAMP).to_numpy() >= since
        return (table if changed.all() else table.filter(pa.array(changed))).combine_chunks()

    def _read_keys(self) -> list[pa.RecordBatch]:
        return [self._file.read(place) for place in self._keys]


def _rest(state: KeyedState) -> pa.RecordBatch:
    slots = np.arange(state.rows, dtype=np.int64)
    values = {name: column.take(slots) for name, column in state.values.items()}
    arrays = [pa.array(state.index.hashes[: state.rows]), pa.array(state.index.probes), pa.array(state.stamps)]
    # No column of values is taken for one of these: they are looked up by place.
    return pa.record_batch([*arrays, *values.values()], names=["", "", "", *values])
