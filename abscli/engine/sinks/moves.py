"""The steps that change what a sink shows, by an attempt that may have lost the sink before any of them.

A process that was stopped and has lost its locks goes on in the middle of a list of names, which the next attempt has
given to parts of its own meanwhile. Looking before a step is not enough, since it may be stopped between the two. So
no step can lose a file, whoever takes it, and whatever others do between its calls:

- A file gets a name by a link, which never replaces another.
- A name is taken away by a rename to one that nobody else knows. Only there is it looked which file that was; it goes
  for good when the file has another name, and else gets its old one back.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import secrets
from collections.abc import Callable
from functools import partial

from abscli.engine.errors import EngineStopped
from formats.disk import sync_folder
from formats.errors import Damaged
from formats.native.sink import CLAIMS, SinkClaim, SinkFolder

_MOVING = "moving-"
"""What the private names begin with, in the folder of claims."""


class PartNames:
    """Names of files in the folder of a sink. Paths are relative to the folder."""

    def __init__(self, folder: SinkFolder) -> None:
        self._folder = folder

    def inode(self, name: str) -> int | None:
        """Return the inode of the file with this name; None if there is none."""
        try:
            return os.stat(self._path(name)).st_ino
        except FileNotFoundError:
            return None

    def stage(self, source: str, name: str, check_lease: Callable[[], None]) -> None:
        """Give a part its staged name, and take the name of its unfinished file away.

        check_lease: raises an error if this worker was replaced.

        Several processes may stage one part: a worker that failed, and its successor, which replays the same steps
        and may make other rows. Each can stop between any two calls. A worker has no successor while its lease is
        valid, so it replaces only a file that had the name before the lease was checked.
        """
        while True:
            older = self.inode(name)
            check_lease()
            if older is not None:
                os.makedirs(self._path(CLAIMS), exist_ok=True)
                self._drop(name, partial(self._has_inode, inode=older))
            try:
                os.link(self._path(source), self._path(name))
            except FileExistsError:
                continue
            os.unlink(self._path(source))
            return

    def _drop(self, name: str, goes: Callable[[str], bool]) -> bool:
        """Take a name away from a file; False if the file got it back.

        goes: decides whether this is the file that loses its name. It is called with the private name that the file has
        meanwhile.
        """
        moving = f"{CLAIMS}/{_MOVING}{secrets.token_hex(16)}"
        try:
            os.rename(self._path(name), self._path(moving))
        except FileNotFoundError:
            return True
        is_gone = goes(moving)
        try:
            if not is_gone:
                os.link(self._path(moving), self._path(name))
            os.unlink(self._path(moving))
        except FileNotFoundError:
            return True  # a new claim has cleared it away, before it looked what shows
        except FileExistsError:
            pass  # the name is another file's by now: this one stays where it is
        return is_gone

    def _has_inode(self, name: str, inode: int) -> bool:
        return self.inode(name) == inode

    def _are_one(self, name: str, other: str) -> bool:
        """Return True if both are names of one file; False if one of them is missing."""
        try:
            return os.path.samefile(self._path(name), self._path(other))
        except FileNotFoundError:
            return False

    def _path(self, path: str) -> str:
        return self._folder.storage.local_path(path)


class Moves(PartNames):
    """Steps in a folder while `claim` is the newest of the folder; EngineStopped afterwards.

    claim: of the attempt that takes the steps; None while nobody has claimed the sink.
    overtaken: makes the error to raise when another attempt has claimed it.
    """

    def __init__(
        self, folder: SinkFolder, claim: SinkClaim | None, overtaken: Callable[[], EngineStopped]
    ) -> None:
        super().__init__(folder)
        self._claim = claim
        self._overtaken = overtaken

    def check(self) -> None:
        """EngineStopped if another attempt has claimed the sink."""
        if not self._is_ours():
            raise self._overtaken()

    def set_aside(self, source: str, target: str, inode: int | None) -> None:
        """Give a part the name `target`, or one beside it where another file has that, and take its old one away.

        inode: of the file that is meant, since another may have the name by now.

        Raises EngineStopped if another attempt has claimed the sink; then no file has lost its name.
        """
        self.check()
        try:
            aside, is_new = self._link_beside(source, target)
        except FileNotFoundError:
            # Whoever has the sink now did the same, or somebody took the file away: it is out of the way.
            self.check()
            return
        if (is_new and self.inode(aside) != inode) or not self._is_ours():
            if is_new:
                self._drop(aside, lambda moving: self._are_one(moving, source))
            raise self._overtaken()
        sync_folder(os.path.dirname(self._path(aside)))
        # What still shows when another attempt has claimed the sink and cleared it is what that one shows.
        if not self._drop(source, lambda moving: self._are_one(moving, aside) and self._is_ours()):
            raise self._overtaken()

    def publish(self, source: str, name: str) -> None:
        """Give a part its visible name, and take the staged one away.

        Raises FileNotFoundError if it is not there, Damaged if another file has the visible name, EngineStopped if
        another attempt has claimed the sink.
        """
        self.check()
        is_new = True
        try:
            os.link(self._path(source), self._path(name))
        except FileExistsError:
            is_new = False
            if not self._are_one(source, name):
                self.check()
                raise Damaged(
                    f"already exists, and differs from the output part {source}", path=self._path(name),
                    hint="move the existing file away, then run `abs run --resume`",
                ) from None  # fmt: skip
        except FileNotFoundError:
            self.check()
            raise
        if not self._is_ours():
            if is_new:
                self._drop(name, lambda moving: self._are_one(moving, source))
            raise self._overtaken()
        self._drop(source, lambda moving: self._are_one(moving, name))

    def drop_double(self, name: str, other: str) -> None:
        """Take a name away from a file that has another one, or that has an equal beside it, as in a copied folder."""
        self._drop(name, lambda moving: self._are_one(moving, other) or self._are_equal(moving, other))

    def clear(self) -> None:
        """Take away what steps have left that were cut off: further names of files that have one.

        To be done by a new claim before it looks what shows: what an older one takes away later is put back by it.
        """
        for entry in self._folder.storage.list(CLAIMS):
            if entry.name.startswith(_MOVING):
                path = self._path(f"{CLAIMS}/{entry.name}")
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_nlink > 1:
                        os.unlink(path)

    def _is_ours(self) -> bool:
        return self._folder.is_newest(self._claim)

    def _link_beside(self, source: str, target: str) -> tuple[str, bool]:
        """Link a file to a name, with a number behind it while others have that; the name, and whether it is new."""
        os.makedirs(os.path.dirname(self._path(target)), exist_ok=True)
        name, suffix = target, 0
        while True:
            try:
                os.link(self._path(source), self._path(name))
            except FileExistsError:
                if self._are_one(source, name):
                    return name, False
                suffix += 1
                name = f"{target}.{suffix}"
            else:
                return name, True

    def _are_equal(self, name: str, other: str) -> bool:
        """Whether two files have the same bytes; False if one of them is gone."""
        try:
            return filecmp.cmp(self._path(name), self._path(other), shallow=False)
        except FileNotFoundError:
            return False
