"""Drivers with their workers, and a server, killed at random moments of a job with one kind of sink: what is lost or
twice.

    python -m tests.bench.sinks.bench_kills [--sink jsonl|csv|parquet|delta|iceberg|postgres|upsert|kafka]
        [--kills 200] [--seed 1]

Drivers by SIGKILL, at the moments of `MOMENTS` (`tests.support.jobs.lines.signal_at` says what they are) or at a random
time, each gone on with from the newest complete epoch. PostgreSQL's server and Kafka's broker by SIGKILL at a random
time of a run, and started again at once: the job goes on. Each line of the input is to be shown once (by key, too: a
trigger counts; of a topic, to who reads what is committed), no epoch is to be committed twice, and no transaction to be
left prepared.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.support.jobs.lines import Gate, Lines, iceberg_table, in_a_process, make_table, write_lines
from tests.support.kafka import Broker, running
from tests.support.postgres import Postgres, postgres, rows

FILES = ("parted", "manifest", "reveal", "published", "time")
MOMENTS = {
    "jsonl": FILES,
    "csv": FILES,
    "parquet": FILES,
    "delta": ("staged", "manifest", "reveal", "writing", "committed", "time"),
    "iceberg": ("staged", "manifest", "reveal", "writing", "pointing", "committed", "time"),
    "postgres": ("filled", "prepare", "manifest", "reveal", "commit"),
    "upsert": ("staged", "manifest", "reveal", "merging", "shown"),
    "kafka": ("staged", "manifest", "reveal", "producing", "committing", "finished"),
}
SERVED = ("postgres", "upsert", "kafka")
ROWS = 12
"""Of `producing`: so many are written between two moments."""
EPOCHS = 12
TABLE = "shown"
SERVER_DIES = 0.6
"""Share of runs in which the server is killed."""


class Server(Protocol):
    """What is killed besides."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Wrong(NamedTuple):
    """Lines that were not shown, lines that were shown more than once, and what else is left: transactions that are
    prepared, or commits of an epoch that had one."""

    lost: int
    twice: int
    left: int


@contextmanager
def server_of(sink: str) -> Iterator[Server | None]:
    """The server that a sink writes to, which runs."""
    if sink not in SERVED:
        yield None
    elif sink == "kafka":
        with tempfile.TemporaryDirectory(prefix="abs-kafka-") as home, running(Path(home)) as broker:
            os.environ["LINES_BROKER"] = broker.address
            yield broker
    else:
        with postgres() as server:
            os.environ["LINES_DATABASE"] = server.url
            yield server


def target(sink: str, seed: int, server: Server | None) -> str:
    """The name of what the sink writes to, which is empty."""
    if isinstance(server, Broker):
        server.make(topic := f"lines-{seed}", 3)
        return topic
    if isinstance(server, Postgres):
        make_table(server.url, TABLE, sink)
        return TABLE
    return "out"


def ended(process: subprocess.Popen[str], wait: float | None, server: Server | None) -> bool:
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
    gave_up = is_killed and "EngineStopped: " in errors  # a server that took too long to come back
    if gave_up:
        print(errors.strip().splitlines()[-1], file=sys.stderr)
    assert gave_up or process.returncode in (0, -signal.SIGKILL), errors[-2000:]
    return is_killed


def one_job(sink: str, seed: int, folder: Path, server: Server | None) -> tuple[Counter[str], Wrong]:
    """What was killed, and what is wrong then."""
    rng, kills = random.Random(seed), Counter[str]()
    write_lines(folder, EPOCHS)
    lines = Lines(folder, Gate(), target(sink, seed, server), sink)
    moments = [(rng.choice(MOMENTS[sink]), rng.randrange(1, 9)) for _ in range(rng.randrange(3, 7))]
    is_over = False
    while not is_over:
        where, n = moments.pop() if moments else ("end", 1)
        begun = (folder / "a" / "abs-store.json").exists()
        complete = lines.complete() if begun else []
        start = str(complete[-1]) if complete else "0" if begun else ""
        is_timed = where == "time" or (server is not None and rng.random() < SERVER_DIES)
        wait = rng.uniform(0.8, 4.0) if is_timed else None
        calls = 1 + n * ROWS if where == "producing" else n
        process = in_a_process(lines, where, calls, signal.SIGKILL, from_epoch=start)
        kills["server"] += ended(process, wait, server)
        kills[where] += process.returncode == -signal.SIGKILL
        is_over = where == "end" and process.returncode == 0
    wrong = lines.wrong()
    left = _committed_twice(folder) if sink == "delta" else _snapshots_twice(folder) if sink == "iceberg" else 0
    if isinstance(server, Postgres):
        left = len(rows(server.url, "select gid from pg_prepared_xacts"))
    return kills, Wrong(sum(-n for n in wrong.values() if n < 0), sum(n for n in wrong.values() if n > 0), left)


def _committed_twice(folder: Path) -> int:
    """Commits of a Delta table that are not the first of their epoch."""
    from deltalake import DeltaTable

    history = DeltaTable(str(folder / "out")).history()
    epochs = Counter((entry["abs.attempt"], entry["abs.epoch"]) for entry in history if "abs.epoch" in entry)
    return sum(n - 1 for n in epochs.values())


def _snapshots_twice(folder: Path) -> int:
    """Snapshots of a table of Iceberg that are not the first of their epoch."""
    table = iceberg_table(folder)
    summaries = [snapshot.summary.additional_properties for snapshot in table.snapshots()]
    epochs = Counter((summary["abs.attempt"], summary["abs.epoch"]) for summary in summaries if "abs.epoch" in summary)
    return sum(n - 1 for n in epochs.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sink", choices=list(MOMENTS), default="jsonl")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, total, seed = Counter[str](), Wrong(0, 0, 0), given.seed
    with server_of(given.sink) as server:
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
