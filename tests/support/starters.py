"""The fixtures that start a JVM, a server, other hosts or a browser. `tests/tiers.py` decides by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

STARTERS: Final[dict[str, str]] = {}
"""What each fixture starts, by the name of the fixture."""


def starts(what: str) -> Callable[[Function], Function]:
    """Register a fixture that starts a program; stands below `@pytest.fixture`.

    what: the program, for messages.
    """

    def register(function: Function) -> Function:
        STARTERS[function.__name__] = what
        return function

    return register
