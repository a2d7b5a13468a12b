"""Files that are written piece by piece, so that they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol, runtime_checkable

from formats.storage.contract import Putting

WHOLE = 8 << 20
"""Bytes up to which a file is put as a whole: one request, where there are requests."""


@runtime_checkable
class TakesPieces(Protocol):
    """A storage that can."""

    def put_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """As of `put_pieces` below."""


def put_pieces(storage: Putting, path: str, pieces: Iterable[bytes]) -> None:
    """Make a file of these pieces appear, durably and in one step; FileExistsError if there is one. If the pieces
    raise, nothing is there. A storage that takes none has all of them in memory first."""
    rest = iter(pieces)
    beginning = _up_to(WHOLE, rest) if isinstance(storage, TakesPieces) else list(rest)
    if sum(map(len, beginning)) > WHOLE and isinstance(storage, TakesPieces):
        storage.put_pieces(path, chain(_given_out(beginning), rest))
    else:
        storage.put(path, b"".join(beginning))


def _up_to(size: int, pieces: Iterator[bytes]) -> list[bytes]:
    """Pieces until they are more than so many bytes."""
    some: list[bytes] = []
    for piece in pieces:
        some.append(piece)
        size -= len(piece)
        if size < 0:
            break
    return some


def _given_out(pieces: list[bytes]) -> Iterator[bytes]:
    """Each is let go of when the next is asked for."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()
