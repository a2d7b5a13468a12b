"""Sinks whose rows become a part file a task and epoch, staged until that is complete: what folders and buckets have in
common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO, NamedTuple

import pyarrow as pa

from abscli.engine.sinks.part_files import PART_FILES, PartFile
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import part_name


class Pending(NamedTuple):
    """A part that no complete epoch covers yet.

    staged: the part as its facts have it, when it is durable, or why it could not be made so.
    """

    epoch: int
    part: SinkFile
    staged: Future[SinkFile]


class StagingSink(ABC):
    """One sink task that keeps rows in a file of its own until `cut` names them after the epoch and stages them.
    Whoever writes the manifest makes them visible: a worker that lives on after its job has lost the store can show
    nothing.

    What an aborted epoch staged stays pending: the next complete epoch covers it, and waits for it to be durable.
    path: as facts have it, type: of the files, where the operator's options do not say so.
    attempt: the id of the one that runs; its parts are staged apart from those of any other.
    may_show: called just before a part is staged, and raises where this worker may do nothing any more.
    """

    def __init__(
        self, operator: Operator, index: int, attempt: str, may_show: Callable[[], None], *,
        path: str | None = None, type: str | None = None,
    ) -> None:  # fmt: skip
        options = operator.connector or {}
        self.path: str = options["path"] if path is None else path
        self._type: str = options["type"] if type is None else type
        self._name = operator.id
        self._attempt = attempt
        self._may_show = may_show
        self._index = index
        self._open: PartFile | None = None
        self._unstaged: set[PartFile] = set()
        self._pending: list[Pending] = []

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """See `Sink`."""
        return tuple(one.part for one in self._pending)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `Sink`; JobFailed where a file of the sink's type cannot hold the rows."""
        if not batch.num_rows:
            return
        if self._open is None:
            self._open = self._new_part(self._begin())
        self._open.write(batch)

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """See `Sink`."""
        file, self._open = self._open, None
        if file is not None:
            self._unstaged.add(file)
            file.finish()
            name = part_name(self._index, epoch, self._type)
            part = SinkFile(self.path, name, file.bytes, file.rows, file.sha256)
            self._pending.append(Pending(epoch, part, Future()))
        pending = tuple(self._pending)

        def stage() -> tuple[SinkFile, ...]:
            if file is not None:
                self._stage(file.file, pending[-1])
                self._unstaged.discard(file)
            return tuple(one.staged.result() for one in pending)

        return stage

    def _stage(self, file: IO[bytes], pending: Pending) -> None:
        try:
            part = self._put(file, pending.part)
        except BaseException as error:
            pending.staged.set_exception(error)
        else:
            pending.staged.set_result(part)

    def commit(self, epoch: int) -> None:
        """See `Sink`."""
        self._pending = [one for one in self._pending if one.epoch > epoch]

    def close(self) -> None:
        """Delete the open file, and those that no epoch has staged yet: their rows belong to none."""
        for file in [*self._unstaged, *([self._open] if self._open is not None else [])]:
            file.abandon()
            self._drop(file.file)
        self._open = None
        self._unstaged.clear()

    def _new_part(self, file: IO[bytes]) -> PartFile:
        """Return a part that writes to a file."""
        return PART_FILES[self._type](file, self._name_of(file), self._name)

    @abstractmethod
    def _begin(self) -> IO[bytes]:
        """A file for rows whose epoch is not known yet."""

    @abstractmethod
    def _put(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        """Stage a part, durably; how its facts have it."""

    @abstractmethod
    def _drop(self, file: IO[bytes]) -> None:
        """Close a file that will not be staged, and delete it."""

    @abstractmethod
    def _name_of(self, file: IO[bytes]) -> str:
        """What messages call a file of rows."""
