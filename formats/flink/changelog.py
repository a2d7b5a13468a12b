"""Keyed state of the changelog backend: what was materialised, and the changes since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from formats.flink.handles import ChangelogHandle, KeyedHandle
from formats.flink.keyed import Block, read_blocks
from formats.flink.streams import Streams
from formats.flink.values import Codec


def read(
    handle: KeyedHandle,
    streams: Streams,
    max_parallelism: int,
    states: Collection[str] | None,
    groups: range | None,
    types: Mapping[str, Callable[[Codec], Codec]] | None,
    key: Callable[[Codec], Codec] | None,
) -> Iterator[Block]:
    if isinstance(handle, ChangelogHandle):
        for part in handle.materialized:
            if part is not None:
                yield from read_blocks(
                    part, streams, max_parallelism, states=states, groups=groups, types=types, key=key
                )
