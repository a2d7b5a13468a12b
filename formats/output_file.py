"""Files that people ask for beside a store: never in it, and whole or as they were."""

from __future__ import annotations

import os
import secrets

from formats.disk import writing
from formats.errors import FormatError
from formats.storage import UNFINISHED, local_name


def check_outside(path: str | os.PathLike[str], folder: str) -> None:
    """FormatError if a file that is to be written would lie in a folder that is only read: there it might take the
    place of one of its own."""
    name, folder = os.fspath(path), local_name(folder)
    if "://" in folder:
        return
    real, inside = os.path.realpath(name), os.path.realpath(folder).rstrip(os.sep) + os.sep
    if (real + os.sep).startswith(inside):
        raise FormatError(f"lies in {folder}, which is read from", path=name, hint="name a place outside of it")


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file in one step, or into a pipe or device as it is. OSError names the file."""
    name = os.fspath(path)
    with writing(name, len(data)):
        if os.path.exists(name) and not os.path.isfile(name):
            with open(name, "wb", buffering=0) as there:
                view = memoryview(data)
                while view:
                    view = view[there.write(view) :]
            return
        target = os.path.realpath(name)  # a link stays one
        temporary = os.path.join(os.path.dirname(target), UNFINISHED + secrets.token_hex(8))
        try:
            with open(temporary, "xb") as new:
                new.write(data)
                new.flush()
                os.fsync(new.fileno())
            os.replace(temporary, target)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
