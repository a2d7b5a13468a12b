"""What a format says of itself: nested keys and values as lines, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from abscli.text.columns import UNKNOWN, clean, wrapped

LINES = 60
"""Lines of facts that a table shows; json has them all."""


def facts(values: Mapping[str, Any], width: int) -> list[str]:
    """`key: value` a line, what is nested indented below its key; an unknown value is `?`."""
    lines: list[str] = []
    for line in _lines(values, width, 2):
        if len(lines) == LINES:
            lines.append("  ... and more; -o json has them all")
            break
        lines.append(line)
    return lines


def _lines(values: Mapping[str, Any], width: int, depth: int) -> Iterator[str]:
    for key, value in values.items():
        lead = f"{' ' * depth}{clean(str(key))}:"
        if isinstance(value, Mapping) and value:
            yield lead
            yield from _lines(value, width, depth + 2)
        elif _is_list(value) and any(isinstance(item, Mapping) or _is_list(item) for item in value):
            yield lead
            yield from _lines({f"[{i}]": item for i, item in enumerate(value)}, width, depth + 2)
        else:
            yield from wrapped(_word(value), width, " " * (depth + 2), f"{lead} ") or [lead]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _word(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if _is_list(value):
        return ", ".join(_word(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return "none"
    return str(value)
