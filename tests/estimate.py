"""`python -m tests.estimate`: how long `make test` will take, before it begins."""

from __future__ import annotations

import os

from tests.conftest import LAST_TIME
from tests.support.flink.venv import PLACE

QUIET_MACHINE = 30
"""Minutes on two cores that have nothing else to do."""


def main() -> None:
    if LAST_TIME.exists():
        seconds = float(LAST_TIME.read_text())
        print(f"tests: about {max(1, round(seconds / 60))} min, as the last time")
    else:
        print(f"tests: about {QUIET_MACHINE} min on two cores, half of it on four")
    if os.environ.get("ABS_FLINK") != "0" and not PLACE.exists():
        print("tests: and this once a few minutes for a Flink to test with (850 MB; ABS_FLINK=0 does without)")


if __name__ == "__main__":
    main()
