"""Snapshots of a job with one slow input, by policy: how long they take, from a first barrier to the copy, and the job.

    python -m tests.bench.engine.bench_skew [--rounds 5] [--files 480]

The job is the word count, of which `words/1` takes 40 ms for a batch and `words/0` 4 ms, both under back pressure.
Policies alternate; medians over rounds; of epochs, medians over a run's epochs but the last.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
from pathlib import Path

import msgspec

from abscli.engine.job import run_job
from abscli.protocol.policy import Policy
from formats.job.model import Topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.jobs.small import inline, word_count

SKEW = """
import time
import pyarrow.compute as pc
from abscli.engine.functions import words as split

def words(batch):
    slow = pc.sum(pc.starts_with(batch.column("line"), "slow")).as_py() or 0
    time.sleep(0.002 * slow + 0.0002 * (batch.num_rows - slow))
    return split(batch)
"""


def skewed() -> Topology:
    """The word count over a slow input: `words/1` has lines that take long, so what it sends to `counts` comes late."""
    topology = word_count()
    slow = msgspec.structs.replace(topology.operators[1], function="skew:words")
    return msgspec.structs.replace(topology, operators=(topology.operators[0], slow, *topology.operators[2:]))


def write_skewed(folder: Path, *, files: int = 240, lines: int = 20, seed: int = 1) -> None:
    """Its input and function. Files go to the two sources in turn: those of `lines/0` are quick, of `lines/1` one in
    eight is there, and takes ten times as long, so that both last about equally long. A batch is one file's, and a few
    of them fill a channel, which makes the source wait: so there is back pressure."""
    rng = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    (folder / "skew.py").write_text(SKEW)
    for task, start, every, padding in ((0, "quick", 1, 12_000), (1, "slow", 8, 50_000)):
        words = [[start, *(f"w{rng.randrange(300)}" for _ in range(8))] for _ in range(lines)]
        (folder / start).write_text("".join(" ".join(line) + "." * padding + "\n" for line in words))
        for i in range(files):
            path = folder / "in" / f"{i:04d}-{task}.txt"
            if i % every:
                path.touch()
            else:
                os.link(folder / start, path)


FIGURES = ("epochs", "epoch, s", "to copy, s", "logged", "can repeat", "job, s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=480)
    arguments = parser.parse_args()
    found: dict[Policy, list[tuple[float, ...]]] = {policy: [] for policy in Policy}
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root) / "job"
        write_skewed(folder, files=arguments.files)
        for turn in range(arguments.rounds + 1):
            for policy in Policy:
                for name in ("store", "out"):
                    shutil.rmtree(folder / name, ignore_errors=True)
                outcome = run_job(skewed(), str(folder / "store"), inline(folder, policy=policy, keep=None))
                if turn:  # the first is a warm-up
                    found[policy].append((outcome.epochs, *_epochs(folder), outcome.elapsed))
    print(f"{'':14}" + "".join(f"{name:>17}" for name in FIGURES))
    for policy, rounds in found.items():
        medians = [statistics.median(values) for values in zip(*rounds, strict=True)]
        print(f"{policy:14}" + "".join(f"{value:17.2f}" for value in medians))


def _epochs(folder: Path) -> tuple[float, ...]:
    store = NativeStore(LocalStorage(folder / "store"))
    rows = []
    for epoch in [n for n in store.epoch_numbers() if store.has_manifest(n)][:-1]:
        manifest, channels = store.manifest(epoch), store.detail(epoch).channels
        repeats = sum(max(0, (channel.received or 0) - (channel.sent or 0)) for channel in channels)
        waited = max(part.alignment for part in store.parts(epoch))
        rows.append((manifest.duration, waited, manifest.log_records, repeats))
    return tuple(statistics.median(values) for values in zip(*rows, strict=True))


if __name__ == "__main__":
    main()
