"""The option `--path-map OLD=NEW`, whose paths may contain `=`, as those of partitions do (`dt=2026-01-01`)."""

from __future__ import annotations

import re
from typing import Final

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def splits(text: str) -> list[tuple[str, str]]:
    """All ways to read OLD=NEW, the most likely first: NEW begins at a `=` that an absolute path follows.

    A relative NEW begins at the first `=`. Empty if there is no `=`.
    """
    places = [at for at, character in enumerate(text) if character == "="]
    absolute = [at for at in places if _ABSOLUTE.match(text, at + 1)]
    return [(text[:at], text[at + 1 :]) for at in absolute or places[:1]]


def split_map(text: str) -> tuple[str, str]:
    """OLD and NEW, in the most likely way; NEW is empty if there is no `=`."""
    return next(iter(splits(text)), (text, ""))
