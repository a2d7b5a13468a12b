"""Drivers with their workers killed at random moments of a job whose sink is a table of Delta Lake: what is lost or
twice.

    python -m tests.bench.sinks.bench_delta_kills [--kills 50] [--seed 1]

By SIGKILL: when rows have been staged, before the manifest, after it, before a commit, after it, and at a random time
of a run; each is gone on with from the newest complete epoch. Each line of the input is to be in the table once, and
each epoch in one commit.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from tests.support.jobs.lines import Gate, Lines, in_a_process, write_lines

MOMENTS = ("staged", "manifest", "reveal", "writing", "committed", "time")
EPOCHS = 12


class Wrong(NamedTuple):
    """Lines that the table lacks, lines that it has more than once, and epochs with two commits."""

    lost: int
    twice: int
    commits: int


def ended(process: subprocess.Popen[str], wait: float | None) -> None:
    """The process has ended, by its own signal, by one after so many seconds, or well."""
    if wait is not None:
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.kill()
    _, errors = process.communicate(timeout=900)
    assert process.returncode in (0, -signal.SIGKILL), errors[-2000:]


def one_job(seed: int, folder: Path) -> tuple[Counter[str], Wrong]:
    """What was killed, and what is wrong then."""
    rng, kills = random.Random(seed), Counter[str]()
    write_lines(folder, EPOCHS)
    lines = Lines(folder, Gate(), "out", "delta")
    moments = [(rng.choice(MOMENTS), rng.randrange(1, 9)) for _ in range(rng.randrange(3, 7))]
    for where, n in [*moments, ("end", 1)]:
        begun = (folder / "a" / "abs-store.json").exists()
        complete = lines.complete() if begun else []
        start = str(complete[-1]) if complete else "0" if begun else ""
        process = in_a_process(lines, where, n, signal.SIGKILL, from_epoch=start)
        ended(process, rng.uniform(1.0, 6.0) if where == "time" else None)
        kills[where] += process.returncode == -signal.SIGKILL
    wrong = lines.wrong()
    history = DeltaTable(str(folder / "out")).history()
    epochs = Counter((entry["abs.attempt"], entry["abs.epoch"]) for entry in history if "abs.epoch" in entry)
    return kills, Wrong(
        sum(-n for n in wrong.values() if n < 0), sum(n for n in wrong.values() if n > 0),
        sum(n - 1 for n in epochs.values()),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, total, seed = Counter[str](), Wrong(0, 0, 0), given.seed
    while kills.total() < given.kills:
        folder = Path(tempfile.mkdtemp(prefix="abs-delta-kills-"))
        try:
            more, wrong = one_job(seed, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kills, total = kills + more, Wrong(*map(sum, zip(total, wrong, strict=True)))
        print(f"seed {seed}: {dict(more)}, {wrong}", file=sys.stderr, flush=True)
        seed += 1
    by_moment = ", ".join(f"{where} {count}" for where, count in sorted(kills.items()))
    print(f"{seed - given.seed} jobs, {kills.total()} kills ({by_moment})")
    print(f"rows lost: {total.lost}, rows twice: {total.twice}, epochs committed twice: {total.commits}")
    return any(total)


if __name__ == "__main__":
    sys.exit(main())
