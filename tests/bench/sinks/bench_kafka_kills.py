"""Drivers with their workers, and the broker itself, killed at random moments of a job whose sink is a topic of Kafka:
what is lost or twice for a reader of committed transactions.

    python -m tests.bench.sinks.bench_kafka_kills [--kills 50] [--seed 1]

By SIGKILL: when rows have been staged, before the manifest, after it, in the middle of a transaction, before its
commit, behind it, and at a random time of a run; each is gone on with from the newest complete epoch. The broker is
killed while a run goes on, and started again. Each line of the input is to be in the topic once.
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
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support.jobs.lines import Gate, Lines, in_a_process, write_lines
from tests.support.kafka import Broker, running

MOMENTS = ("staged", "manifest", "reveal", "producing", "committing", "finished", "time", "broker")
EPOCHS = 12


class Wrong(NamedTuple):
    """Lines that the topic lacks, and lines that it has more than once."""

    lost: int
    twice: int


def ended(process: subprocess.Popen[str], *, broker_died: bool) -> bool:
    """Whether it was killed; else it has ended well, or given a broker up that has not answered for a minute."""
    _, errors = process.communicate(timeout=900)
    gave_up = broker_died and "EngineStopped: " in errors
    assert gave_up or process.returncode in (0, -signal.SIGKILL), errors[-2000:]
    return process.returncode == -signal.SIGKILL


def still_runs(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def one_job(seed: int, folder: Path, broker: Broker) -> tuple[Counter[str], Wrong]:
    """What was killed, and what is wrong then."""
    rng, kills = random.Random(seed), Counter[str]()
    write_lines(folder, EPOCHS)
    topic = f"lines-{seed}"
    broker.make(topic, 3)
    lines = Lines(folder, Gate(), topic, "kafka")
    moments = [(rng.choice(MOMENTS), rng.randrange(1, 9)) for _ in range(rng.randrange(4, 9))]
    for where, n in [*moments, ("end", 1)]:
        begun = (folder / "a" / "abs-store.json").exists()
        complete = lines.complete() if begun else []
        start = str(complete[-1]) if complete else "0" if begun else ""
        calls = 1 + n * 12 if where == "producing" else n
        process = in_a_process(lines, where, calls, signal.SIGKILL, from_epoch=start)
        if where == "time" and still_runs(process, rng.uniform(1.0, 6.0)):
            process.kill()
        broker_died = where == "broker" and still_runs(process, rng.uniform(1.0, 6.0))
        if broker_died:
            broker.kill()
            broker.start()
            kills[where] += 1
        kills[where] += ended(process, broker_died=broker_died)
    wrong = lines.wrong()
    return kills, Wrong(sum(-n for n in wrong.values() if n < 0), sum(n for n in wrong.values() if n > 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, total, seed = Counter[str](), Wrong(0, 0), given.seed
    home = Path(tempfile.mkdtemp(prefix="abs-kafka-kills-"))
    try:
        with running(home) as broker:
            os.environ["LINES_BROKER"] = broker.address
            while kills.total() < given.kills:
                folder = Path(tempfile.mkdtemp(prefix="abs-kafka-kills-"))
                try:
                    more, wrong = one_job(seed, folder, broker)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                kills, total = kills + more, Wrong(*map(sum, zip(total, wrong, strict=True)))
                print(f"seed {seed}: {dict(more)}, {wrong}", file=sys.stderr, flush=True)
                seed += 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    by_moment = ", ".join(f"{where} {count}" for where, count in sorted(kills.items()))
    print(f"{seed - given.seed} jobs, {kills.total()} kills ({by_moment})")
    print(f"rows lost: {total.lost}, rows twice: {total.twice}")
    return any(total)


if __name__ == "__main__":
    sys.exit(main())
