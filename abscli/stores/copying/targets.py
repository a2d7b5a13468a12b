"""Where a copy may be made, and by which way: in a directory of this machine, or in a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from abscli.stores.copying.folder import new_folder
from abscli.stores.copying.writer import ANOTHER, ELSEWHERE, NewCopy, in_the_way
from formats.errors import FormatError
from formats.storage import LocalStorage, Storage, common_name, local_name, open_writable


def check_target(to: str, sources: Iterable[str]) -> str:
    """The absolute path or the URI that a copy may be made at; FormatError, or StoreInUse, if something is in the way.

    sources: places that are read from.
    """
    to = local_name(to)
    if "://" not in to:
        return check_folder(to, sources)
    to = to.rstrip("/")
    for source in sources:
        if f"{common_name(to)}/".startswith(f"{common_name(source).rstrip('/')}/"):
            raise FormatError(f"is inside {source}, which the command reads", path=to, hint=ELSEWHERE)
    from abscli.stores.copying.claims import may_be_claimed

    may_be_claimed(open_writable(to))
    return to


def check_folder(to: str, sources: Iterable[str]) -> str:
    """The same of a directory of this machine."""
    to = local_name(to)
    if "://" in to:
        raise FormatError("this kind of copy can only be written to a local directory", path=to,
                          hint="write to a local directory, then move the copy to its destination")  # fmt: skip
    to = os.path.abspath(to)
    if os.path.islink(to):
        leads = os.path.realpath(to)
        raise FormatError(
            f"is a symbolic link to {leads}", path=to, hint=f"use {leads} directly, or choose a new directory"
        )
    real = os.path.realpath(to)
    for source in (os.path.realpath(source) for source in sources if "://" not in source):
        if (real + os.sep).startswith(source.rstrip(os.sep) + os.sep):
            raise FormatError(f"is inside {source}, which the command reads", path=to, hint=ANOTHER)
    if os.path.lexists(to) and not (os.path.isdir(to) and not os.listdir(to)):
        raise in_the_way(to)
    if os.path.ismount(to):
        # Nothing can be renamed to a mount point.
        raise FormatError("is a mount point", path=to, hint="specify a new directory inside the mount point")
    return to


def new_copy(
    to: str, *, work: str, counts: str, progress: Callable[[int], None] = lambda count: None
) -> AbstractContextManager[NewCopy]:
    """A copy that is there (see `check_target`) when the block ends, and not at all, or does not count, if it raises.

    work: digest of all that decides what is written, for who goes on with it.
    counts: the file that makes it count, where it cannot appear in one step.
    progress: told the bytes of what is written.
    """
    if "://" not in to:
        return new_folder(to, progress)
    from abscli.stores.copying.bucket import new_objects

    storage = open_writable(to)
    assert not isinstance(storage, LocalStorage)
    return new_objects(storage, work, counts, progress)


def roots(*storages: Storage) -> list[str]:
    """The places of storages, as `check_target` takes them."""
    return [storage.root for storage in storages]


def work_of(*parts: bytes | str | None) -> str:
    """The digest by which the work of a copy is known: of all that decides what is written."""
    digest = hashlib.sha256()
    for part in parts:
        data = b"" if part is None else part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(b"%d," % len(data) + data)
    return digest.hexdigest()
