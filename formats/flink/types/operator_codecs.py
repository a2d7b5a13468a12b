"""State of Flink's own operators: joins, sinks, patterns (CEP), stream elements.

Source: the serializers of Flink 2.3.0, as their class files have them; not tried on bytes that they wrote. Each is made
of its snapshot and the codecs of the nested serializers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from formats.flink.types.composites import list_codec, struct_codec
from formats.flink.types.sequences import maybe, read_list
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import Codec, fixed, plain

_I64: Final = struct.Struct(">q").unpack_from


def buffer_entry(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    flag = plain("boolean")
    assert flag is not None
    return struct_codec("bufferentry", ("has_been_joined", "element"), [flag, parts[0]])


def two_phase(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    transaction, context = parts
    pending = struct_codec("", ("transaction", "start"), [transaction, fixed("long", "q", "int64")])
    null = snapshot.number
    read_transaction, read_rest = transaction.read, read_list(pending)
    read_context = maybe(context, present=1)

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        value = None
        if not null or buf[pos]:
            value, pos = read_transaction(buf, pos + (1 if null else 0))
        else:
            pos += 1
        start = _I64(buf, pos)[0]
        rest, pos = read_rest(buf, pos + 8)
        user, pos = read_context(buf, pos)
        return ((value, start), rest, user), pos

    shapes = (("pending", pending.shape), ("to_commit", ("list", pending.shape)), ("context", context.shape))
    return Codec("twophase", read, ("struct", shapes), least=13, parts=(transaction, context))


def event_id(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    return struct_codec("eventid", ("id", "timestamp"), [fixed("int", "i", "int32"), fixed("long", "q", "int64")])


def node_id(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    name = plain("string")
    assert name is not None
    inner = struct_codec("", ("event", "page"), [parts[0], name])
    return Codec("nodeid", maybe(inner, present=1), inner.shape, hides=inner.hides)


def lockable(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    return struct_codec("lockable", ("references", "element"), [fixed("int", "i", "int32"), parts[0]])


def buffer_node(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    return list_codec(lockable(snapshot, parts))


def nfa_state(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    """State of a pattern: partial matches and completed ones. nested: version, node id, event id."""
    version, node, event = parts
    text, number = plain("string"), fixed("long", "q", "int64")
    assert text is not None
    start = Codec("nullable", maybe(event, present=1), event.shape)
    names: tuple[str, ...] = ("state", "previous", "version", "start", "start_event")
    fields = [text, node, version, number, start]
    if snapshot.number:
        names, fields = (*names[:4], "previous_timestamp", names[4]), [*fields[:4], number, fields[4]]
    matches = list_codec(struct_codec("", names, fields))
    return struct_codec("nfastate", ("partial", "completed"), [matches, matches])


def stream_element(snapshot: Snapshot, parts: list[Codec]) -> Codec:
    """An element of a stream: a record (0 with, 1 without a timestamp) or what the runtime sends."""
    value = parts[0]
    one = value.read
    sizes = {2: 8, 3: 28, 4: 4, 5: 1, 6: 12}

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        tag = buf[pos]
        if tag <= 1:
            at = None if tag else _I64(buf, pos + 1)[0]
            record, pos = one(buf, pos + (1 if tag else 9))
            return (tag, at, record), pos
        if tag not in sizes or sizes[tag] > len(buf) - pos - 1:
            raise ValueError(f"stream element {tag}")
        at = _I64(buf, pos + (5 if tag == 6 else 1))[0] if tag in (2, 3, 6) else None
        return (tag, at, None), pos + 1 + sizes[tag]

    shapes = (("tag", "int32"), ("timestamp", "int64"), ("value", value.shape))
    return Codec("element", read, ("struct", shapes), parts=(value,))


KINDS: Final[dict[str, Callable[[Snapshot, list[Codec]], Codec]]] = {
    "bufferentry": buffer_entry,
    "twophase": two_phase,
    "eventid": event_id,
    "nodeid": node_id,
    "lockable": lockable,
    "buffernode": buffer_node,
    "nfastate": nfa_state,
    "element": stream_element,
}
