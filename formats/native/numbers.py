"""Numbered files of which the highest counts: found by name, whatever a list says.

A number is created once, one above the highest; the highest is never deleted, and lower ones go in ascending order,
`KEPT` numbers later. So if number n + 1 is missing, and n is there after that, n is the highest: had n + 1 been
deleted, n would have been deleted before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

KEPT: Final = 10
"""Numbers below the highest that stay: a list that lags by fewer is good enough to begin with."""


def highest(listed: Iterable[int], exists: Callable[[int], bool]) -> int:
    """Return the highest number of a sequence, 0 if it is empty.

    listed: as a list has them, which may be an older one.
    exists: asks for a file by its name.
    """
    number = max(listed, default=0)
    while exists(number + 1):
        number += 1
    return number


def is_highest(number: int, exists: Callable[[int], bool]) -> bool:
    """Return whether a number is the highest of its sequence, without a list."""
    return not exists(number + 1) and exists(number)


def obsolete(listed: Iterable[int], newest: int) -> list[int]:
    """Return the numbers that may be deleted once `newest` is there, in the order in which they have to be."""
    return sorted(number for number in listed if number < newest - KEPT)
