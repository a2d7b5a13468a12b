"""Snapshots of a job with one slow input, by policy: how long they take, from a first barrier to the copy, and the job.

    PYTHONPATH=. python tests/bench/bench_skew.py [--rounds 5] [--files 480]

The job is that of the tests: the word count, of which `words/1` takes 40 ms for a batch and `words/0` 4 ms, both under
back pressure. Policies alternate; medians over rounds; of epochs, medians over a run's epochs but the last.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from abscli.engine.job import run_job
from abscli.protocol.policy import Policy
from formats.native.reader import NativeStore
from formats.storage import LocalStorage
from tests.jobs import inline, skewed, write_skewed

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
