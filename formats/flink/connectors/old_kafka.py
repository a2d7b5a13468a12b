"""Where `FlinkKafkaConsumer` of Flink 1 goes on, which no connector for Flink 2 reads any more.

The union list state `topic-partition-offset-states` has pairs of a partition, as Kryo 2 writes the class
`KafkaTopicPartition`, and the offset that was read last. Kryo's bytes do not say what they are of: varint class, 1,
zigzag hash, zigzag partition, 1, text topic. The hash, which follows from the other two, proves it. Held against a real
job of Flink 1.20.5 with flink-connector-kafka 3.4.0.
"""

from __future__ import annotations

import struct
from typing import Final

from formats.flink.connectors.split_kinds import Split
from formats.flink.state.keys import string_hash
from formats.flink.types.kryo.input import OLD, KryoInput
from formats.flink.types.values import BROKEN

STATE: Final = "topic-partition-offset-states"
_WORDS: Final = {-915623761773: "committed", -915623761774: "latest", -915623761775: "earliest"}
"""Offsets that stand for others, of partitions of which nothing was read yet."""
_NUMBERS: Final = {-1: -915623761774, -2: -915623761775, -3: -915623761773}
"""The same for those of `KafkaPartitionSplit`."""


def read_position(element: bytes) -> Split:
    """An element of the state; one that is not of that shape has neither kind nor id."""
    try:
        return _position(element) or Split(None, None, None, None, len(element))
    except BROKEN:
        return Split(None, None, None, None, len(element))


def _position(element: bytes) -> Split | None:
    r = KryoInput(element, 0, OLD)
    r.unsigned()
    new_object = r.byte()
    hash_code, partition = r.integer(), r.integer()
    new_text, topic = r.byte(), r.words()
    (last,) = struct.unpack(">q", r.take(len(element) - r.pos))
    if (new_object, new_text) != (1, 1) or partition < 0 or hash_code != _hash(topic, partition):
        return None
    word = _WORDS.get(last)
    # the offset is that of the last record, of which the next one is read
    return Split("kafka", f"{topic}-{partition}", None if word else last + 1, None, len(element), word)


def position_moved_to(element: bytes, position: int) -> bytes:
    """The element with its partition read on from an offset, or from what `KafkaPartitionSplit` has for a word."""
    last = _NUMBERS[position] if position < 0 else position - 1
    return element[:-8] + struct.pack(">q", last)


def _hash(topic: str, partition: int) -> int:
    """`31 * topic.hashCode() + partition`, in 32 bits."""
    value = (31 * string_hash(topic) + partition) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
