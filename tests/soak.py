"""`python -m tests.soak [--minutes 30]`: the third tier, file by file, in pieces that go on where the last one ended.

Which files have passed is kept below `.pytest_cache`, by commit: what is not committed is run again each time. A file
is begun while there is time, and ended. The exit code is that of the files that were run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / ".pytest_cache" / "soak"
PYTEST: Final = (sys.executable, "-m", "pytest", "--tier=soak")
WORKERS: Final = ("--numprocesses=auto", "--dist=load")


class Passed:
    """The files that have passed on one commit. place: a file with a name in each line; None remembers nothing."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self.names = set(place.read_text(encoding="utf-8").split()) if place is not None and place.exists() else set()

    def add(self, name: str) -> None:
        self.names.add(name)
        if self._place is not None:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with self._place.open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")


def run_piece(names: Sequence[str], passed: Passed, seconds: float, run: Callable[[str], bool]) -> list[str]:
    """Run what has not passed while there is time, the first one in any case; return what failed."""
    end = time.monotonic() + seconds
    failed: list[str] = []
    for name in [name for name in names if name not in passed.names]:
        if run(name):
            passed.add(name)
        else:
            failed.append(name)
        if time.monotonic() >= end:
            break
    return failed


def soak_files() -> list[str]:
    """Return the files that have tests of the third tier."""
    command = [*PYTEST, "-o", "addopts=--strict-markers", "--collect-only", "-q"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return sorted({line.partition("::")[0] for line in listed.stdout.splitlines() if "::" in line})


def run_file(name: str) -> bool:
    """Run the tests of the third tier of one file."""
    return subprocess.run([*PYTEST, *WORKERS, name], cwd=ROOT).returncode == 0


def place_of_commit() -> Path | None:
    """Return where it is kept what has passed; None for a tree with changes, or one that is no clone."""
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        return None if changed else KEPT / _git("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="after which no further file is begun")
    minutes = parser.parse_args().minutes
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    names, passed = soak_files(), Passed(place_of_commit())
    failed = run_piece(names, passed, 60 * minutes, run_file)
    done = len(passed.names.intersection(names))
    print(f"soak: {done} of {len(names)} files have passed{'' if done == len(names) else '; `make test-soak` goes on'}")
    for name in failed:
        print(f"soak: failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
