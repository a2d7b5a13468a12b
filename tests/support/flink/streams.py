"""Streams held in memory: what a handle names is the handle's own bytes."""

from __future__ import annotations

from formats.errors import NotFound
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import (
    InlineHandle,
    KeyGroupsHandle,
    OperatorState,
    OperatorStateHandle,
    StreamHandle,
)
from tests.support.flink.truth import folder, opened


class Inline:
    """Opens inline handles alone."""

    kryo = 5

    def read(self, handle: StreamHandle, offset: int = 0, length: int | None = None) -> bytes:
        if not isinstance(handle, InlineHandle):
            raise NotFound("is not there", path=self.name(handle))
        return handle.data[offset:] if length is None else handle.data[offset : offset + length]

    def size(self, handle: StreamHandle) -> int | None:
        return handle.size if isinstance(handle, InlineHandle) else None

    def name(self, handle: StreamHandle) -> str:
        return "state"


def inline(handle: StreamHandle, streams: Streams) -> InlineHandle:
    """A stream with its bytes beside it."""
    return InlineHandle("state", streams.read(handle))


def held_keyed(handle: KeyGroupsHandle, streams: Streams) -> KeyGroupsHandle:
    assert handle.stream is not None
    return KeyGroupsHandle(handle.tag, handle.first, handle.offsets, inline(handle.stream, streams), handle.id)


def held_operator(handle: OperatorStateHandle, streams: Streams) -> OperatorStateHandle:
    assert handle.stream is not None
    return OperatorStateHandle(handle.states, inline(handle.stream, streams), handle.folders)


def plain_heap(case: str, name: str) -> tuple[OperatorState, KeyGroupsHandle]:
    """A keyed handle of a heap checkpoint, its bytes beside it."""
    store, epoch = opened(folder(case))
    found = store.find_operator(epoch, name)
    handle = next(s.managed_keyed for s in found.subtasks if s.managed_keyed is not None)
    assert isinstance(handle, KeyGroupsHandle)
    return found, held_keyed(handle, store.streams(epoch))
