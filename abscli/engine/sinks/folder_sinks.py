"""Sinks in a folder: a part file a task and epoch, staged beside those that readers see."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from typing import IO

from abscli.engine.sinks.moves import PartNames
from abscli.engine.sinks.part_files import PART_FILES
from abscli.engine.sinks.places import folder_of
from abscli.engine.sinks.staged.sink import WRITTEN_AS
from abscli.engine.sinks.staging import StagingSink
from formats.disk import sync_folder, writing
from formats.job.model import Operator
from formats.native.facts import SinkFile
from formats.native.sink import STAGED, SinkFolder, staged_path


class FolderSink(StagingSink):
    """One sink task that writes to a folder: its rows lie there all the time, and get the part's name when they are
    staged."""

    def __init__(
        self, operator: Operator, index: int, directory: str, attempt: str,
        may_show: Callable[[], None] = lambda: None, *, sinks_in: str | None = None,
    ) -> None:  # fmt: skip
        options = operator.connector or {}
        # A sink whose target is no folder is cut off from it by `sinks_in`.
        type = options["type"] if options["type"] in PART_FILES else WRITTEN_AS.get(options["type"], "csv")
        super().__init__(operator, index, attempt, may_show, path=options.get("path", operator.id), type=type)
        self._folder = folder_of(operator, directory, sinks_in)
        self._staged = os.path.join(self._folder, STAGED, attempt)
        self._names = PartNames(SinkFolder(self._folder))
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
        unfinished = staged_path(self._attempt, os.path.basename(file.name))
        self._names.stage(unfinished, staged_path(self._attempt, part.name), self._may_show)
        sync_folder(self._staged)
        return part

    def _drop(self, file: IO[bytes]) -> None:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.name)

    def _name_of(self, file: IO[bytes]) -> str:
        return file.name
