"""What a sink of a worker has to do, and the `jsonl` sink: a part file a task and epoch, staged until the epoch is
complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO, NamedTuple, Protocol

import pyarrow as pa

from abscli.engine.io.json_lines import json_lines
from formats.disk import sync_folder, writing
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import STAGED, part_name, staged_path
from formats.native.sink_bucket import bucket_place, is_bucket


class Sink(Protocol):
    """One sink task. It stages what belongs to an epoch; what is staged shows once the manifest is durable, and not by
    the worker (`outputs`)."""

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """What no complete epoch covers yet, as far as it is cut."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of the part that is open."""

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """End the part of `epoch`: what makes all parts durable that its completion makes visible, and says which
        these are.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""

    def close(self) -> None:
        """Let go of all that no epoch has staged yet: its rows belong to none."""


class Pending(NamedTuple):
    """A part that no complete epoch covers yet.

    staged: the part as its facts have it, when it is durable, or why it could not be made so.
    """

    epoch: int
    part: SinkFile
    staged: Future[SinkFile]


def folder_of(operator: Operator, directory: str, sinks_in: str | None = None) -> str:
    """Where a sink writes, a folder or a place in a bucket. directory: of the job file; sinks_in: a folder with one for
    each sink, in place of it."""
    assert operator.connector is not None
    path = operator.connector["path"]
    return place_of(directory, path) if sinks_in is None else os.path.join(sinks_in, operator.id)


def place_of(directory: str, path: str) -> str:
    """Where a sink's path leads. directory: of the job file."""
    return bucket_place(path) if is_bucket(path) else os.path.normpath(os.path.join(directory, path))


class StagingSink(ABC):
    """One sink task that keeps rows in a file of its own until `cut` names them after the epoch and stages them.
    Whoever writes the manifest makes them visible: a worker that lives on after its job has lost the store can show
    nothing.

    What an aborted epoch staged stays pending: the next complete epoch covers it, and waits for it to be durable.
    path: as facts have it. attempt: the id of the one that runs; its parts are staged apart from those of any other.
    may_show: called just before a part is staged, and raises where this worker may do nothing any more.
    """

    def __init__(self, path: str, index: int, attempt: str, may_show: Callable[[], None]) -> None:
        self.path = path
        self._attempt = attempt
        self._may_show = may_show
        self._index = index
        self._open: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._unstaged: set[IO[bytes]] = set()
        self._rows = 0
        self._bytes = 0
        self._pending: list[Pending] = []

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """As of `Sink`."""
        return tuple(one.part for one in self._pending)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows as JSON lines, columns in order, nulls kept, NaN and infinities by name."""
        if not batch.num_rows:
            return
        if self._open is None:
            self._open = self._begin()
        for data in json_lines(batch):
            with writing(self._name_of(self._open), len(data)):
                self._open.write(data)
            self._digest.update(data)
            self._bytes += len(data)
        self._rows += batch.num_rows

    def cut(self, epoch: int) -> Callable[[], tuple[SinkFile, ...]]:
        """As of `Sink`."""
        file, self._open = self._open, None
        if file is not None:
            self._unstaged.add(file)
            part = SinkFile(self.path, part_name(self._index, epoch), self._bytes, self._rows, self._digest.hexdigest())
            self._pending.append(Pending(epoch, part, Future()))
            self._digest, self._rows, self._bytes = hashlib.sha256(), 0, 0
        pending = tuple(self._pending)

        def stage() -> tuple[SinkFile, ...]:
            if file is not None:
                self._stage(file, pending[-1])
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
        """As of `Sink`."""
        self._pending = [one for one in self._pending if one.epoch > epoch]

    def close(self) -> None:
        """Delete the open file, and those that no epoch has staged yet: their rows belong to none."""
        for file in [*self._unstaged, *([self._open] if self._open is not None else [])]:
            self._drop(file)
        self._open = None
        self._unstaged.clear()

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


class JsonLinesSink(StagingSink):
    """One sink task that writes to a folder: its rows lie there all the time, and get the part's name when they are
    staged."""

    def __init__(
        self, operator: Operator, index: int, directory: str, attempt: str,
        may_show: Callable[[], None] = lambda: None, *, sinks_in: str | None = None,
    ) -> None:  # fmt: skip
        assert operator.connector is not None
        super().__init__(operator.connector["path"], index, attempt, may_show)
        self._folder = folder_of(operator, directory, sinks_in)
        self._staged = os.path.join(self._folder, STAGED, attempt)
        os.makedirs(self._staged, exist_ok=True)
        for folder in (self._folder, os.path.join(self._folder, STAGED)):
            sync_folder(folder)

    def _begin(self) -> IO[bytes]:
        name = f".open-{self._index:05d}-{secrets.token_hex(4)}"
        return open(os.path.join(self._staged, name), "wb")

    def _put(self, file: IO[bytes], part: SinkFile) -> SinkFile:
        # `close` writes again what could not be written: its error has to be named, too.
        with writing(os.path.join(self._staged, part.name), part.bytes), file:
            file.flush()
            os.fsync(file.fileno())
        self._may_show()
        os.replace(file.name, os.path.join(self._folder, staged_path(self._attempt, part.name)))
        sync_folder(self._staged)
        return part

    def _drop(self, file: IO[bytes]) -> None:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.name)

    def _name_of(self, file: IO[bytes]) -> str:
        return file.name
