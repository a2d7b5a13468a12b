"""Drivers with their workers, and a server, killed at random moments of a job with one kind of sink: what is lost or
twice.

    python -m tests.bench.sinks.bench_kills [--sink jsonl|csv|parquet|delta|postgres|upsert] [--kills 200] [--seed 1]

Drivers by SIGKILL, at the moments of `MOMENTS` (`tests.support.jobs.lines.signal_at` says what they are) or at a random
time, each gone on with from the newest complete epoch. PostgreSQL's server by SIGKILL at a random time of a run, and is
started again at once: the job goes on. Each line of the input is to be shown once (by key, too: a trigger counts), no
epoch is to be committed twice, and no transaction to be left prepared.
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
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.support.jobs.lines import Gate, Lines, in_a_process, make_table, write_lines
from tests.support.postgres import Postgres, postgres, rows

FILES = ("parted", "manifest", "reveal", "published", "time")
MOMENTS = {
    "jsonl": FILES,
    "csv": FILES,
    "parquet": FILES,
    "delta": ("staged", "manifest", "reveal", "writing", "committed", "time"),
    "postgres": ("filled", "prepare", "manifest", "reveal", "commit"),
    "upsert": ("staged", "manifest", "reveal", "merging", "shown"),
}
SERVED = ("postgres", "upsert")
EPOCHS = 12
TABLE = "shown"
SERVER_DIES = 0.6
"""Share of runs in which the server is killed."""


class Wrong(NamedTuple):
    """Lines that were not shown, lines that were shown more than once, and what else is left: transactions that are
    prepared, or commits of an epoch that had one."""

    lost: int
    twice: int
    left: int


def ended(process: subprocess.Popen[str], wait: float | None, server: Postgres | None) -> bool:
    """The process has ended, by its own signal or well; whether the server was killed meanwhile.

    wait: seconds after which the server is, or the process where there is none; None for never.
    """
    is_killed = False
    if wait is not None:
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            if server is None:
                process.kill()
            else:
                server.kill()
                time.sleep(random.random() * 0.2)
                server.start()
                is_killed = True
    _, errors = process.communicate(timeout=900)
    assert process.returncode in (0, -signal.SIGKILL), errors[-2000:]
    return is_killed


def one_job(sink: str, seed: int, folder: Path, server: Postgres | None) -> tuple[Counter[str], Wrong]:
    """What was killed, and what is wrong then."""
    rng, kills = random.Random(seed), Counter[str]()
    write_lines(folder, EPOCHS)
    if server is not None:
        make_table(server.url, TABLE, sink)
    lines = Lines(folder, Gate(), TABLE if server is not None else "out", sink)
    moments = [(rng.choice(MOMENTS[sink]), rng.randrange(1, 9)) for _ in range(rng.randrange(3, 7))]
    for where, n in [*moments, ("end", 1)]:
        begun = (folder / "a" / "abs-store.json").exists()
        complete = lines.complete() if begun else []
        start = str(complete[-1]) if complete else "0" if begun else ""
        is_timed = where == "time" or (server is not None and rng.random() < SERVER_DIES)
        wait = rng.uniform(0.8, 4.0) if is_timed else None
        process = in_a_process(lines, where, n, signal.SIGKILL, from_epoch=start)
        kills["server"] += ended(process, wait, server)
        kills[where] += process.returncode == -signal.SIGKILL
    wrong = lines.wrong()
    left = _committed_twice(folder) if sink == "delta" else 0
    if server is not None:
        left = len(rows(server.url, "select gid from pg_prepared_xacts"))
    return kills, Wrong(sum(-n for n in wrong.values() if n < 0), sum(n for n in wrong.values() if n > 0), left)


def _committed_twice(folder: Path) -> int:
    """Commits of a Delta table that are not the first of their epoch."""
    from deltalake import DeltaTable

    history = DeltaTable(str(folder / "out")).history()
    epochs = Counter((entry["abs.attempt"], entry["abs.epoch"]) for entry in history if "abs.epoch" in entry)
    return sum(n - 1 for n in epochs.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", choices=list(MOMENTS), default="jsonl")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, total, seed = Counter[str](), Wrong(0, 0, 0), given.seed
    with ExitStack() as running:
        server = running.enter_context(postgres()) if given.sink in SERVED else None
        if server is not None:
            os.environ["LINES_DATABASE"] = server.url
        while kills.total() < given.kills:
            folder = Path(tempfile.mkdtemp(prefix="abs-kills-"))
            try:
                more, wrong = one_job(given.sink, seed, folder, server)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            kills, total = kills + more, Wrong(*map(sum, zip(total, wrong, strict=True)))
            print(f"seed {seed}: {dict(more)}, {wrong}", file=sys.stderr, flush=True)
            seed += 1
    by_moment = ", ".join(f"{where} {count}" for where, count in sorted(kills.items()))
    print(f"{given.sink}: {seed - given.seed} jobs, {kills.total()} kills ({by_moment})")
    print(f"rows lost: {total.lost}, rows twice: {total.twice}, left prepared or committed twice: {total.left}")
    return any(total)


if __name__ == "__main__":
    sys.exit(main())
