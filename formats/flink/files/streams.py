"""Opening the streams that handles name: the one interface between metadata and state data."""

from __future__ import annotations

from typing import Protocol

from formats.errors import Damaged
from formats.flink.metadata.handles import StreamHandle


class Streams(Protocol):
    """The bytes of a checkpoint's streams, wherever its files lie.

    Offsets are within the stream: of a segment, from its start. Nothing outside the directories that the user named is
    opened. `name` is what messages call the stream; `kryo` the major version of Kryo of the Flink that wrote them.
    """

    @property
    def kryo(self) -> int:
        """2 (Flink 1.x) or 5 (Flink 2.x)."""

    def read(self, handle: StreamHandle, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a stream, or a slice of them, as far as they are there (check the length).

        Damaged if its file is not there.
        """

    def size(self, handle: StreamHandle) -> int | None:
        """How many bytes of the stream are really there; None if its file is not there."""

    def name(self, handle: StreamHandle) -> str:
        """Path of the file that holds it, relative to the store where it lies there; for inline bytes `_metadata`."""


def read_stream(streams: Streams, handle: StreamHandle | None, offset: int = 0, length: int | None = None) -> bytes:
    """A slice of a stream, which must be there whole: Damaged, NotFound."""
    if handle is None:
        raise Damaged("a handle without a stream")
    data = streams.read(handle, offset, length)
    due = handle.size - offset if length is None else length
    if len(data) < due:
        raise Damaged(
            f"ends too early: {due} bytes are needed from offset {offset}, {len(data)} are there",
            path=streams.name(handle),
        )
    return data
