"""Sinks in a bucket: a part of a task and epoch is an upload, which nobody sees until it is completed."""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import msgspec

from abscli.engine.sinks.staging import StagingSink
from formats.disk import writing
from formats.job.model import Operator
from formats.native.facts import SinkFile, UploadFacts
from formats.native.sink import PartId
from formats.native.sink_bucket import SinkBucket, object_name
from formats.scratch import scratch
from formats.storage.uploads import PIECE, PIECES_AT_ONCE


class BucketSink(StagingSink):
    """One sink task that writes to a bucket. An upload needs its object's name when it is begun, which has the epoch in
    it: so rows wait in memory, a large part's on this machine's disk, until the epoch is cut."""

    def __init__(
        self, operator: Operator, index: int, place: str, attempt: str, may_show: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(operator, index, attempt, may_show)
        self._uploads = SinkBucket(place).uploads

    def _begin(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(PIECE, dir=scratch())

    def _put(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        with file:
            return self._upload(file, part)

    def _upload(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        self._may_show()
        name = object_name(PartId(self._attempt, part.name))
        size = self._uploads.piece_bytes(part.bytes)
        id = self._uploads.begin(name, part.sha256)
        reading = threading.Lock()

        def put(number: int) -> str:
            with reading, writing(self._name_of(file)):
                piece = _piece(file, (number - 1) * size, min(size, part.bytes - (number - 1) * size))
            return self._uploads.put(name, id, number, piece)

        with ThreadPoolExecutor(PIECES_AT_ONCE, thread_name_prefix="abs-upload") as pool:
            etags = tuple(pool.map(put, range(1, -(-part.bytes // size) + 1)))
        return msgspec.structs.replace(part, upload=UploadFacts(name, id, etags))

    def _drop(self, file: IO[bytes]) -> None:
        file.close()

    def _name_of(self, file: IO[bytes]) -> str:
        return f"{scratch()}/(rows of a sink)"


def _piece(file: IO[bytes], begin: int, size: int) -> bytes | memoryview:
    """Bytes of a file: a large piece is not read into memory, but is the file's own pages."""
    if size > PIECE:
        file.flush()
        whole = mmap.mmap(file.fileno(), begin + size, access=mmap.ACCESS_READ)
        return memoryview(whole)[begin:]
    file.seek(begin)
    return file.read(size)
