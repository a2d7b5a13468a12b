"""`python -m tests.support.objects.host NAME FOLDER`: a server for a whole run of the tests, until its stdin ends.

It writes how the server is reached, or why it cannot be had, to FOLDER/facts.json.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.objects.kinds import SERVERS


def main(name: str, folder: Path) -> None:
    try:
        with SERVERS[name]() as server:
            _write(folder, {"class": type(server).__name__, "server": asdict(server)})
            sys.stdin.read()
    except pytest.skip.Exception as reason:
        _write(folder, {"skipped": str(reason)})


def _write(folder: Path, facts: dict[str, object]) -> None:
    part = folder / "facts.part"
    part.write_text(json.dumps(facts, default=str))
    part.rename(folder / "facts.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
