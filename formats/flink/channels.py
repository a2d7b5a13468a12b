"""In-flight data of unaligned checkpoints: how many records were on each channel at the cut.

A channel-state stream begins with an i32 version (0); at each offset stands an i32 length and one network buffer. The
buffers of a channel, in the order of the offsets, hold records: i32 length, then a byte that tells an element (0, 1:
a record, with or without a timestamp; others: watermarks and the like). A record may be cut at a buffer's end, also
between the two sides of a channel: what the receiver had in its input, followed by what the sender had in its output,
is one stream, and only together they end with a whole record. That is how the sides are paired, for which operator
feeds which is not in the metadata. Record types are not stored: records are counted, not decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from formats.errors import Damaged, FormatError
from formats.flink.bytes import Reader
from formats.flink.files.streams import Streams
from formats.flink.ids import Edge, Names, OperatorHash, SubtaskId
from formats.flink.metadata.handles import ChannelHandle, ChannelPart, Metadata, StreamHandle
from formats.ids import AnyChannelId, ChannelId, HalfChannelId

MOST: Final = 256 << 20
"""Bytes of channel state beyond which they are not read to count."""


class Side(NamedTuple):
    """Where buffers were kept: gate g of operator v (input), or result partition p of operator u (output)."""

    operator: OperatorHash
    number: int


class StreamCount(NamedTuple):
    """What a stream holds.

    records: elements that are records.
    others: watermarks and the like.
    rest: bytes of a record that is cut off at its end.
    """

    records: int
    others: int
    rest: int


class Channel(NamedTuple):
    """In-flight data of one channel.

    sender, receiver: None where the other end is not known.
    bytes: of both sides together.
    records: None where they could not be counted.
    """

    sender: SubtaskId | None
    receiver: SubtaskId | None
    bytes: int
    records: int | None

    def id(self, names: Names) -> AnyChannelId:
        """What the view calls it."""
        sender, receiver = (end.task(names) if end else None for end in (self.sender, self.receiver))
        return ChannelId(sender, receiver) if sender and receiver else HalfChannelId(sender, receiver)


Buffers = dict[Side, dict[tuple[int, int], bytes]]
"""By side, then by (own subtask, the other's subtask)."""


def channel_bytes(metadata: Metadata) -> int:
    """Bytes of the streams that hold channel state, each counted once."""
    streams = {handle.stream for _, _, handle in _handles(metadata)}
    return sum(stream.size for stream in streams if stream is not None)


def has_channels(metadata: Metadata) -> bool:
    """Whether the snapshot keeps channel state: an unaligned one."""
    return next(_handles(metadata), None) is not None


def in_flight(metadata: Metadata, streams: Streams, edges: Collection[Edge] = ()) -> list[Channel]:
    """Every channel with in-flight data; see `contents`."""
    return [channel for channel, _ in contents(metadata, streams, edges)]


def contents(
    metadata: Metadata, streams: Streams, edges: Collection[Edge] = ()
) -> Iterator[tuple[Channel, bytes]]:
    """Every channel with its bytes, what the receiver had taken first. edges: which operators feed which, as far as
    that is known; decides where the data alone fits several. Raises Damaged, NotFound if a stream cannot be read."""
    inputs, outputs = _buffers(metadata, streams)
    width = {operator.id: operator.parallelism for operator in metadata.operators}
    pairs = _pairs(inputs, outputs, width, edges)
    for gate, result in pairs.items():
        keys = {*inputs[gate], *((j, i) for i, j in outputs[result])}
        for j, i in sorted(keys):
            data = inputs[gate].get((j, i), b"") + outputs[result].get((i, j), b"")
            sender, receiver = SubtaskId(result.operator, i), SubtaskId(gate.operator, j)
            yield Channel(sender, receiver, len(data), _whole(data)), data
    for gate, parts in inputs.items():
        if gate not in pairs:
            for (j, _), data in parts.items():
                yield Channel(None, SubtaskId(gate.operator, j), len(data), _whole(data)), data
    paired = set(pairs.values())
    for result, parts in outputs.items():
        if result not in paired:
            for (i, _), data in parts.items():
                yield Channel(SubtaskId(result.operator, i), None, len(data), _whole(data)), data


def elements(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The elements of a channel: `record`, `watermark` or `other`, and the bytes behind the tag; `cut` for a rest."""
    pos, end = 0, len(data)
    while pos + 4 <= end:
        length = int.from_bytes(data[pos : pos + 4], "big", signed=True)
        if length < 1 or pos + 4 + length > end:
            break
        tag = data[pos + 4]
        kind = "record" if tag <= 1 else "watermark" if tag == 2 else "other"
        yield kind, data[pos + 5 : pos + 4 + length]
        pos += 4 + length
    if pos < end:
        yield "cut", data[pos:]


def count(data: bytes) -> StreamCount:
    """The elements of a stream. Damaged if it is none: a length below 1."""
    pos, end = 0, len(data)
    records = others = 0
    while pos + 4 <= end:
        length = int.from_bytes(data[pos : pos + 4], "big", signed=True)
        if length < 1:
            raise Damaged(f"a record of {length} bytes at {pos} of the in-flight data")
        if pos + 4 + length > end:
            break
        if data[pos + 4] <= 1:
            records += 1
        else:
            others += 1
        pos += 4 + length
    return StreamCount(records, others, end - pos)


def buffers(stream: bytes, part: ChannelPart, path: str) -> bytes:
    """The buffers of one channel in its stream, joined. Damaged where they are not what the handle says."""
    if min(part.gate, part.channel) < 0:
        raise Damaged(f"buffers of channel {part.channel} of gate or partition {part.gate}", path=path)
    pieces = []
    total = 0
    for offset in part.offsets:
        if offset < 0:
            raise Damaged(f"a buffer at offset {offset}", path=path)
        r = Reader(stream, path, pos=min(offset, len(stream)))
        length = r.i32(f"buffer at offset {offset}")
        if not 0 <= length <= part.size:
            raise Damaged(f"a buffer of {length} bytes at offset {offset}, of {part.size} in all", path=path)
        pieces.append(r.take(length, f"buffer at offset {offset}"))
        total += 4 + length
    alone = len(stream) == part.size == total + 4  # a stream of one channel counts its version, too
    if total != part.size and not alone:
        raise Damaged(f"the buffers of a channel have {total} bytes, {part.size} were written", path=path)
    return b"".join(pieces)


def _handles(metadata: Metadata) -> Iterator[tuple[SubtaskId, bool, ChannelHandle]]:
    """Each with whose it is, and whether it is of its output."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            own = SubtaskId(operator.id, subtask.index)
            yield from ((own, False, handle) for handle in subtask.input_channels)
            yield from ((own, True, handle) for handle in subtask.output_channels)


def _buffers(metadata: Metadata, streams: Streams) -> tuple[Buffers, Buffers]:
    inputs: Buffers = {}
    outputs: Buffers = {}
    read: dict[StreamHandle, bytes] = {}  # several operators share the file of a task manager
    for own, output, handle in _handles(metadata):
        if handle.stream is None:
            continue
        if handle.stream not in read:
            read[handle.stream] = streams.read(handle.stream)
        path = streams.name(handle.stream)
        sides = outputs if output else inputs
        for part in handle.parts:
            channels = sides.setdefault(Side(own.operator, part.gate), {})
            key = (own.subtask, part.channel)
            channels[key] = channels.get(key, b"") + buffers(read[handle.stream], part, path)
    return inputs, outputs


def _pairs(
    inputs: Buffers, outputs: Buffers, width: dict[OperatorHash, int], edges: Collection[Edge]
) -> dict[Side, Side]:
    """Input side -> output side, where each fits exactly one other."""
    fits = {
        gate: [result for result in outputs if _fit(gate, inputs[gate], result, outputs[result], width)]
        for gate in inputs
    }
    # known edges decide among sides that fit; where they name none of those, all stay
    if edges:
        for gate, results in fits.items():
            fits[gate] = [result for result in results if (result.operator, gate.operator) in edges] or results
    # an output that is the only one to fit two inputs is given to neither
    used = [results[0] for results in fits.values() if len(results) == 1]
    return {gate: results[0] for gate, results in fits.items() if len(results) == 1 and used.count(results[0]) == 1}


def _fit(
    gate: Side,
    received: dict[tuple[int, int], bytes],
    result: Side,
    sent: dict[tuple[int, int], bytes],
    width: dict[OperatorHash, int],
) -> bool:
    """Whether two sides can be the ends of one edge: subtasks in range, and every channel ends with a whole record."""
    if gate.operator == result.operator:
        return False
    if any(i >= width[result.operator] for _, i in received) or any(j >= width[gate.operator] for _, j in sent):
        return False
    keys = {*received, *((j, i) for i, j in sent)}
    return all(_whole(received.get((j, i), b"") + sent.get((i, j), b"")) is not None for j, i in keys)


def _whole(data: bytes) -> int | None:
    """Records of a stream that ends with a whole one; None for another."""
    try:
        counted = count(data)
    except FormatError:
        return None
    return counted.records if counted.rest == 0 else None
