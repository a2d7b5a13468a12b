"""What of an unaligned checkpoint can be counted: source positions, records in flight, sums over states.

Flink counts no records. But a source's splits say how far it had read, channel state holds whole records, and jobs
often keep counts of their own in state; where these agree from checkpoint to checkpoint they are a law of the job that
a cut has to keep (`abscli.stores.flink.conservation`). Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from formats.errors import FormatError
from formats.flink import channels, facts
from formats.flink.connectors import splits
from formats.flink.connectors.split_kinds import Split
from formats.flink.files.streams import Streams
from formats.flink.ids import Edge, OperatorHash
from formats.flink.metadata.handles import Metadata, OperatorState
from formats.flink.state.keyed import read_blocks
from formats.flink.state.operator import read_operator_state
from formats.flink.types.values import Codec, Shape

if TYPE_CHECKING:
    from formats.flink.store import FlinkStore

MOST: Final = 16 << 20
"""Bytes of an operator's state beyond which it is not read to be summed."""

_INTEGERS: Final = frozenset({"int32", "int64"})

Take = Callable[[Any], Any]


class SourceProgress(msgspec.Struct, frozen=True):
    """How far a source had read.

    positions: the next number or offset of each split, by its id.
    starts: what all splits together may have begun at, where their ranges tell.
    """

    positions: dict[str, int]
    starts: tuple[int, ...] = ()


class Tally(msgspec.Struct, frozen=True):
    """The numbers of one checkpoint.

    sources: those of which every split is known.
    in_flight: records, where all of them could be counted.
    sums: operator -> {`state.field` -> sum over all keys and subtasks}, of whole numbers.
    loose: in-flight data is left whose other end is not known.
    skipped: operators whose state is too much to be summed.
    """

    epoch: int
    unaligned: bool
    sources: dict[OperatorHash, SourceProgress]
    in_flight: dict[Edge, int]
    sums: dict[OperatorHash, dict[str, int]]
    loose: bool
    skipped: tuple[OperatorHash, ...] = ()


def tallies(store: FlinkStore, epochs: Iterable[int]) -> dict[int, Tally]:
    """The tally of every one of these checkpoints that can be read; what one tells of edges helps to read another."""
    by_epoch = {}
    for epoch in epochs:
        try:
            by_epoch[epoch] = tally(epoch, store.metadata(epoch), store.streams(epoch))
        except FormatError:
            continue
    edges = {edge for one in by_epoch.values() for edge in one.in_flight}
    for epoch, one in by_epoch.items():
        # a second look: an edge that one checkpoint shows whole says whose the lone ends of another are
        if one.loose and edges:
            in_flight, loose = _in_flight(store.metadata(epoch), store.streams(epoch), edges)
            by_epoch[epoch] = msgspec.structs.replace(one, in_flight=in_flight, loose=loose)
    return by_epoch


def tally(epoch: int, metadata: Metadata, streams: Streams) -> Tally:
    """Count one checkpoint. Never raises for damage: what cannot be read is not counted."""
    unaligned = channels.has_channels(metadata)
    in_flight, loose = _in_flight(metadata, streams, set()) if unaligned else ({}, False)
    sources = {}
    sums = {}
    skipped = []
    for operator in metadata.operators:
        source = _source(operator, streams)
        if source is not None:
            sources[operator.id] = source
        elif facts.operator_size(operator) > MOST:
            skipped.append(operator.id)
        else:
            sums[operator.id] = _sums(operator, streams)
    return Tally(epoch, unaligned, sources, in_flight, sums, loose, tuple(skipped))


def _in_flight(metadata: Metadata, streams: Streams, edges: set[Edge]) -> tuple[dict[Edge, int], bool]:
    """Records by edge where all of them could be counted, and whether anything is left of which the edge is not known.
    edges: those that are known; data of which one end alone was kept belongs to the only one that the end has."""
    try:
        small = channels.channel_bytes(metadata) <= channels.MOST
        flows = channels.in_flight(metadata, streams, edges) if small else None
    except FormatError:
        flows = None
    if flows is None:
        return {}, True
    total: dict[Edge, int] = {}
    uncounted: set[Edge] = set()
    loose = False
    for channel in flows:
        if channel.sender is not None and channel.receiver is not None:
            edge = Edge(channel.sender.operator, channel.receiver.operator)
        else:
            if not channel.bytes:
                continue
            mine = [
                edge
                for edge in edges
                if (channel.sender is None or edge.sender == channel.sender.operator)
                and (channel.receiver is None or edge.receiver == channel.receiver.operator)
            ]
            if len(mine) != 1:
                loose = True
                continue
            edge = mine[0]
        if channel.records is None:
            uncounted.add(edge)
        total[edge] = total.get(edge, 0) + (channel.records or 0)
    return {edge: n for edge, n in total.items() if edge not in uncounted}, loose or bool(uncounted)


def _source(operator: OperatorState, streams: Streams) -> SourceProgress | None:
    """None where the operator is no source, or a split's position is not known."""
    source_splits: list[Split] = []
    for subtask in operator.subtasks:
        mine = splits.readable(subtask, streams)
        if mine is None:
            return None
        source_splits += mine
    # a file that was read to its end has left no split, so that those that are left do not say how much was read
    counted = [split for split in source_splits if split.kind != "file"]
    positions = {split.id: split.next for split in counted if split.id is not None and split.next is not None}
    if not source_splits or len(positions) != len(source_splits):
        return None
    return SourceProgress(positions, _starts(source_splits))


def _starts(ranges: list[Split]) -> tuple[int, ...]:
    """The sum of what the splits of a `NumberSequenceSource` begin at: each where the one before ends, and the first
    so that it is as long as the others, or one longer. Empty where that is not told."""
    if any(
        split.kind != "number-sequence" or split.end is None or not (split.id or "").isdecimal() for split in ranges
    ):
        return ()
    ends = {int(split.id or 0): split.end or 0 for split in ranges}
    if len(ranges) < 2 or sorted(ends) != list(range(1, len(ranges) + 1)):
        return ()
    length = ends[2] - ends[1]
    rest = sum(ends[i] + 1 for i in range(1, len(ranges)))
    return tuple(rest + ends[1] + 1 - first for first in (length, length + 1))


# -- sums -------------------------------------------------------------------------------------------------


def _sums(operator: OperatorState, streams: Streams) -> dict[str, int]:
    """Sums of the whole numbers in an operator's states; those of a state that is not whole are left out."""
    totals: dict[str, int] = {}
    broken: set[str] = set()
    for subtask in operator.subtasks:
        try:
            if subtask.managed_keyed is not None:
                for block in read_blocks(subtask.managed_keyed, streams, operator.max_parallelism):
                    name = block.table.name
                    if block.problem is not None or block.hidden is not None:
                        broken.add(name)
                    elif not block.table.timers and not block.table.is_map and not block.table.is_list:
                        _add(totals, name, block.table.value, block.values)
            if subtask.managed_operator is not None:
                once = {part.name for part in subtask.managed_operator.states if part.mode == 0}
                for rows in read_operator_state(subtask.managed_operator, streams):
                    if rows.problem is not None:
                        broken.add(rows.name)
                    elif rows.name in once:
                        _add(totals, rows.name, rows.value, rows.values)
        except FormatError:
            return {}
    return {name: total for name, total in totals.items() if name.partition("\0")[0] not in broken}


def _add(totals: dict[str, int], name: str, codec: Codec, values: list[Any]) -> None:
    for path, take in _numbers(codec.shape):
        called = f"{name}\0{path}"
        totals[called] = totals.get(called, 0) + sum(n for value in values if isinstance(n := take(value), int))


def _numbers(shape: Shape, path: str = "", depth: int = 3) -> Iterator[tuple[str, Take]]:
    """The whole numbers within a value: their path, and how to take them out."""
    if isinstance(shape, str):
        if shape in _INTEGERS:
            yield path, lambda value: value
    elif shape[0] == "struct" and depth:
        for i, (field, part) in enumerate(shape[1]):
            for deeper, take in _numbers(part, f"{path}.{field}" if path else field, depth - 1):
                yield deeper, _within(i, take)


def _within(i: int, take: Take) -> Take:
    return lambda value: take(value[i]) if isinstance(value, tuple | list) and len(value) > i else None
