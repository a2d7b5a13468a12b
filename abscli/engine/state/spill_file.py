"""A part of a task's keyed state on local disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from abscli.engine.state.key_table import KeyIndex
from abscli.engine.state.keyed_state import NEVER, REMOVED, KeyedState, key_groups_of
from abscli.engine.state.scratch_file import ScratchFile
from formats.native.hashing import hash_rows
from formats.native.state.tables import DUE, KEY_GROUP

HASH, PROBE, STAMP, TIME = range(4)
"""The first columns beside the keys; values follow. TIME: when a key is due, null in state that does not expire."""


class SpillFile:
    """What a state was when this was made: its key columns, and what else there is by slot. It may be read by several
    threads."""

    def __init__(self, state: KeyedState) -> None:
        self._key = state.keyed_by
        self._file = ScratchFile()
        chunks = (pa.record_batch(chunk, names=list(state.key)) for chunk in state.index.chunks)
        self._keys = [self._file.append(chunk) for chunk in chunks]
        self._rest = self._file.append(_rest(state))

    def load(self, state: KeyedState) -> None:
        """Make an empty state what it was."""
        rest = self._file.read(self._rest)
        hashes, probes, stamps = (rest.column(i).to_numpy().copy() for i in (HASH, PROBE, STAMP))
        index = KeyIndex.of([batch.columns for batch in self._read_keys()], hashes, probes)
        values = {name: rest.column(i) for i, name in enumerate(rest.schema.names) if i > TIME}
        state.come_back(index, stamps, values, rest.column(TIME).to_numpy().copy() if state.expires else None)

    def table(self, since: int, max_parallelism: int) -> pa.Table:
        """Rows that changed in this interval or later, as a state file has them: of NEVER on, all of keys that are
        there."""
        rest = self._file.read(self._rest)
        keys = pa.Table.from_batches(self._read_keys()).combine_chunks()
        hashes = rest.column(HASH).to_numpy()
        if self._key.placed < len(self._key.columns):
            hashes = hash_rows([keys.column(name).chunk(0) for name in self._key.placing])
        columns = {KEY_GROUP: pa.array(key_groups_of(hashes, max_parallelism))}
        columns |= dict(zip(self._key.columns, keys.columns, strict=True))
        columns |= {name: rest.column(i) for i, name in enumerate(rest.schema.names) if i > TIME}
        wanted = rest.column(STAMP).to_numpy() >= since
        if not pa.types.is_null(rest.column(TIME).type):
            times = rest.column(TIME).to_numpy()
            columns[DUE] = pa.array(times, mask=times == REMOVED)
            wanted &= (since > NEVER) | (times != REMOVED)
        table = pa.table(columns)
        return (table if wanted.all() else table.filter(pa.array(wanted))).combine_chunks()

    def _read_keys(self) -> list[pa.RecordBatch]:
        return [self._file.read(place) for place in self._keys]


def _rest(state: KeyedState) -> pa.RecordBatch:
    count = state.index.count
    slots = np.arange(count, dtype=np.int64)
    values = {name: column.take(slots) for name, column in state.values.items()}
    times = pa.nulls(count) if state.times is None else pa.array(state.times)
    arrays = [pa.array(state.index.hashes[:count]), pa.array(state.index.probes), pa.array(state.stamps), times]
    # No column of values is taken for one of these: they are looked up by place.
    return pa.record_batch([*arrays, *values.values()], names=["", "", "", "", *values])
