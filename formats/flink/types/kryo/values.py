"""Values of Flink's `KryoSerializer`: exactly, where the JDK brings their classes.

Flink calls `writeClassAndObject`, so that a value says its class; but nothing says how long it is, so that a class that
only the job has hides what follows it. Text where the serializer's class is one (a UUID, a date, a number), else JSON:
what lies in a collection may be anything. A map is a list of pairs, an empty Optional null, bytes are hex digits.
Flink 1.x has Kryo 2.24, Flink 2.x Kryo 5.6.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from formats.flink.types.kryo.bodies import BODIES, TEXTS
from formats.flink.types.kryo.reading import Classes, Reading
from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import MAY_HIDE, Codec, HiddenValue, opaque

_PARTS: Final = 1_000_000
"""Parts of a value beyond which it is not spelt out: one that holds itself many times over has few bytes."""


def kryo(snapshot: Snapshot) -> Codec:
    """The codec of a Kryo serializer: text where its class is one, else JSON (the classes within may be any)."""
    name = snapshot.about or ""
    version = snapshot.number
    custom = frozenset(cls for cls, _ in snapshot.others)
    classes = Classes(version, BODIES[version], snapshot.names, custom)
    if not name.startswith(("java.", "javax.", "sun.", "[")) or name in custom:
        return opaque(f"{name} (KryoSerializer)", snapshot)
    text = name in TEXTS

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        reading = Reading(buf, pos, classes)
        value = reading.any()
        if value is None or (text and isinstance(value, str)):
            return value, reading.pos
        return json.dumps(_Plain(name).of(value), ensure_ascii=False), reading.pos

    return Codec("kryo", read, "string", hides=None if text else MAY_HIDE, snapshot=snapshot)


class _Plain:
    """Spells a value out as JSON has it: no bytes, and no numbers that are none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left = _PARTS

    def of(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise HiddenValue(f"{self.name} of more than {_PARTS} parts (KryoSerializer)")
        if isinstance(value, list | tuple):
            return [self.of(part) for part in value]
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return value
