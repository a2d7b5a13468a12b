"""Write files that users ask for with --out: outside of the store that is read, whole, and not over foreign files.

An existing regular file is replaced only if it is empty, if its content shows that abs wrote it, or with `force`.
Pipes and devices are written as they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from formats.disk import writing
from formats.errors import FormatError
from formats.redaction import refuse_credentials
from formats.storage import UNFINISHED, local_name

OUT = "the path of an output file"
"""What messages call a path that is refused: they do not show it."""


class WouldOverwrite(FormatError):
    """An existing file would be replaced, and nothing in it shows that abs wrote it."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """A kind of file that abs writes.

    name: what it is called in messages.
    recognise: whether the content of a file shows that abs wrote a file of this kind; None if such files have no mark.
    """

    name: str
    recognise: Callable[[BinaryIO], bool] | None = None


def beginning_with(name: str, prefix: bytes) -> OutputKind:
    """Return the kind of files whose first bytes show that abs wrote them."""
    return OutputKind(name, lambda file: file.read(len(prefix)) == prefix)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that is to be written, or replaced if `kind` recognises it.

    force: replace any regular file.
    """

    path: str
    kind: OutputKind
    force: bool = False

    def check(self) -> os.stat_result | None:
        """Raise WouldOverwrite for a foreign file; return the status of what exists, None if nothing does."""
        with writing(self.path):
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return None
            if self.force or not stat.S_ISREG(status.st_mode):
                return status
            if self._is_ours():
                return status
        if self.kind.recognise is None:
            reason = f"a file of {self.kind.name} does not show whether abs wrote it"
        else:
            reason = f"it is no {self.kind.name} that abs wrote"
        hint = "name another file, or force it to be replaced"
        raise WouldOverwrite(f"exists already and is not replaced: {reason}", path=self.path, hint=hint)

    def _is_ours(self) -> bool:
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    return True
                return self.kind.recognise is not None and self.kind.recognise(file)
        except FileNotFoundError:  # removed since
            return True
        except PermissionError:
            return False

    def publish(self, temporary: str) -> None:
        """Give a whole file of the same directory its name. WouldOverwrite if a foreign file has appeared there."""
        target = os.path.realpath(self.path)  # a link stays one
        if self.check() is None:
            try:
                self._link(temporary, target)
            except FileExistsError:
                self.check()
            else:
                return
        os.replace(temporary, target)

    def _link(self, temporary: str, target: str) -> None:
        """Rename a file to a name that must not exist."""
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # the file system has no hard links: an empty file reserves the name
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            os.replace(temporary, target)
        else:
            os.unlink(temporary)


def check_outside(path: str | os.PathLike[str], folder: str) -> None:
    """FormatError if a file that is to be written would lie in a folder that is only read: there it might take the
    place of one of its own."""
    name, folder = os.fspath(path), local_name(folder)
    refuse_credentials(name, OUT)
    if "://" in folder:
        return
    real, inside = os.path.realpath(name), os.path.realpath(folder).rstrip(os.sep) + os.sep
    if (real + os.sep).startswith(inside):
        raise FormatError(f"is inside {folder}, which the command reads", path=name, hint="name a place outside of it")


def write_whole(file: OutputFile, data: bytes) -> None:
    """Write a file in one step, or into a pipe or device as it is. OSError names the file; WouldOverwrite."""
    refuse_credentials(file.path, OUT)
    status = file.check()
    with writing(file.path, len(data)):
        if status is not None and not stat.S_ISREG(status.st_mode):
            with open(file.path, "wb", buffering=0) as there:
                view = memoryview(data)
                while view:
                    view = view[there.write(view) :]
            return
        temporary = temporary_name(file.path)
        try:
            with open(temporary, "xb") as new:
                new.write(data)
                new.flush()
                os.fsync(new.fileno())
            file.publish(temporary)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def temporary_name(path: str) -> str:
    """Return a name for a file until it is whole, in the directory where it will be."""
    return os.path.join(os.path.dirname(os.path.realpath(path)), UNFINISHED + secrets.token_hex(8))
