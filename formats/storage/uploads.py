"""Uploads in pieces: begun, filled, completed or given up by whoever knows an upload's id, long after.

obstore uploads in parts, too, and names no upload: what one process has begun no other can complete. What does it lies
in the rooms `s3`, `azure` and `google`, as `uploads` of each; `uploading` gives those of a place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple

PIECE = 8 << 20
"""Bytes in one request; S3 takes no less than 5 MiB, but for the last."""
MOST_PIECES = 9_000
"""Of one upload; S3 takes 10,000."""


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
        return max(PIECE, -(-size // MOST_PIECES))

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
