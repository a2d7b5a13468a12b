"""Seconds from SIGKILL of a Spark worker to the first new complete epoch, with the plan made in between.

    python -m tests.bench.engine.bench_recovery [--rounds 5]

Both demo jobs, alternating; the Spark context goes on, as it does on a cluster.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from abscli.engine.drivers.spark import start_context
from abscli.examples.scenario import tell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    context = start_context("local[2]")
    found: dict[str, list[float]] = {"wordcount": [], "imports": []}
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        for turn in range(rounds):
            for name, times in found.items():
                story = tell(
                    name, Path(root) / f"{name}{turn}", context, 0.2, lambda text: None, lambda progress: None
                )
                assert story.holds, story
                times.append(story.seconds_to_epoch)
    context.stop()
    for name, times in found.items():
        print(f"{name:10} median {statistics.median(times):.2f} s (min {min(times):.2f}, max {max(times):.2f})")


if __name__ == "__main__":
    main()
