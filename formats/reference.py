"""What a user types for a store or one of its epochs: `PATH`, `PATH@7`, `PATH@latest`."""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import FormatError


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
