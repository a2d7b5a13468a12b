"""Lists that are known to be new enough, of servers whose lists may lag.

A gateway with a cache may answer a list as it was at some earlier time, while objects that are asked for by name are
as they are now. So whoever decides by a list puts a marker into the listed folder first. A list that shows the marker
is at least as new as the marker, and shows all that was written before it.

A list of more than 1,000 names comes in pages, and the marker is on the first one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final, TypeVar

from formats.errors import FormatError
from formats.storage.contract import UNFINISHED, Storage
from formats.waiting import NoAnswer, waits

MARKER: Final = f"{UNFINISHED}look-"
SECONDS: Final = 60.0
"""For which a list is repeated until it shows the marker."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
SILENT: Final = 5.0
"""Seconds after which the user is told."""

L = TypeVar("L")


def fresh_list(
    storage: Storage, folder: str, look: Callable[[], L], shows: Callable[[L, str], bool],
    delete: Callable[[str], None],
) -> L:  # fmt: skip
    """Return a list of a folder that shows all that was written before the call.

    look: makes one list. shows: whether a list shows a name in the folder.
    Raises FormatError for a server whose lists lag for too long.
    """
    name = f"{MARKER}{secrets.token_hex(8)}"
    path = f"{folder}/{name}" if folder else name
    storage.put(path, b"1")
    try:
        begun, pause, is_told = time.monotonic(), FIRST_PAUSE, False
        while not shows(listed := look(), name):
            waited = time.monotonic() - begun
            if waited >= SILENT and not is_told:
                is_told = True
                waits(NoAnswer(storage.root, "its lists do not show an object that was written just now", SECONDS))
            if waited > SECONDS:
                raise FormatError(
                    f"the lists of the server there do not show an object that was written {SECONDS:.0f} s ago",
                    path=f"{storage.root}/{folder}" if folder else storage.root,
                    hint="turn off the cache for lists of the gateway or proxy, or use the object store itself",
                )
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        return listed
    finally:
        delete(path)
