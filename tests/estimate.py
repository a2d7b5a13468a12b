"""`python -m tests.estimate TIER`: how long the tests of a tier will take, before they begin."""

from __future__ import annotations

import os
import sys

from tests.conftest import last_time
from tests.support.flink.venv import PLACE

QUIET_MACHINE = {"fast": 5, "integration": 15}
"""Minutes on two cores that have nothing else to do, by tier."""


def main(tier: str) -> None:
    if (last := last_time(tier)).exists():
        seconds = float(last.read_text())
        print(f"tests: about {max(1, round(seconds / 60))} min, as the last time")
    else:
        print(f"tests: about {QUIET_MACHINE[tier]} min on two cores, half of it on four")
    if tier != "fast" and os.environ.get("ABS_FLINK") != "0" and not PLACE.exists():
        print("tests: and this once a few minutes for a Flink to test with (850 MB; ABS_FLINK=0 does without)")


if __name__ == "__main__":
    main(sys.argv[1])
