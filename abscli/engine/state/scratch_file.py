"""Rows of a task's state on local disk, in a file without a name: it is gone with the process that wrote it, however
that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.errors import EngineStopped
from formats.disk import writing


class Place(NamedTuple):
    """Where a batch lies, in bytes."""

    offset: int
    length: int
    schema: pa.Schema


class ScratchFile:
    """Batches of rows, appended by one thread, and read by any number at the same time.

    bytes: that it has. OSError that names the folder where it cannot be written, EngineStopped where it cannot be read.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._folder = tempfile.gettempdir()
        with (
            writing(self._name),
            tempfile.TemporaryFile(prefix="abs-state-", dir=self._folder, buffering=0) as file,
        ):
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    @property
    def _name(self) -> str:
        return os.path.join(self._folder, "abs-state")

    def append(self, batch: pa.RecordBatch) -> Place:
        """Write a batch, and return where it can be read."""
        data = memoryview(batch.serialize()).cast("B")
        place = Place(self.bytes, len(data), batch.schema)
        with writing(self._name, len(data)):
            while len(data):
                written = os.pwrite(self._descriptor, data, self.bytes)
                self.bytes += written
                data = data[written:]
        return place

    def read(self, place: Place) -> pa.RecordBatch:
        """A batch as it was written."""
        buffer = pa.allocate_buffer(place.length)
        view, done = memoryview(buffer), 0
        while done < place.length:
            try:
                count = os.preadv(self._descriptor, [view[done:]], place.offset + done)
            except OSError as error:
                raise self._unreadable(error.strerror or str(error)) from error
            if not count:
                raise self._unreadable("it is shorter than it was")
            done += count
        return pa.ipc.read_record_batch(buffer, place.schema)

    def _unreadable(self, reason: str) -> EngineStopped:
        # No OSError: while a state file is written, that would be one of the store.
        return EngineStopped(f"state that was put on disk in {self._folder} cannot be read again: {reason}")
