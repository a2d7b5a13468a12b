"""Operator state as rows: list and union state element by element, broadcast state entry by entry.

After the prefix (`state_meta`), the handle says where each element of each state begins; it ends where the next one of
any state does, or with the stream. A broadcast state is one element: i32 n, n x (key, value). With compression (`u8` of
the prefix) an element begins with a chunk of one snappy stream for all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from formats.codec import snappy
from formats.errors import Damaged, FormatError
from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import Mode, OperatorPart, OperatorStateHandle
from formats.flink.state.meta import OperatorMeta, StateInfo, read_operator_meta
from formats.flink.types.codecs import codec
from formats.flink.types.values import BROKEN, POSSIBLY, Codec, HiddenValue, Opaque, opaque

_I32: Final = struct.Struct(">i").unpack_from


@dataclass(slots=True)
class OperatorRows:
    """One operator state of one subtask.

    keys: None unless it is a broadcast state.
    problem: why rows are missing.
    """

    name: str
    mode: Mode
    value: Codec
    key: Codec | None = None
    keys: list[Any] | None = None
    values: list[Any] = field(default_factory=list)
    problem: FormatError | None = None

    @property
    def hidden(self) -> str | None:
        """A class among the values that only the job can read; None if there is none."""
        met = next((value.name for value in (*self.values, *(self.keys or ())) if isinstance(value, Opaque)), None)
        return met or (None if self.value.hides in POSSIBLY else self.value.hides)


def operator_meta(handle: OperatorStateHandle, streams: Streams) -> OperatorMeta | None:
    """The states that a handle describes; None if there are none."""
    if handle.stream is None or not handle.states:
        return None
    offsets = [offset for part in handle.states for offset in part.offsets]
    data = read_stream(streams, handle.stream, 0, min(offsets, default=None))
    return _described(Reader(data, streams.name(handle.stream)), streams)


def _described(reader: Reader, streams: Streams) -> OperatorMeta:
    reader.kryo = streams.kryo
    return read_operator_meta(reader)


def read_operator_state(
    handle: OperatorStateHandle,
    streams: Streams,
    *,
    names: frozenset[str] | None = None,
    types: Mapping[str, Callable[[Codec], Codec]] | None = None,
) -> Iterator[OperatorRows]:
    """The rows of every state of a handle, or of those in `names`. Damaged, NotFound, UnsupportedVersion."""
    if handle.stream is None or not handle.states:
        return
    data = read_stream(streams, handle.stream)
    path = streams.name(handle.stream)
    first = min((offset for part in handle.states for offset in part.offsets), default=len(data))
    meta = _described(Reader(data, path, 0, first), streams)
    if meta.size is not None and meta.size != first and not (meta.compressed and _header(data, meta.size, first)):
        raise Damaged(f"the first element is at {first}, the description ends at {meta.size}", path=path)
    infos = {info.name: info for info in (*meta.states, *meta.broadcast)}
    bounds = sorted({offset for part in handle.states for offset in part.offsets} | {len(data)})
    ends = dict(pairwise(bounds))
    for part in handle.states:
        if names is not None and part.name not in names:
            continue
        rows = _empty(part, infos.get(part.name), types)
        try:
            for number, offset in enumerate(part.offsets):
                if offset not in ends:
                    raise Damaged(f"element {number + 1} of {part.name!r} begins at {offset} of {len(data)}", path=path)
                element = data[offset : ends[offset]]
                if meta.compressed:
                    element = snappy.pieces(element, path, offset)
                _add(rows, element, f"element {number + 1} of {part.name!r} (offset {offset})", path)
        except FormatError as error:
            rows.problem = error
        yield rows


def raw_elements(handle: OperatorStateHandle, streams: Streams) -> dict[str, list[bytes]]:
    """The elements of each state of a handle, in their plain bytes. Damaged, NotFound."""
    if handle.stream is None:
        return {}
    data = read_stream(streams, handle.stream)
    path = streams.name(handle.stream)
    first = min((offset for part in handle.states for offset in part.offsets), default=len(data))
    compressed = _described(Reader(data, path, 0, first), streams).compressed
    return {
        part.name: list(elements(data, handle, part, path, compressed=compressed)) for part in handle.states
    }


def elements(
    data: bytes, handle: OperatorStateHandle, part: OperatorPart, path: str, *, compressed: bool
) -> Iterator[bytes]:
    """The elements of a state, each in its plain bytes: it ends where the next one of any state begins. Damaged."""
    bounds = sorted({offset for other in handle.states for offset in other.offsets} | {len(data)})
    ends = dict(pairwise(bounds))
    for offset in part.offsets:
        if offset not in ends:
            raise Damaged(f"an element of {part.name!r} begins at {offset} of {len(data)}", path=path)
        element = data[offset : ends[offset]]
        yield snappy.pieces(element, path, offset) if compressed else element


def _header(data: bytes, begin: int, end: int) -> bool:
    """Whether the beginning of a snappy stream stands between the description and the first element."""
    return data[begin:end] == snappy.BEGIN


def _empty(
    part: OperatorPart, info: StateInfo | None, types: Mapping[str, Callable[[Codec], Codec]] | None
) -> OperatorRows:
    unknown = opaque(info.unknown if info is not None and info.unknown else "a serializer that is not described")
    value = codec(info.value) if info is not None and info.value is not None else unknown
    if types and part.name in types:
        value = types[part.name](value)
    if part.mode is not Mode.BROADCAST:
        return OperatorRows(part.name, part.mode, value)
    key = codec(info.key) if info is not None and info.key is not None else unknown
    return OperatorRows(part.name, part.mode, value, key, [])


def _add(rows: OperatorRows, data: bytes, where: str, path: str) -> None:
    """Decode one element into the rows; Damaged unless it ends with its bytes."""
    pos = 0
    try:
        if rows.key is None or rows.keys is None:
            value, pos = rows.value.read(data, 0)
            rows.values.append(value)
        else:
            n, pos = _I32(data, 0)[0], 4
            if not 0 <= n * max(rows.key.least + rows.value.least, 1) <= len(data) - 4:
                raise ValueError(f"{n} entries in {len(data) - 4} bytes")
            for _ in range(n):
                begin = pos
                try:
                    key, pos = rows.key.read(data, pos)
                    value, pos = rows.value.read(data, pos)
                except HiddenValue as hidden:  # the rest of the map has no boundaries that could be found
                    key, value = None, Opaque(hidden.name, len(data) - begin, data[begin:])
                    pos = len(data)
                    rows.keys.append(key)
                    rows.values.append(value)
                    return
                rows.keys.append(key)
                rows.values.append(value)
    except HiddenValue as hidden:
        rows.values.append(Opaque(hidden.name, len(data), data))
        return
    except BROKEN as error:
        raise Damaged(f"{where} cannot be read: {error or 'ends too early'}", path=path) from None
    if pos != len(data):
        raise Damaged(f"{where}: {len(data)} bytes, {pos} of them used", path=path)
