"""Values as JSON has them: times as RFC 3339, decimals as text, bytes in hex.

A float for which JSON has no number is its name as text, `"NaN"`, `"Infinity"` or `"-Infinity"` (as Spark and Protocol
Buffers write them), and never null, which is another value and another key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from formats.ids import ChannelId, EdgeId, HalfChannelId, TaskId


def name_of(value: float) -> str:
    """What stands for a float that is not finite."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain(value: Any) -> Any:
    """A value that `json` writes, from one of `to_pylist`'s, from facts and from ids, which are their text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, TaskId | ChannelId | HalfChannelId | EdgeId):
        return str(value)
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: plain(getattr(value, field)) for name, field in names}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    return str(value)
