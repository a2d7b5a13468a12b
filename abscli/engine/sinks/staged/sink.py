"""A sink's task whose rows lie in the store, as a file of the epoch that its manifest names, until the driver has
written them to the target."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import msgspec

from abscli.engine.sinks.part_files import PartFile
from abscli.engine.sinks.staging import StagingSink
from formats.ids import TaskId
from formats.job.model import Operator
from formats.native import layout
from formats.native.facts import SinkFile
from formats.native.sink import epoch_of_part
from formats.scratch import scratch
from formats.storage import Storage
from formats.storage.pieces import WHOLE, put_pieces

PIECE = 1 << 20
WRITTEN_AS = {"postgres": "csv", "stdout": "jsonl", "delta": "parquet", "iceberg": "parquet", "kafka": "jsonl"}
"""How rows are staged, by the type of the sink: as the target takes them."""


NewPart = Callable[[IO[bytes], str, str], PartFile]


class Staging(NamedTuple):
    """A store for staged rows, and the target that they are staged for.

    storage: the store.
    title: the target's name in facts.
    try_rows: see `Target.try_rows`.
    new_part: makes a part of rows, from a file, what messages call it, and the sink.
    """

    storage: Storage
    title: str
    try_rows: Callable[[IO[bytes]], None]
    new_part: NewPart


class StagedSink(StagingSink):
    """Rows wait in memory, many on this machine's disk, until their epoch is cut."""

    def __init__(
        self, operator: Operator, index: int, attempt: str, may_show: Callable[[], None], *, staging: Staging
    ) -> None:
        type = WRITTEN_AS[(operator.connector or {})["type"]]
        super().__init__(operator, index, attempt, may_show, path=staging.title, type=type)
        self._storage = staging.storage
        self._try_rows = staging.try_rows
        self._make = staging.new_part
        self._task = str(TaskId(operator.id, index))

    def _new_part(self, file: IO[bytes]) -> PartFile:
        return self._make(file, self._name_of(file), self._name)

    def _begin(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(WHOLE, dir=scratch())

    def _put(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        self._may_show()
        path = layout.rows(epoch_of_part(part.name), self._task, self._attempt, secrets.token_hex(8))
        with file:
            self._try_rows(file)
            put_pieces(self._storage, path, _pieces(file))
        return msgspec.structs.replace(part, staged=path)

    def _drop(self, file: IO[bytes]) -> None:
        file.close()

    def _name_of(self, file: IO[bytes]) -> str:
        return f"{scratch()}/(rows of a sink)"


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE):
        yield piece
