"""Spark's metadata logs: small UTF-8 files whose first line is `vN`; one a batch, some compacted into `N.compact`."""

from __future__ import annotations

import json
from typing import Any

from formats.errors import Damaged, UnsupportedVersion
from formats.spark import layout

LARGEST = 1 << 28
"""Bytes of the largest log file that is read."""


class EmptyLog(Damaged):
    """A log file of no bytes: Spark died between making and writing it, and does not start until it is removed."""


def lines(data: bytes, path: str, newest: int) -> tuple[int, list[str]]:
    """The version and the lines that follow it; EmptyLog, Damaged, UnsupportedVersion above `newest`."""
    if not data:
        raise EmptyLog("is empty", path=path, hint="Spark was stopped while it began to write this file")
    if len(data) > LARGEST:
        raise Damaged(f"has {len(data)} bytes, more than {LARGEST}", path=path)
    try:
        first, *rest = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Damaged("is not UTF-8 text", path=path) from None
    if not (first.startswith("v") and first[1:].isascii() and first[1:].isdigit() and len(first) < 8):
        raise Damaged(f"begins with {first[:20]!r}, not with a version such as v1", path=path)
    version = int(first[1:])
    if version < 1:
        raise Damaged(f"begins with {first!r}", path=path)
    if version > newest:
        raise UnsupportedVersion(f"is of version {version}; this program reads up to {newest}", path=path)
    return version, rest


def parse(text: str, path: str) -> dict[str, Any]:
    """A JSON object; Damaged."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged("its JSON is cut short or damaged", path=path) from None
    if not isinstance(parsed, dict):
        raise Damaged("its JSON is not an object", path=path)
    return parsed


def number(fields: dict[str, Any], key: str, path: str) -> int | None:
    """An integer of a JSON object, None if it is not there; Damaged if it is something else."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise Damaged(f"{key} is {str(value)[:40]!r}, not a number", path=path)
    return value


def entries(names: dict[str, int]) -> tuple[dict[int, str], dict[int, str]]:
    """Of the names in a log's folder: those of single batches and of compactions, by number, ascending."""
    single: dict[int, str] = {}
    compact: dict[int, str] = {}
    for name in names:
        entry = layout.log_entry(name)
        if entry is not None:
            (compact if entry[1] else single)[entry[0]] = name
    return dict(sorted(single.items())), dict(sorted(compact.items()))
