"""The `jsonl` sink of a worker: a part file a task and epoch, staged until the epoch is complete."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.disk import writing
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import STAGED, part_name, staged_path
from formats.values import name_of


class Pending(NamedTuple):
    """A part that no complete epoch covers yet.

    staged: set when it is durable, or could not be made so.
    """

    epoch: int
    part: SinkFile
    staged: Future[None]


class JsonLinesSink:
    """One sink task. Rows go to a temporary file; `cut` names it after the epoch. Whoever writes the manifest makes
    it visible: a worker that lives on after its job has lost the store can show nothing.

    What an aborted epoch staged stays pending: the next complete epoch covers it, and waits for it to be durable.
    attempt: the id of the one that runs; its parts are staged apart from those of any other.
    """

    def __init__(self, operator: Operator, index: int, directory: str, attempt: str) -> None:
        assert operator.connector is not None
        self.path: str = operator.connector["path"]
        self._folder = os.path.join(directory, self.path)
        self._staged = os.path.join(self._folder, STAGED, attempt)
        self._attempt = attempt
        self._index = index
        self._open: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._rows = 0
        self._bytes = 0
        self._pending: list[Pending] = []
        self._encoder = msgspec.json.Encoder()
        os.makedirs(self._staged, exist_ok=True)
        for folder in (self._folder, os.path.join(self._folder, STAGED)):
            sync_folder(folder)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows as JSON lines, columns in order, nulls kept, NaN and infinities by name."""
        if not batch.num_rows:
            return
        data = self._encoder.encode_lines(_rows(batch))
        if self._open is None:
            name = f".open-{self._index:05d}-{secrets.token_hex(4)}"
            self._open = open(os.path.join(self._staged, name), "wb")  # noqa: SIM115 - `finish` closes it
        with writing(self._open.name, len(data)):
            self._open.write(data)
        self._digest.update(data)
        self._rows += batch.num_rows
        self._bytes += len(data)

    def cut(self, epoch: int) -> tuple[tuple[SinkFile, ...], Callable[[], None]]:
        """End the part of `epoch`: all parts that its completion makes visible, and what makes them durable.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """
        file, self._open = self._open, None
        if file is not None:
            part = SinkFile(self.path, part_name(self._index, epoch), self._bytes, self._rows, self._digest.hexdigest())
            self._pending.append(Pending(epoch, part, Future()))
            self._digest, self._rows, self._bytes = hashlib.sha256(), 0, 0
        pending = tuple(self._pending)

        def stage() -> None:
            if file is not None:
                self._stage(file, pending[-1])
            for one in pending:
                one.staged.result()

        return tuple(one.part for one in pending), stage

    def _stage(self, file: IO[bytes], pending: Pending) -> None:
        try:
            with file, writing(os.path.join(self._staged, pending.part.name), pending.part.bytes):
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, os.path.join(self._folder, staged_path(self._attempt, pending.part.name)))
            sync_folder(self._staged)
        except BaseException as error:
            pending.staged.set_exception(error)
        else:
            pending.staged.set_result(None)

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""
        self._pending = [one for one in self._pending if one.epoch > epoch]

    def close(self) -> None:
        """Let go of the open file; its rows belong to no epoch."""
        if self._open is not None:
            self._open.close()
            self._open = None


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as JSON has them: a float that is not finite by its name, since null is another value (and key)."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_floating(column.type):
            finite = pc.fill_null(pc.is_finite(column.cast(pa.float64())), True)
            odd = np.flatnonzero(~finite.to_numpy(zero_copy_only=False))
        else:
            odd = np.arange(len(rows) if pa.types.is_nested(column.type) else 0)
        for i in odd.tolist():
            rows[i][name] = _named(rows[i][name])
    return rows


def _named(value: Any) -> Any:
    """A value in which floats that are not finite are named, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return value


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


