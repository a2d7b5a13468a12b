"""A damaged state file: seconds and source records of a repair of its epoch, against going back to the epoch before it.

    python -m tests.bench.bench_repair [--keys 1000000] [--records 4000000] [--rounds 5]

Two jobs that count records by key, on the inline engine: four chains that have nothing to do with each other, and one
with a shuffle. Each is run to its end with an epoch every few seconds; then a byte of one of the four state files of
its newest epoch is flipped. `repair` plans and carries out a repair, `back` runs the job from the epoch before to the
end of the input, which is where the damaged epoch stood; both on copies of one store, in turn.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from abscli.api import open_store
from abscli.engine.job import JobOptions, run_job
from abscli.engine.journal import records_read
from formats.job.file import parse_topology
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from tests.support.intervals import median_interval

TASKS = 4


def write_job(folder: Path, kind: str, keys: int, records: int, seed: int = 1) -> Path:
    """The job and its input, a file a source task."""
    (folder / "in").mkdir(parents=True)
    rng = random.Random(seed)
    for i in range(TASKS):
        with (folder / "in" / f"{i}.jsonl").open("w") as file:
            for _ in range(records // TASKS // 10_000):
                drawn = (rng.randrange(keys // TASKS) * TASKS + i for _ in range(10_000))
                file.writelines(f'{{"key":{key},"value":{key % 97}}}\n' for key in drawn)
    operators: dict[str, dict[str, object]] = {}
    for end, files in [("", "*")] if kind == "shuffle" else [(str(i), i) for i in range(TASKS)]:
        schema = {"key": "int64", "value": "int64"}
        operators[f"rows{end}"] = {"source": {"type": "jsonl", "path": f"in/{files}.jsonl", "schema": schema}}
        counts = {"key": ["key"], "n": {"count": "*"}, "total": {"sum": "value"}, "emit": "epoch"}
        operators[f"counts{end}"] = {"from": f"rows{end}", "reduce": counts}
        operators[f"out{end}"] = {"from": f"counts{end}", "sink": {"type": "jsonl", "path": f"out{end}"}}
    path = folder / "job.json"
    parallelism = TASKS if kind == "shuffle" else 1
    path.write_text(json.dumps({"version": 1, "job": "counts", "parallelism": parallelism, "operators": operators}))
    return path


def opened(folder: Path) -> NativeStore:
    return NativeStore(LocalStorage(folder / "store"))


def damage(folder: Path) -> tuple[int, int]:
    """Flip a byte of a state file of the newest epoch that wrote one; that epoch and its parent."""
    store = opened(folder)
    for epoch in reversed(store.epoch_numbers()):
        part = next(part for part in store.parts(epoch) if str(part.task) in ("counts/0", "counts0/0"))
        path = folder / "store" / part.state[-1].path
        if part.state[-1].path.startswith(f"epochs/{epoch:010d}/"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
            return epoch, store.manifest(epoch).parent
    raise SystemExit("no epoch has written state")


def repair(folder: Path, epoch: int, parent: int) -> int:
    """Source records that were read again."""
    plan = open_store(folder / "store").plan(epoch, repair=True)
    done = plan.prepare(job=folder / "job.json").carry_out().to_json()
    assert done["repair"]["base_epoch"] == parent
    return int(done["repair"]["source_records"])


def back(folder: Path, epoch: int, parent: int) -> int:
    """The same, of the whole job from the epoch before."""
    options = JobOptions(str(folder), "job.json", engine="inline", workers=2, interval=None, keep=None,
                         from_epoch=parent)  # fmt: skip
    return run_job(parse_topology(str(folder / "job.json")), str(folder / "store"), options).records


def timed(action: Callable[[Path, int, int], int], source: Path, scratch: Path) -> tuple[float, float, int]:
    """Seconds, seconds of CPU, and records."""
    folder = scratch / "job"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    epoch, parent = damage(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    records = action(folder, epoch, parent)
    return time.perf_counter() - wall, time.process_time() - cpu, records


def text(values: Sequence[float]) -> str:
    """Median, with its interval of 95 % where there are enough values, else least to most."""
    low, high = median_interval(values) or (min(values), max(values))
    return f"{statistics.median(values):.2f} ({low:.2f} .. {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as root:
        for kind in ("chains", "shuffle"):
            source = Path(root) / kind
            topology = parse_topology(str(write_job(source, kind, arguments.keys, arguments.records)))
            options = JobOptions(str(source), "job.json", engine="inline", workers=2, interval=arguments.interval,
                                 keep=None)  # fmt: skip
            run_job(topology, str(source / "store"), options)
            store = opened(source)
            newest = max(store.epoch_numbers())
            rows = sum(part.rows for part in store.parts(newest))
            print(f"{kind}: {records_read(store.parts(newest)):,} records, {rows:,} keys of state, epoch {newest}")
            results: dict[str, list[tuple[float, float, int]]] = {"repair": [], "back": []}
            for _ in range(arguments.rounds):
                results["repair"].append(timed(repair, source, Path(root)))
                results["back"].append(timed(back, source, Path(root)))
            for name, times in results.items():
                walls, cpus, records = zip(*times, strict=True)
                print(
                    f"  {name:6} {text(walls)} s, {text(cpus)} s of CPU; {max(records):,} source records replayed"
                )
            pairs = list(zip(*results.values(), strict=True))
            for number, name in enumerate(("seconds", "CPU")):
                print(f"  repair to back, {name}: {text([one[number] / other[number] for one, other in pairs])}")


if __name__ == "__main__":
    main()
