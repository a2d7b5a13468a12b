"""Words a second of the word count: Spark and inline, with an epoch every second and without, in one run.

    python -m tests.bench.engine.bench_engine [--copies 1] [--rounds 5] [--engines spark,inline] [--policies aligned]

All kinds alternate; medians and ratios are printed. Input: the demo's (the source text of the standard
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
import time
from pathlib import Path

from abscli.engine.drivers.spark import start_context
from abscli.engine.job import JobOptions, run_job
from abscli.examples import inputs
from formats.job.file import parse_topology

Kind = tuple[str, str | None, float | None]
"""Engine, policy, interval; without an interval there is one epoch, at the end, and the policy does not matter."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="spark,inline")
    parser.add_argument("--policies", default="aligned")
    parser.add_argument("--interval", type=float, default=1.0)
    arguments = parser.parse_args()
    engines, policies = arguments.engines.split(","), arguments.policies.split(",")
    kinds: list[Kind] = []
    for engine in engines:
        kinds += [(engine, policy, arguments.interval) for policy in policies]
        kinds.append((engine, None, None))
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        folder = Path(root) / "job"
        topology = parse_topology(inputs.write_job("wordcount", folder))
        words = sum(inputs.count_words(folder).values()) * arguments.copies
        for path in list((folder / "corpus").iterdir()) if arguments.copies > 1 else []:
            for i in range(1, arguments.copies):
                os.link(path, path.with_name(f"{path.stem}.copy{i}.py"))
        context = start_context("local[2]") if "spark" in engines else None
        rates: dict[Kind, list[float]] = {kind: [] for kind in kinds}
        epochs: dict[Kind, list[int]] = {kind: [] for kind in kinds}
        cpu: dict[Kind, list[float]] = {kind: [] for kind in kinds}
        options = JobOptions(str(folder), "wordcount.yaml", workers=2, context=context)
        for turn in range(arguments.rounds + 1):
            for kind in kinds:
                for name in ("store", "out"):
                    shutil.rmtree(folder / name, ignore_errors=True)
                engine, policy, interval = kind
                chosen = dataclasses.replace(options, engine=engine, policy=policy, interval=interval)
                before = time.process_time()
                outcome = run_job(topology, str(folder / "store"), chosen)
                if turn:  # the first is a warm-up
                    rates[kind].append(words / outcome.elapsed)
                    epochs[kind].append(outcome.epochs)
                    cpu[kind].append(time.process_time() - before)
        if context is not None:
            context.stop()
    print(f"{words:,} words, {os.cpu_count()} cores, {arguments.rounds} rounds")
    for kind, found in rates.items():
        engine, policy, interval = kind
        how = f"{policy}, every {interval:g} s" if interval else "only the last epoch"
        ratios = [a / b for a, b in zip(found, rates[engine, None, None], strict=True)]
        print(
            f"{engine:7} {how:26} median {statistics.median(found) / 1e6:5.2f} M words/s "
            f"(min {min(found) / 1e6:.2f}, max {max(found) / 1e6:.2f}), {statistics.median(epochs[kind]):g} epochs; "
            f"pair by pair, to that with only the last: median {statistics.median(ratios):.2f}"
            + (f"; {statistics.median(cpu[kind]):.2f} s of CPU" if engine == "inline" else "")
        )


if __name__ == "__main__":
    main()
