"""From a reference to a store: what kind of checkpoint lies at a path, and which epoch of it is meant."""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import FormatError, NotFound
from formats.native.reader import NativeStore
from formats.storage import open_storage


class BadReference(FormatError):
    """A reference that is not PATH, PATH@7 or PATH@latest."""


class Reference(NamedTuple):
    """`PATH@7`, `PATH@latest` or `PATH`. epoch: a number, `latest`, or None for the path alone."""

    path: str
    epoch: int | str | None


def parse_reference(text: str) -> Reference:
    """Split a reference; BadReference if what follows the last `@` is neither a number nor `latest`."""
    path, at, epoch = text.rpartition("@")
    if not at or "/" in epoch:
        return Reference(text, None)
    if path and epoch == "latest":
        return Reference(path, "latest")
    if path and re.fullmatch(r"[0-9]{1,18}", epoch):
        return Reference(path, int(epoch))
    raise BadReference(
        f"{text!r}: what follows @ must be an epoch number or 'latest', not {epoch!r}", hint="for example store@7"
    )


def open_store(path: str) -> NativeStore:
    """The store at a path, its format recognised from what is there; NotFound if there is none."""
    return NativeStore(open_storage(path))


def resolve_epoch(store: NativeStore, epoch: int | str | None) -> int:
    """The epoch number that a reference means: a number as it is, otherwise the newest complete one; NotFound."""
    if isinstance(epoch, int):
        if epoch not in store.epoch_numbers():
            raise store.no_epoch(epoch)
        return epoch
    latest = store.latest()
    if latest is None:
        raise NotFound("no complete epoch", path=store.path, hint="`abs inspect` shows the ones that were begun")
    return latest
