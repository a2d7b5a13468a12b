"""Words a second of the word count: Spark and inline, with an epoch every second and without, in one run.

    python tests/bench/bench_engine.py [--copies 1] [--rounds 5] [--latency 0.0]

The four kinds alternate; medians and ratios are printed. Input: the demo's (the source text of the standard
library, six times), repeated `copies` times. Rates count the whole attempt, from the store's lock to the last
manifest, on a running Spark context.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from abscli.engine.job import JobOptions, run_job
from abscli.engine.spark import start_context
from abscli.examples import inputs

KINDS = [("spark", 1.0), ("spark", None), ("inline", 1.0), ("inline", None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="spark,inline")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind[0] in arguments.engines.split(",")]
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root) / "job"
        topology = inputs.write_job("wordcount", folder)
        words = sum(inputs.count_words(folder).values()) * arguments.copies
        for path in list((folder / "corpus").iterdir()) if arguments.copies > 1 else []:
            for i in range(1, arguments.copies):
                os.link(path, path.with_name(f"{path.stem}.copy{i}.py"))
        context = start_context("local[2]") if any(kind[0] == "spark" for kind in kinds) else None
        rates: dict[tuple[str, float | None], list[float]] = {kind: [] for kind in kinds}
        epochs: dict[tuple[str, float | None], list[int]] = {kind: [] for kind in kinds}
        options = JobOptions(str(folder), "wordcount.yaml", workers=2, context=context)
        for turn in range(arguments.rounds + 1):
            for engine, interval in kinds:
                for name in ("store", "out"):
                    shutil.rmtree(folder / name, ignore_errors=True)
                chosen = dataclasses.replace(options, engine=engine, interval=interval)
                outcome = run_job(topology, str(folder / "store"), chosen)
                if turn:  # the first is a warm-up
                    rates[engine, interval].append(words / outcome.elapsed)
                    epochs[engine, interval].append(outcome.epochs)
        if context is not None:
            context.stop()
    print(f"{words:,} words, {os.cpu_count()} cores, {arguments.rounds} rounds")
    for (engine, interval), found in rates.items():
        how = f"every {interval:g} s" if interval else "only the last"
        print(
            f"{engine:7} epochs {how:14} median {statistics.median(found) / 1e6:5.2f} M words/s "
            f"(min {min(found) / 1e6:.2f}, max {max(found) / 1e6:.2f}), "
            f"{statistics.median(epochs[engine, interval]):g} epochs"
        )
    for engine in {kind[0] for kind in kinds}:
        ratios = [a / b for a, b in zip(rates[engine, 1.0], rates[engine, None], strict=True)]
        print(f"{engine}: with snapshots / without, pair by pair: median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
