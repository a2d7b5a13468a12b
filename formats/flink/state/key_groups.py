"""State that lies by key group: where each begins and ends, and its blocks one key group after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from formats.errors import FormatError
from formats.flink.files.streams import Streams, read_stream
from formats.flink.metadata.handles import KeyGroupsHandle
from formats.flink.state.keyed_tables import KeyedState, RowBlock, Table

Decode = Callable[[bytes, int, int], Iterable[RowBlock]]
"""The blocks in the bytes of a key group: these, its number, where they begin in the stream."""


def spans(handle: KeyGroupsHandle) -> list[tuple[int, int, int]]:
    """(key group, begin, end) of every key group that is there, in the order of the handle."""
    assert handle.stream is not None
    there = sorted({offset for offset in handle.offsets if offset})
    ends = dict(zip(there, [*there[1:], handle.stream.size][: len(there)], strict=True))  # none, if all are empty
    return [(handle.first + i, offset, ends[offset]) for i, offset in enumerate(handle.offsets) if offset]


def read(
    handle: KeyGroupsHandle,
    streams: Streams,
    state: KeyedState,
    states: Collection[str] | None,
    groups: range | None,
    decode: Decode,
) -> Iterator[RowBlock]:
    """Blocks of these states in these key groups, None: of all; of one that cannot be read a block that says why."""
    for group, begin, end in spans(handle):
        if groups is not None and group not in groups:
            continue
        try:
            blocks = decode(read_stream(streams, handle.stream, begin, end - begin), group, begin)
        except FormatError as error:
            yield RowBlock(nowhere(state), group, problem=error, ends=True)
            continue
        for block in blocks:
            if states is None or block.table.name in states or block.problem is not None:
                yield block


def nowhere(state: KeyedState) -> Table:
    """The table of a problem that no state is to blame for: the first one's. Damaged if there is none."""
    if not state.tables:
        state.fail("key groups, but no state")
    return state.tables[0]
