"""What inspection costs: `inspect` of large stores, `validate` against sha256sum, `diff` against DuckDB's full outer
join over the same files, one key out of many.

    python -m tests.bench.bench_inspection [--keys 10000000] [--rounds 5] [--dir DIR] [--only inspect,validate,diff,key]

Commands run alternately, in processes of their own; medians of wall and CPU seconds (user + system, children
included), and the largest resident memory. DuckDB (two threads, as many as there are cores here) is a process of its
own, too, and timed as a whole. Stores are made with the functions that the engine writes with, in DIR if it is given
(they are used again) and otherwise in a temporary directory. Numbers of one run are comparable, those of two are not.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from formats.native.state.tables import KEY_GROUP
from tests.support.stores.large import Synthetic, words

ABS = [sys.executable, "-m", "abscli.cli.main"]
JOIN = """
import duckdb, sys
root, threads = sys.argv[1:]
one, two = (f"read_parquet('{root}/epochs/{epoch:010d}/parts/counts/*/state.parquet')" for epoch in (1, 2))
duckdb.execute(f"SET threads = {threads}")
print(duckdb.execute(f'''
    SELECT count(*) FILTER (a.word IS NULL), count(*) FILTER (b.word IS NULL), count(*) FILTER (a.n <> b.n)
    FROM {one} a FULL OUTER JOIN {two} b ON a.word = b.word''').fetchall())
"""
TIMER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)
sys.exit(code)
"""


def run(command: list[str]) -> tuple[float, float, float]:
    """Wall and CPU seconds, MB of resident memory."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", TIMER, *command], check=True, capture_output=True, text=True)
    wall = time.perf_counter() - begun
    cpu, memory = map(float, done.stdout.split())
    return wall, cpu, memory


def compare(commands: dict[str, list[str]], rounds: int) -> dict[str, tuple[float, float, float]]:
    """Medians, each command in turn."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(run(command))
    result = {}
    for name, each in found.items():
        wall, cpu, memory = (statistics.median(column) for column in zip(*each, strict=True))
        result[name] = (wall, cpu, memory)
        print(f"  {name:48} {wall:7.2f} s wall {cpu:7.2f} s CPU {memory:7.0f} MB")
    return result


def ratio(found: dict[str, tuple[float, float, float]], a: str, b: str) -> None:
    print(f"  {a} / {b}: wall {found[a][0] / found[b][0]:.2f}, CPU {found[a][1] / found[b][1]:.2f}")


def store(where: Path, name: str, make: Callable[[str], None]) -> str:
    """The path of a store, made unless it is there; the mark of being done lies beside it."""
    if not (where / f"{name}.done").exists():
        begun = time.perf_counter()
        make(str(where / name))
        (where / f"{name}.done").touch()
        print(f"  ({name} made in {time.perf_counter() - begun:.0f} s)")
    return str(where / name)


def many_parts(path: str, epochs: int, tasks: int) -> None:
    """Epochs of that many tasks in all; each epoch after the first writes one file anew."""
    os.fsync = lambda fd: None  # type: ignore[assignment]  # nothing here has to survive a power cut
    width = tasks - 2
    made = Synthetic(path, width, max(width, 1024))
    table = pa.table({"word": words(np.arange(3 * width)), "n": pa.array(np.arange(3 * width))})
    files = [(made.write(1, i, rows),) for i, rows in enumerate(made.slices(table))]
    made.epoch(1, 0, files)
    one = table.slice(0, 1).add_column(0, KEY_GROUP, pa.array([0], pa.int32()))
    for epoch in range(2, epochs + 1):
        i = epoch % width
        files[i] = (files[i][-1], made.write(epoch, i, one))
        made.epoch(epoch, epoch - 1, files)


def many_keys(path: str, keys: int) -> None:
    """Epoch 1: all keys on 100 tasks. 2: everything rewritten, 1 % changed, 0.1 % new, 0.1 % gone. 3: as 1 but for
    one task, which is as in 2. 4: on top of the files of 1 a file a task with the 1 % that changed."""
    random = np.random.default_rng(1)
    made = Synthetic(path, 100)
    numbers = np.arange(keys)
    first = pa.table({"word": words(numbers), "n": pa.array(random.integers(0, 1000, keys))})
    slices = made.slices(first)
    base = [(made.write(1, i, rows),) for i, rows in enumerate(slices)]
    made.epoch(1, 0, base)
    changed = np.zeros(keys, dtype=bool)
    changed[random.choice(keys, keys // 100, replace=False)] = True
    gone = np.zeros(keys, dtype=bool)
    gone[random.choice(keys, keys // 1000, replace=False)] = True
    values = first["n"].to_numpy() + changed
    added = keys // 1000
    new = pa.table({"word": words(np.arange(keys, keys + added)), "n": pa.array(np.ones(added, np.int64))})
    second = pa.table({"word": first["word"], "n": pa.array(values)})
    after = made.slices(pa.concat_tables([second.filter(pa.array(~gone)), new]).combine_chunks())
    made.epoch(2, 1, [(made.write(2, i, rows),) for i, rows in enumerate(after)])
    made.epoch(3, 1, [(made.write(3, 42, after[42]),) if i == 42 else base[i] for i in range(100)])
    some = made.slices(second.filter(pa.array(changed)).combine_chunks())
    made.epoch(4, 1, [(*base[i], made.write(4, i, rows)) for i, rows in enumerate(some)], [r.num_rows for r in slices])


def incompressible(path: str, megabytes: int) -> None:
    """One epoch whose state does not compress, in 32 files."""
    random = np.random.default_rng(2)
    made = Synthetic(path, 32)
    rows = megabytes * 1_000_000 // 16
    table = pa.table({"word": words(np.arange(rows)), "n": pa.array(random.integers(-(2**62), 2**62, rows))})
    made.epoch(1, 0, [(made.write(1, i, mine),) for i, mine in enumerate(made.slices(table))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir")
    parser.add_argument("--only", default="inspect,validate,diff,key")
    options = parser.parse_args()
    wanted = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as temporary:
        where = Path(options.dir or temporary)
        where.mkdir(exist_ok=True)
        if "inspect" in wanted:
            inspect(where, options.rounds)
        if "validate" in wanted:
            validate(where, options.megabytes, options.rounds)
        if "diff" in wanted:
            diff(where, options.keys, options.rounds)
        if "key" in wanted:
            key(where, options.keys, options.rounds)


def inspect(where: Path, rounds: int) -> None:
    print("abs inspect")
    epochs = store(where, "epochs", lambda path: many_parts(path, 1000, 1000))
    tasks = store(where, "tasks", lambda path: many_parts(path, 1, 100_000))
    compare(
        {
            "1,000 epochs of 1,000 tasks": [*ABS, "inspect", epochs],
            "1,000 epochs of 1,000 tasks, json": [*ABS, "inspect", epochs, "-o", "json"],
            "an epoch of 100,000 tasks": [*ABS, "inspect", f"{tasks}@1"],
            "an epoch of 100,000 tasks, json": [*ABS, "inspect", f"{tasks}@1", "-o", "json"],
        },
        rounds,
    )


def validate(where: Path, megabytes: int, rounds: int) -> None:
    print("abs validate")
    path = store(where, f"random-{megabytes}", lambda path: incompressible(path, megabytes))
    cores = os.cpu_count() or 1
    hashing = f"find {path} -type f -print0 | xargs -0 -P {cores} -n 4 sha256sum"
    found = compare({"abs validate": [*ABS, "validate", path], "sha256sum": ["sh", "-c", hashing]}, rounds)
    ratio(found, "abs validate", "sha256sum")


def diff(where: Path, keys: int, rounds: int) -> None:
    print(f"abs diff of {keys:,} against {keys:,} keys")
    path = store(where, f"keys-{keys}", lambda path: many_keys(path, keys))
    commands = {
        "all files rewritten": [*ABS, "diff", f"{path}@1", f"{path}@2"],
        "99 of 100 files shared": [*ABS, "diff", f"{path}@1", f"{path}@3"],
        "on top of shared files": [*ABS, "diff", f"{path}@1", f"{path}@4"],
    }
    if importlib.util.find_spec("duckdb") is not None:
        commands["DuckDB's full outer join"] = [sys.executable, "-c", JOIN, path, str(os.cpu_count())]
    found = compare(commands, rounds)
    if len(commands) == 4:
        ratio(found, "all files rewritten", "DuckDB's full outer join")
        ratio(found, "99 of 100 files shared", "DuckDB's full outer join")


def key(where: Path, keys: int, rounds: int) -> None:
    print(f"abs state --key, one of {keys:,}")
    path = store(where, f"keys-{keys}", lambda path: many_keys(path, keys))
    word = f"word-{keys // 3:09d}"
    compare(
        {
            "of one file a task": [*ABS, "state", f"{path}@1", "counts", "--key", word],
            "of two files a task": [*ABS, "state", f"{path}@4", "counts", "--key", word],
            "python -c 'import pyarrow.parquet'": [sys.executable, "-c", "import pyarrow.parquet"],
        },
        rounds,
    )


if __name__ == "__main__":
    main()
