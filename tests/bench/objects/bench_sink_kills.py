"""Drivers and workers killed at random moments of jobs with a loop whose sink lies in a bucket: what is lost or twice.

    python -m tests.bench.objects.bench_sink_kills [--server rgw|moto|azurite|google|testbench] [--kills 50] [--seed 1]
        [--engine inline|spark]

Drivers by SIGKILL: when an upload was begun or filled, before the manifest, before uploads are completed, between two
of them, and after; each is gone on with from the newest complete epoch. Workers beside: a thread is dropped with all
that it has, a process of Spark's gets SIGKILL. Pairs of nodes that reach each other, each of which comes out once, and
a count of words that go round a loop are held against answers that are computed without the engine; an upload that was
left is given up at the end, which must change nothing.
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
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from abscli.engine.job import JobOptions, run_job
from abscli.stores.native.uploads import give_up, left_uploads
from formats.job.model import Kind, Topology
from formats.native.sink_bucket import SinkBucket, part_of
from formats.native.store import NativeStore
from formats.storage import LocalStorage, open_writable
from tests.support.jobs.kills import Kills, after
from tests.support.jobs.lines import ROOT, signal_at
from tests.support.jobs.small import (
    countdown,
    last_counts,
    output_pairs,
    reach,
    write_countdown,
    write_graph,
)
from tests.support.objects.fixtures import SERVERS, use
from tests.support.objects.places import bucket_place

NAMES = {
    "moto": "S3 by moto",
    "rgw": "S3 by Ceph RGW",
    "azurite": "Azure by Azurite",
    "google": "Google by a server in memory",
    "testbench": "Google by its testbench",
}
MOMENTS = ("begin", "put", "manifest", "reveal", "completing", "complete")
IN_WORKERS = ("begin", "put")
"""Of these, what drivers do not come by where workers are processes of Spark's."""
GOOGLES = "copied"
"""When a part is shown and waits as well."""
STORE = "store"


class Wrong(NamedTuple):
    """How many rows a sink lacks, and how many it shows more than once."""

    lost: int
    twice: int


def _reach(folder: Path) -> Callable[[], Wrong]:
    pairs = write_graph(folder, nodes=80, degree=3, turning=True)

    def wrong() -> Wrong:
        shown = Counter(output_pairs(folder))
        return Wrong(len(pairs - shown.keys()), sum(count - 1 for count in shown.values()) + len(shown.keys() - pairs))

    return wrong


def _countdown(folder: Path) -> Callable[[], Wrong]:
    counts = write_countdown(folder, files=6, turning=True)

    def wrong() -> Wrong:
        shown = last_counts(folder, "id")  # fails where a count comes again
        return Wrong(sum(shown.get(id, 0) < n for id, n in counts.items()), sum(shown[id] > counts[id] for id in shown))

    return wrong


JOBS: dict[str, tuple[Callable[[int], Topology], Callable[[Path], Callable[[], Wrong]]]] = {
    "reach": (reach, _reach),
    "countdown": (countdown, _countdown),
}


def into(topology: Topology, place: str) -> Topology:
    """The job with its sink there."""
    return msgspec.structs.replace(topology, operators=tuple(
        msgspec.structs.replace(op, connector={"type": "jsonl", "path": place}) if op.kind is Kind.SINK else op
        for op in topology.operators
    ))  # fmt: skip


def run(name: str, folder: Path, place: str, where: str, n: int, victims: int, engine: str) -> None:
    """The job up to its end, or up to the n-th call of `where`; victims: workers that are killed meanwhile."""
    signal_at(where, n, signal.SIGKILL)
    store = NativeStore(LocalStorage(folder / STORE)) if (folder / STORE / "abs-store.json").exists() else None
    complete = [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)] if store else []
    kills = Kills([(after(2 * k + 1, open_epoch=True), [k % 2]) for k in range(victims)], folder, enough=0)
    options = JobOptions(
        str(folder), "job.yaml", engine=engine, master="local[3]", workers=2, interval=0.05, restarts=20, keep=None,
        from_epoch=complete[-1] if complete else (0 if store else None),
    )  # fmt: skip

    # It opens the gate, behind which the job comes to its end, when all are killed.
    progress = kills.progress if where == "end" else lambda now: None
    run_job(into(JOBS[name][0](2), place), str(folder / STORE), options, progress, kills.meet, on_news=kills.news)
    print(len(kills.pids))


def one_job(seed: int, folder: Path, place: str, engine: str) -> tuple[Counter[str], Wrong, str]:
    """What was killed, what is wrong then, and the job's name."""
    rng = random.Random(seed)
    name = list(JOBS)[seed % len(JOBS)]
    wrong, kills = JOBS[name][1](folder), Counter[str]()
    at = (*MOMENTS, GOOGLES) if place.startswith("gs:") else MOMENTS
    if engine == "spark":
        at = tuple(moment for moment in at if moment not in IN_WORKERS)
    moments = [(rng.choice(at), rng.randrange(1, 7)) for _ in range(rng.randrange(2, 6))]
    for where, n in [*moments, ("end", 1)]:
        victims = rng.choice([0, 0, 1, 2]) if where == "end" else 0
        command = [sys.executable, "-m", __spec__.name if __spec__ else "", "--child", name, str(folder), place, where,
                   str(n), str(victims), engine]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
        if where == "end":
            assert done.returncode == 0, done.stderr[-2000:]
            kills["worker"] += int(done.stdout.split()[-1])
        else:
            assert done.returncode == -signal.SIGKILL, (where, n, done.stderr[-2000:])
            kills[where] += 1
    store = NativeStore(LocalStorage(folder / STORE))
    give_up(store, [place], [upload.uri for upload in left_uploads(store, [place])])
    fetch(place, folder / "out")
    return kills, wrong(), name


def fetch(place: str, to: Path) -> None:
    """What readers of the bucket see, as a folder has it; a part that is there twice fails."""
    to.mkdir()
    storage = open_writable(place)
    for entry in storage.list(""):
        if (part := part_of(entry.name)) is not None:
            with (to / part[0].name).open("xb") as file:
                file.write(storage.read(entry.name))
    assert not SinkBucket(place).waiting(), "uploads are left"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=tuple(NAMES), default="moto")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("inline", "spark"), default="inline")
    given = parser.parse_args()
    kills, jobs, total = Counter[str](), Counter[str](), Wrong(0, 0)
    seed = given.seed
    os.environ["CLAIM_SECONDS"] = "2"
    with SERVERS[NAMES[given.server]]() as server:
        use(server, pytest.MonkeyPatch())
        while kills.total() < given.kills:
            folder = Path(tempfile.mkdtemp(prefix="abs-sink-kills-"))
            try:
                more, wrong, name = one_job(seed, folder, str(bucket_place(server).root), given.engine)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            kills, total = kills + more, Wrong(total.lost + wrong.lost, total.twice + wrong.twice)
            jobs[name] += 1
            print(f"seed {seed}, {name}: {dict(more)}, {wrong}", file=sys.stderr, flush=True)
            seed += 1
    by_moment = ", ".join(f"{where} {count}" for where, count in sorted(kills.items()))
    print(f"{NAMES[given.server]}, {given.engine}: {jobs.total()} jobs ({dict(jobs)})")
    print(f"{kills.total()} kills ({by_moment})")
    print(f"rows lost: {total.lost}, rows twice: {total.twice}")
    return bool(total.lost or total.twice)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        name, folder, place, where, n, victims, engine = sys.argv[2:]
        run(name, Path(folder), place, where, int(n), int(victims), engine)
    else:
        sys.exit(main())
