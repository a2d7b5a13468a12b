"""Operator state rewritten, without some states or with other elements: whole elements, in the bytes that Flink
wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection

from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import OperatorPart, OperatorStateHandle, RelativeHandle
from formats.flink.rewriting.prefix import operator_prefix
from formats.flink.rewriting.sink import Sink
from formats.flink.state.operator import elements

Edit = Callable[[str, bytes], bytes | None]
"""From a state and one of its elements to the element of the copy; None: it goes."""


def write_operator_state(
    handle: OperatorStateHandle,
    streams: Streams,
    sink: Sink,
    name: str,
    *,
    without: Collection[str] = (),
    edit: Edit | None = None,
) -> OperatorStateHandle | None:
    """The handle of a stream that was written under this name; None if no state is left, and nothing was written.

    without: names of states that go.
    edit: asked of every element that stays; None: all stay as they are.

    Raises Damaged, NotFound, CannotRewrite.
    """
    kept = [part for part in handle.states if part.name not in without]
    if handle.stream is None or not kept:
        return None
    data = read_stream(streams, handle.stream)
    path = streams.name(handle.stream)
    first = min((offset for part in handle.states for offset in part.offsets), default=len(data))
    reader = Reader(data, path, 0, first)
    reader.kryo = streams.kryo
    meta, prefix = operator_prefix(reader)
    out = bytearray(prefix.without(without).encode())
    parts = []
    for part in kept:
        offsets = []
        for element in elements(data, handle, part, path, compressed=meta.compressed):
            new = element if edit is None else edit(part.name, element)
            if new is not None:
                offsets.append(len(out))
                out += new
        parts.append(OperatorPart(part.name, part.mode, tuple(offsets)))
    size = sink.write_pieces(name, [bytes(out)])
    return OperatorStateHandle(tuple(parts), RelativeHandle(name, size))
