"""Input for queries that count by windows of time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def add_times(source: Path, number: int) -> None:
    """A file of half a minute, a row a second."""
    source.mkdir(exist_ok=True)
    path = source / f"{number:03d}.json"
    seconds = range(1_767_225_600 + 30 * number, 1_767_225_630 + 30 * number)
    at = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one)) for one in seconds]
    path.write_text("\n".join(json.dumps({"at": one}) for one in at))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
