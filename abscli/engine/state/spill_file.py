"""A part of a task's keyed state on local disk, in a file without a name: it is gone with the process that wrote it,
however that ends."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from abscli.engine.state.key_table import KeyIndex
from abscli.engine.state.keyed_state import KeyedState, key_groups_of
from formats.disk import writing
from formats.native.state.tables import KEY_GROUP

HASH, PROBE, STAMP = range(3)
"""The first columns beside the keys; values follow."""


class SpillFile:
    """What a state was when this was made: two streams of Arrow, its key columns and what else there is by slot.

    OSError that names the folder where it cannot be written. It may be read by several threads.
    """

    def __init__(self, state: KeyedState) -> None:
        self._key = state.key
        folder = tempfile.gettempdir()
        keys = [pa.record_batch(chunk, names=list(state.key)) for chunk in state.index.chunks]
        rest = _rest(state)
        with (
            writing(os.path.join(folder, "abs-state"), sum(batch.nbytes for batch in (*keys, rest))),
            tempfile.TemporaryFile(prefix="abs-state-", dir=folder) as file,
        ):
            self._keys = _write(file.fileno(), 0, keys)
            self._rest = _write(file.fileno(), self._keys, [rest])
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def load(self, state: KeyedState) -> None:
        """Make an empty state what it was."""
        rest = self._read_rest()
        hashes, probes, stamps = (rest.column(i).to_numpy().copy() for i in (HASH, PROBE, STAMP))
        index = KeyIndex.of([batch.columns for batch in self._read_keys()], hashes, probes)
        values = {name: rest.column(name) for name in rest.schema.names[STAMP + 1 :]}
        state.come_back(index, stamps, values)

    def table(self, since: int, max_parallelism: int) -> pa.Table:
        """Rows that changed in this interval or later, as a state file has them."""
        rest = self._read_rest()
        keys = pa.Table.from_batches(self._read_keys())
        groups = key_groups_of(rest.column(HASH).to_numpy(), max_parallelism)
        names = rest.schema.names[STAMP + 1 :]
        columns = [groups, *keys.columns, *(rest.column(name) for name in names)]
        table = pa.table(columns, names=[KEY_GROUP, *self._key, *names])
        changed = rest.column(STAMP).to_numpy() >= since
        return (table if changed.all() else table.filter(pa.array(changed))).combine_chunks()

    def _read_keys(self) -> list[pa.RecordBatch]:
        return _read(self._descriptor, 0, self._keys)

    def _read_rest(self) -> pa.RecordBatch:
        (rest,) = _read(self._descriptor, self._keys, self._rest)
        return rest


def _rest(state: KeyedState) -> pa.RecordBatch:
    slots = np.arange(state.rows, dtype=np.int64)
    values = {name: column.take(slots) for name, column in state.values.items()}
    arrays = [pa.array(state.index.hashes[: state.rows]), pa.array(state.index.probes), pa.array(state.stamps)]
    # No column of values is taken for one of these: they are looked up by place.
    return pa.record_batch([*arrays, *values.values()], names=["", "", "", *values])


def _write(descriptor: int, offset: int, batches: Sequence[pa.RecordBatch]) -> int:
    """The bytes that were written."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.seek(offset)
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return file.tell() - offset


def _read(descriptor: int, offset: int, length: int) -> list[pa.RecordBatch]:
    buffer = pa.allocate_buffer(length)
    view, done = memoryview(buffer), 0
    while done < length:
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise OSError(errno.EIO, "state that was put on disk cannot be read again", tempfile.gettempdir())
        done += count
    return list(pa.ipc.open_stream(buffer))
