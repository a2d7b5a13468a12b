"""Drivers with their workers, and the server, killed at random moments of a job whose sink is a table: what is lost or
twice.

    python -m tests.bench.sinks.bench_postgres_kills [--mode two-phase|upsert] [--kills 200] [--seed 1]

Drivers by SIGKILL, each gone on with from the newest complete epoch. Two-phase: when a transaction has been filled,
when it has been prepared, before the manifest, after it, and between two commits. By key: when rows have been staged,
before the manifest, after it, in the middle of the transaction that writes them, and after it. The server by SIGKILL at
a random time of a run, and is started again at once: the job goes on. Each line of the input is to be written once (by
key, too: a trigger counts), and nothing is to be left prepared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support.jobs.lines import Gate, Lines, in_a_process, make_table, write_lines
from tests.support.postgres import Postgres, postgres, rows

MOMENTS = {
    "two-phase": ("filled", "prepare", "manifest", "reveal", "commit"),
    "upsert": ("staged", "manifest", "reveal", "merging", "shown"),
}
EPOCHS = 12
TABLE = "shown"


class Wrong(NamedTuple):
    """Lines that the table lacks, lines that were written more than once, and transactions that are left prepared."""

    lost: int
    twice: int
    left: int


def ended(process: subprocess.Popen[str], server: Postgres, wait: float | None) -> bool:
    """The process has ended, by its own signal or well; whether the server was killed meanwhile. wait: seconds after
    which that is, None for never."""
    is_killed = False
    if wait is not None:
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            server.kill()
            time.sleep(random.random() * 0.2)
            server.start()
            is_killed = True
    _, errors = process.communicate(timeout=900)
    assert process.returncode in (0, -signal.SIGKILL), errors[-2000:]
    return is_killed


def one_job(mode: str, seed: int, folder: Path, server: Postgres) -> tuple[Counter[str], Wrong]:
    """What was killed, and what is wrong then."""
    rng, kills = random.Random(seed), Counter[str]()
    type = "postgres" if mode == "two-phase" else mode
    make_table(server.url, TABLE, type)
    write_lines(folder, EPOCHS)
    lines = Lines(folder, Gate(), TABLE, type)
    moments = [(rng.choice(MOMENTS[mode]), rng.randrange(1, 9)) for _ in range(rng.randrange(2, 6))]
    for where, n in [*moments, ("end", 1)]:
        begun = (folder / "a" / "abs-store.json").exists()
        complete = lines.complete() if begun else []
        start = str(complete[-1]) if complete else "0" if begun else ""
        wait = rng.uniform(0.8, 4.0) if rng.random() < 0.6 else None
        process = in_a_process(lines, where, n, signal.SIGKILL, from_epoch=start)
        kills["server"] += ended(process, server, wait)
        kills[where] += process.returncode == -signal.SIGKILL
    wrong, left = lines.wrong(), rows(server.url, "select gid from pg_prepared_xacts")
    return kills, Wrong(
        sum(-n for n in wrong.values() if n < 0), sum(n for n in wrong.values() if n > 0), len(left)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=list(MOMENTS), default="two-phase")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, total, seed = Counter[str](), Wrong(0, 0, 0), given.seed
    with postgres() as server:
        os.environ["LINES_DATABASE"] = server.url
        while kills.total() < given.kills:
            folder = Path(tempfile.mkdtemp(prefix="abs-postgres-kills-"))
            try:
                more, wrong = one_job(given.mode, seed, folder, server)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            kills, total = kills + more, Wrong(*map(sum, zip(total, wrong, strict=True)))
            print(f"seed {seed}: {dict(more)}, {wrong}", file=sys.stderr, flush=True)
            seed += 1
    by_moment = ", ".join(f"{where} {count}" for where, count in sorted(kills.items()))
    print(f"{seed - given.seed} jobs, {kills.total()} kills ({by_moment})")
    print(f"rows lost: {total.lost}, rows twice: {total.twice}, transactions left: {total.left}")
    return any(total)


if __name__ == "__main__":
    sys.exit(main())
