"""What is lent for a while, keys and tokens: asked for when it is needed, and again before it ends."""

from __future__ import annotations

import threading
import time
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Generic, NamedTuple, TypeVar

from formats.errors import FormatError

MACHINE = "http://169.254.169.254"
"""Where a machine in a cloud is told who it is."""
SECONDS = 5.0
EARLY = 300.0
"""Seconds before they end, from which on keys that were lent are asked for anew."""
T = TypeVar("T")


class Lent(NamedTuple, Generic[T]):
    """until: in seconds since 1970."""

    loan: T
    until: float


def lent(source: str, lender: Callable[[], Lent[T]], *, wants: str, hint: str) -> T:
    """What a lender lends, of now or of before; FormatError where it lends nothing.

    source: how it is called, which names what it lends; wants: what is wanted, in words.
    """
    with _lock:
        last: Lent[T] | None = _kept.get(source)
        if last is None or last.until - time.time() < EARLY:
            try:
                last = lender()
            except (OSError, HTTPException, ValueError, KeyError, ElementTree.ParseError) as error:
                raise FormatError(f"no {wants} known, and {source} lends none: {error}", hint=hint) from None
            _kept[source] = last
        return last.loan


_lock = threading.Lock()
_kept: dict[str, Lent[Any]] = {}


def get(url: str, headers: Mapping[str, str], method: str = "GET") -> bytes:
    """What answers there, on this machine itself: through no proxy."""
    request = urllib.request.Request(url, method=method, headers=dict(headers), data=b"" if method != "GET" else None)
    with _direct.open(request, timeout=SECONDS) as reply:
        data: bytes = reply.read()
        return data


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
