"""What a sink of a worker has to do, and the `jsonl` sink: a part file a task and epoch, staged until the epoch is
complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO, NamedTuple, Protocol

import pyarrow as pa

from abscli.engine.io.json_lines import json_lines
from formats.disk import sync_folder, writing
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import STAGED, part_name, staged_path


class Sink(Protocol):
    """One sink task. It stages what belongs to an epoch; what is staged shows once the manifest is durable, and not by
    the worker (`outputs`)."""

    def write(self, batch: pa.RecordBatch) -> None:
        """More rows, of the part that is open."""

    def cut(self, epoch: int) -> tuple[tuple[SinkFile, ...], Callable[[], None]]:
        """End the part of `epoch`: all parts that its completion makes visible, and what makes them durable.

        To be called in the order of the epochs: what makes a later one durable waits for the earlier, and fails if one
        of them has failed.
        """

    def commit(self, epoch: int) -> None:
        """Epoch is complete, and its manifest names what was pending."""

    def close(self) -> None:
        """Let go of all that no epoch has staged yet: its rows belong to none."""


class Pending(NamedTuple):
    """A part that no complete epoch covers yet.

    staged: set when it is durable, or could not be made so.
    """

    epoch: int
    part: SinkFile
    staged: Future[None]


def folder_of(operator: Operator, directory: str, sinks_in: str | None = None) -> str:
    """Where a sink writes. directory: of the job file; sinks_in: a folder with one for each sink, in place of it."""
    assert operator.connector is not None
    return os.path.join(*((directory, operator.connector["path"]) if sinks_in is None else (sinks_in, operator.id)))


class JsonLinesSink:
    """One sink task. Rows go to a temporary file; `cut` names it after the epoch. Whoever writes the manifest makes
    it visible: a worker that lives on after its job has lost the store can show nothing.

    What an aborted epoch staged stays pending: the next complete epoch covers it, and waits for it to be durable.
    attempt: the id of the one that runs; its parts are staged apart from those of any other.
    may_show: called just before a part is staged, and raises where this worker may do nothing any more.
    """

    def __init__(
        self, operator: Operator, index: int, directory: str, attempt: str,
        may_show: Callable[[], None] = lambda: None, *, sinks_in: str | None = None,
    ) -> None:  # fmt: skip
        assert operator.connector is not None
        self.path: str = operator.connector["path"]
        self._folder = folder_of(operator, directory, sinks_in)
        self._staged = os.path.join(self._folder, STAGED, attempt)
        self._attempt = attempt
        self._may_show = may_show
        self._index = index
        self._open: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._unstaged: set[IO[bytes]] = set()
        self._rows = 0
        self._bytes = 0
        self._pending: list[Pending] = []
        os.makedirs(self._staged, exist_ok=True)
        for folder in (self._folder, os.path.join(self._folder, STAGED)):
            sync_folder(folder)

    @property
    def parts(self) -> tuple[SinkFile, ...]:
        """What no complete epoch covers yet, as far as it is cut."""
        return tuple(one.part for one in self._pending)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows as JSON lines, columns in order, nulls kept, NaN and infinities by name."""
        if not batch.num_rows:
            return
        if self._open is None:
            name = f".open-{self._index:05d}-{secrets.token_hex(4)}"
            self._open = open(os.path.join(self._staged, name), "wb")  # noqa: SIM115 - `finish` closes it
        for data in json_lines(batch):
            with writing(self._open.name, len(data)):
                self._open.write(data)
            self._digest.update(data)
            self._bytes += len(data)
        self._rows += batch.num_rows

    def cut(self, epoch: int) -> tuple[tuple[SinkFile, ...], Callable[[], None]]:
        """As of `Sink`."""
        file, self._open = self._open, None
        if file is not None:
            self._unstaged.add(file)
            part = SinkFile(self.path, part_name(self._index, epoch), self._bytes, self._rows, self._digest.hexdigest())
            self._pending.append(Pending(epoch, part, Future()))
            self._digest, self._rows, self._bytes = hashlib.sha256(), 0, 0
        pending = tuple(self._pending)

        def stage() -> None:
            if file is not None:
                self._stage(file, pending[-1])
                self._unstaged.discard(file)
            for one in pending:
                one.staged.result()

        return tuple(one.part for one in pending), stage

    def _stage(self, file: IO[bytes], pending: Pending) -> None:
        try:
            # `close` writes again what could not be written: its error has to be named, too.
            with writing(os.path.join(self._staged, pending.part.name), pending.part.bytes), file:
                file.flush()
                os.fsync(file.fileno())
            self._may_show()
            os.replace(file.name, os.path.join(self._folder, staged_path(self._attempt, pending.part.name)))
            sync_folder(self._staged)
        except BaseException as error:
            pending.staged.set_exception(error)
        else:
            pending.staged.set_result(None)

    def commit(self, epoch: int) -> None:
        """As of `Sink`."""
        self._pending = [one for one in self._pending if one.epoch > epoch]

    def close(self) -> None:
        """Delete the open file, and those that no epoch has staged yet: their rows belong to none."""
        for file in [*self._unstaged, *([self._open] if self._open is not None else [])]:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
        self._open = None
        self._unstaged.clear()
