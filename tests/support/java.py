"""How tests start Java: their JVMs live for seconds, which is no time for the second compiler to pay."""

from __future__ import annotations

from typing import Final

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUICK_COMPILER: Final = tuple(f"-J{option}" for option in QUICK)
"""For `javac`."""
