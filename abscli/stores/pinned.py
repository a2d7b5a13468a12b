"""Files that a plan relies on: pinned when it is made, compared when it is checked and while they are copied."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from typing import Any

from formats.errors import NotFound, StalePlan
from formats.plan import PinnedFile, Plan
from formats.storage import Storage, ranges

PIECE = 8 << 20
"""Bytes read at a time."""


def pieces(storage: Storage, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    """The bytes of a file or a slice of it, some at a time, and fewer where it ends before; NotFound."""
    done = 0
    while length is None or done < length:
        wanted = PIECE if length is None else min(PIECE, length - done)
        piece = ranges.read(storage, path, start + done, wanted)
        yield piece
        done += len(piece)
        if len(piece) < wanted:
            return


def pin(storage: Storage, path: str) -> PinnedFile:
    """A file as it is now; NotFound."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces(storage, path):
        digest.update(piece)
        size += len(piece)
    return PinnedFile(path, size, digest.hexdigest())


def change(storage: Storage, pinned: PinnedFile) -> str | None:
    """How a file differs from what it was when it was pinned, in words that name it; None if it does not."""
    size = ranges.size(storage, pinned.path)
    if size is None:
        return f"{pinned.path} is missing"
    if size != pinned.bytes:
        return f"{pinned.path} has {size:,} bytes, expected {pinned.bytes:,}"
    try:
        return difference(pinned, pin(storage, pinned.path).sha256)
    except NotFound:  # it went since its size was asked for
        return f"{pinned.path} is missing"


def difference(pinned: PinnedFile, sha256: str) -> str | None:
    """How a digest differs from the one of a pinned file, in words; None if it does not."""
    if sha256 == pinned.sha256:
        return None
    return f"{pinned.path} has SHA-256 {sha256[:12]}…, expected {pinned.sha256[:12]}…"


def check_files(plan: Plan[Any], storage: Storage) -> None:
    """StalePlan, naming the first file that is not what the plan relies on. storage: at the plan's store."""
    for pinned in plan.relies_on:
        problem = change(storage, pinned)
        if problem is not None:
            raise stale(plan, problem)


def stale(plan: Plan[Any], problem: str) -> StalePlan:
    """The error for a plan of which something has changed."""
    where = plan.store or "STORE"
    hint = f"`abs plan-recovery {shlex.quote(where)} --out plan.json` makes a new one: look at it first"
    return StalePlan(f"the plan is no longer valid: {problem}", path=plan.store, hint=hint)
