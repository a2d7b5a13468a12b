"""Uploads in pieces: begun, filled, completed or given up by whoever knows an upload's id, long after.

obstore uploads in parts, too, and names no upload: what one process has begun no other can complete, and nobody can
repeat a request that begins or completes one. What does it lies in the rooms `s3`, `azure` and `google`, as `uploads`
of each; `uploading` gives those of a place.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.errors import FormatError

if TYPE_CHECKING:
    from concurrent.futures import Future

IDENTITY = "absput"
"""Under this name each object says by which call it was put: a word that all object stores allow."""
PIECE = 8 << 20
"""Bytes in one request; S3 takes no less than 5 MiB, but for the last."""
MOST_PIECES = 9_000
"""Of one upload; S3 takes 10,000."""
PIECES_AT_ONCE = 4


def piece_bytes(size: int) -> int:
    """Return how much of an upload of `size` bytes one request sends."""
    return max(PIECE, -(-size // MOST_PIECES))


class Upload(NamedTuple):
    """One that is neither completed nor given up. path: of the object that it would become; begun: in seconds since
    1970, by the server's clock, or by that of who began it where the server does not say."""

    path: str
    id: str
    begun: float


class Uploads(ABC):
    """Those below a place in a bucket. Paths are relative to the place.

    Raises Unreachable, PermissionError, NotFound where there is no such bucket, and FormatError where no keys are
    known.
    """

    def __init__(self, uri: str) -> None:
        self.root = uri.rstrip("/")

    def piece_bytes(self, size: int) -> int:
        """How much of an upload of so many bytes is put at once."""
        return piece_bytes(size)

    def send(self, path: str, data: Iterable[bytes], identity: str, size: int | None = None) -> bool:
        """Make an object of data appear by a new upload; return as `complete`. If it fails, the upload is aborted.

        data: in chunks of any size, taken in this thread while pieces are on their way.
        size: of all data in bytes, if it is known.
        """
        from concurrent.futures import ThreadPoolExecutor

        id = self.begin(path, identity)
        etags: list[str] = []
        sent: deque[Future[str]] = deque()
        try:
            with ThreadPoolExecutor(PIECES_AT_ONCE, thread_name_prefix="abs-upload") as pool:
                for number, piece in enumerate(_pieces(data, self.piece_bytes(size or 0)), 1):
                    if len(sent) == PIECES_AT_ONCE:  # no more of the data in memory
                        etags.append(sent.popleft().result())
                    sent.append(pool.submit(self.put, path, id, number, piece))
            etags += [future.result() for future in sent]
            return self.complete(path, id, etags, identity)
        except BaseException:
            with contextlib.suppress(FormatError, OSError):  # readers see none of it; a lifecycle rule removes it
                self.abort(path, [id])
            raise

    @abstractmethod
    def begin(self, path: str, identity: str) -> str:
        """The id of a new upload. identity: what the object will say of itself (`ObjectStorage.identity`)."""

    @abstractmethod
    def put(self, path: str, id: str, number: int, data: bytes | memoryview) -> str:
        """Put one piece, numbered from 1; all but the last have `piece_bytes`. What says which bytes these are.

        NotFound where the upload was given up, and the server knows that.
        """

    @abstractmethod
    def complete(self, path: str, id: str, etags: Sequence[str], identity: str) -> bool:
        """Make the object of these parts appear; False if there is no such upload, or not any more.

        identity: as it was begun with. Damaged where the parts are other ones.
        """

    @abstractmethod
    def abort(self, path: str, ids: Collection[str]) -> None:
        """Give uploads of one object up; nothing if they are not there. What was completed stays."""

    @abstractmethod
    def size(self, path: str, id: str) -> int | None:
        """How many bytes its parts have so far; None if there is no such upload."""

    @abstractmethod
    def below(self) -> list[Upload]:
        """All below the place, in the order of their paths."""

    def end(self, paths: Collection[str]) -> None:
        """See to it that no upload makes one of these objects appear, all of which are there, once more. Nothing where
        an upload ends with the request that completes it."""
        return


def _pieces(data: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Return data in pieces of `size` bytes, of which the last may be smaller; at least one."""
    rest, is_begun = bytearray(), False
    for chunk in data:
        rest += chunk
        while len(rest) >= size:
            yield bytes(rest[:size])
            del rest[:size]
            is_begun = True
    if rest or not is_begun:
        yield bytes(rest)
