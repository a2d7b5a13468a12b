"""Numbers as people write them: runs as their ends."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in words, such as `0 to 2, 5`."""
    out: list[list[int]] = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in out)
