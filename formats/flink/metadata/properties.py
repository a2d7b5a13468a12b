"""The tail of `_metadata` (version 4 and later): what was asked for when the snapshot was taken, as a Java object."""

from __future__ import annotations

import struct
from typing import Final

from formats.flink.bytes import Reader, encode_utf
from formats.flink.java_object import STREAM_MAGIC, JavaEnum, JavaObject, read_value
from formats.flink.metadata.handles import Properties

_PACKAGE: Final = "org.apache.flink.runtime.checkpoint."
_CLASS: Final = _PACKAGE + "CheckpointProperties"

_FLAGS: Final = {
    "discardCancelled": "discard_cancelled",
    "discardFailed": "discard_failed",
    "discardFinished": "discard_finished",
    "discardSubsumed": "discard_subsumed",
    "discardSuspended": "discard_suspended",
    "forced": "forced",
    "unclaimed": "unclaimed",
}
"""In the order in which Java writes them: by name."""


def parse(r: Reader) -> Properties | None:
    """Return the properties at the cursor, to the end of the file; None for Java's null.

    The State Processor API writes null, as does every writer that makes a `CheckpointMetadata` without properties.
    Flink restores it.

    Raises Damaged if they are something else, or bytes follow.
    """
    at = r.pos
    if not r.left:
        raise r.error("ends before its properties", "properties")
    root = read_value(r)
    if r.left:
        raise r.error(f"{r.left} bytes after the properties", "properties")
    if root is None:
        return None
    if not isinstance(root, JavaObject) or root.class_name != _CLASS:
        raise r.error(f"not an object of class {_CLASS}", "properties", at)
    kind = root.fields.get("checkpointType")
    flags = {field: root.fields.get(name) for name, field in _FLAGS.items()}
    if not isinstance(kind, JavaObject) or any(not isinstance(value, bool) for value in flags.values()):
        raise r.error("properties without the fields that Flink gives them", "properties", at)
    name = kind.fields.get("name")
    if not isinstance(name, str):
        raise r.error("a type of checkpoint without a name", "properties", at)

    def constant(field: str) -> str | None:
        value = kind.fields.get(field)
        return value.constant if isinstance(value, JavaEnum) else None

    return Properties(
        kind=kind.class_name.rpartition(".")[2],
        name=name,
        sharing=constant("sharingFilesStrategy"),
        after=constant("postCheckpointAction"),
        layout=constant("formatType"),
        **{field: value is True for field, value in flags.items()},
    )


CHECKPOINT: Final = Properties(
    kind="CheckpointType",
    name="Checkpoint",
    sharing="FORWARD_BACKWARD",
    after=None,
    layout=None,
    forced=False,
    discard_subsumed=True,
    discard_finished=True,
    discard_cancelled=False,
    discard_failed=False,
    discard_suspended=False,
    unclaimed=False,
)
"""Of an ordinary checkpoint, kept when its job is cancelled."""


def savepoint(layout: str) -> Properties:
    """Of a savepoint that a user asked for. layout: `CANONICAL` or `NATIVE`."""
    return Properties(
        kind="SavepointType",
        name="Savepoint",
        sharing=None,
        after="NONE",
        layout=layout,
        forced=True,
        discard_subsumed=False,
        discard_finished=False,
        discard_cancelled=False,
        discard_failed=False,
        discard_suspended=False,
        unclaimed=False,
    )


# -- writing ----------------------------------------------------------------------------------------------

_CHECKPOINT_UID: Final = -2963844630364414662  # CheckpointType
_SAVEPOINT_UID: Final = -6879297871714708296  # SavepointType


def encode(properties: Properties) -> bytes:
    """The Java object, byte for byte as Flink 1.20 to 2.3 write it.

    The numbers are the classes' serialVersionUIDs as they stand in files of 1.20.5 and 2.3.0.
    """
    out = bytearray(STREAM_MAGIC)
    out += b"sr" + _utf(_CLASS) + struct.pack(">qBH", 2, 2, 8)
    for name in _FLAGS:
        out += b"Z" + _utf(name)
    out += b"L" + _utf("checkpointType") + b"t" + _utf("Lorg/apache/flink/runtime/checkpoint/SnapshotType;") + b"xp"
    out += bytes(getattr(properties, field) for field in _FLAGS.values())
    if properties.kind == "SavepointType":
        out += _savepoint(properties)
    elif properties.kind == "CheckpointType":
        out += _checkpoint(properties)
    else:
        raise ValueError(f"no type of snapshot that can be written: {properties.kind}")
    return bytes(out)


def _checkpoint(properties: Properties) -> bytes:
    strategy = "SnapshotType$SharingFilesStrategy"
    return (
        _class("sr", _PACKAGE + "CheckpointType", _CHECKPOINT_UID, 2)
        + _object_field("name", "Ljava/lang/String;")
        + _object_field("sharingFilesStrategy", f"Lorg/apache/flink/runtime/checkpoint/{strategy};")
        + b"xp"
        + (b"t" + _utf(properties.name))
        + _first_enum(_PACKAGE + strategy, properties.sharing or "")
    )


def _savepoint(properties: Properties) -> bytes:
    action = "SavepointType$PostCheckpointAction"
    return (
        _class("sr", _PACKAGE + "SavepointType", _SAVEPOINT_UID, 3)
        + _object_field("formatType", "Lorg/apache/flink/core/execution/SavepointFormatType;")
        + _object_field("name", "Ljava/lang/String;")
        + _object_field("postCheckpointAction", f"Lorg/apache/flink/runtime/checkpoint/{action};")
        + b"xp"
        + _first_enum("org.apache.flink.core.execution.SavepointFormatType", properties.layout or "")
        + (b"t" + _utf(properties.name))
        + _class("~r", _PACKAGE + action, 0, 0, flags=0x12)
        + b"xq\0\x7e\0\x09"  # the superclass java.lang.Enum, which is value 9 of the stream
        + (b"t" + _utf(properties.after or "NONE"))
    )


def _first_enum(name: str, constant: str) -> bytes:
    """An enum with the description of java.lang.Enum, which the first one in a stream brings."""
    parent = b"x" + _class("r", "java.lang.Enum", 0, 0, flags=0x12) + b"xp"
    return _class("~r", name, 0, 0, flags=0x12) + parent + b"t" + _utf(constant)


def _class(tags: str, name: str, uid: int, fields: int, flags: int = 2) -> bytes:
    return tags.encode() + _utf(name) + struct.pack(">qBH", uid, flags, fields)


def _object_field(name: str, kind: str) -> bytes:
    return b"L" + _utf(name) + b"t" + _utf(kind)


def _utf(text: str) -> bytes:
    data = encode_utf(text)
    return struct.pack(">H", len(data)) + data
