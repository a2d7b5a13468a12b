"""Operator state of texts, as Flink writes it."""

from __future__ import annotations

from formats.flink.bytes import encode_utf
from formats.flink.metadata.handles import InlineHandle, Mode, OperatorPart, OperatorStateHandle
from formats.flink.rewriting.encoding import encoded
from formats.flink.types.codecs import codec
from formats.flink.types.serializer_classes import BASE
from formats.flink.types.serializers import Snapshot

TEXT = codec(Snapshot("string", f"{BASE}StringSerializer$StringSerializerSnapshot", 3))


def utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + encode_utf(text)


def operator_state(name: str, mode: str, *elements: str) -> OperatorStateHandle:
    """What Flink writes of a state of texts; of a broadcast state one entry a text, with itself for a value."""
    text = utf(f"{BASE}StringSerializer$StringSerializerSnapshot") + (3).to_bytes(4, "big")
    serializer = (2).to_bytes(4, "big") + text
    broadcast = mode == "BROADCAST"
    roles = ("KEY_SERIALIZER", "VALUE_SERIALIZER") if broadcast else ("VALUE_SERIALIZER",)
    info = utf(name) + (2 if broadcast else 1).to_bytes(4, "big") + (1).to_bytes(4, "big")
    info += utf("OPERATOR_STATE_DISTRIBUTION_MODE") + utf(mode) + len(roles).to_bytes(4, "big")
    info += b"".join(utf(role) + serializer for role in roles)
    infos = b"\0\0\0\1" + info if broadcast else b"\0\1" + info + b"\0\0"
    out = (6).to_bytes(4, "big") + b"\0" + infos
    offsets = []
    if broadcast:
        offsets.append(len(out))
        out += len(elements).to_bytes(4, "big") + b"".join(encoded(TEXT, one) * 2 for one in elements)
    else:
        for one in elements:
            offsets.append(len(out))
            out += encoded(TEXT, one)
    parts = (OperatorPart(name, Mode[mode], tuple(offsets)),)
    return OperatorStateHandle(parts, InlineHandle("state", out))
