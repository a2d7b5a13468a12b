"""Flink's metadata: agreement with Flink's own loader on a folder of cases, and what reading costs.

    python -m tests.bench.flink.bench_flink [FOLDER]

FOLDER has `data/` (checkpoints) and `truth/` (`*.meta.json`); without it, the cases of the tests.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from formats.errors import FormatError
from formats.flink.metadata import properties
from formats.flink.metadata.file import encode, parse
from formats.flink.metadata.handles import (
    InlineHandle,
    KeyGroupsHandle,
    Metadata,
    OperatorState,
    RelativeHandle,
    Subtask,
)
from tests.support.flink.truth import DATA, differences, load

INSPECT = """
import json, resource, sys
from formats.flink.store import FlinkStore
store = FlinkStore(sys.argv[1])
for row in store.epochs():
    if row.reason is None:
        store.detail(row.epoch)
        json.dumps(store.raw(row.epoch))
usage = resource.getrusage(resource.RUSAGE_SELF)
assert "pyarrow" not in sys.modules
print(usage.ru_utime + usage.ru_stime)
"""


def agreement(folder: Path) -> None:
    """A line a case: does every field agree, and is the file written again byte for byte."""
    data = folder / "data" if (folder / "data").is_dir() else folder
    whole = same = total = missing = 0
    for path in sorted((folder / "truth").glob("*.meta.json")):
        truth = load(path.name, folder / "truth")
        file = data / truth["path"].removeprefix("$ROOT/") / "_metadata"
        if not file.is_file():
            missing += 1
            continue
        total += 1
        content = file.read_bytes()
        try:
            metadata = parse(content, str(file))
        except FormatError as error:
            print(f"  {path.name}: {error}")
            continue
        found = differences(metadata, truth)
        whole += not found
        same += encode(metadata) == content
        if found:
            print(f"  {path.name}: {len(found)} differences, first {found[0]}")
    print(f"metadata agrees with Flink's loader in all fields: {whole} of {total} cases")
    print(f"written again byte for byte: {same} of {total} cases")
    if missing:
        print(f"truth without its data here: {missing}")


def synthetic(subtasks: int) -> bytes:
    """A file with that many subtask states, each of 32 key groups in a file of its own: 1000 to an operator."""
    operators = []
    width = 1000
    for number in range(subtasks // width):
        states = tuple(
            Subtask(
                index=i,
                managed_keyed=KeyGroupsHandle(
                    12,
                    i * 32,
                    tuple(range(100, 100 + 32 * 50, 50)),
                    RelativeHandle(f"{number:08x}-1111-2222-3333-{i:012x}", 1 << 20),
                    f"{i:08x}-aaaa-bbbb-cccc-{number:012x}",
                ),
            )
            for i in range(width)
        )
        ident = f"{number:032x}"
        coordinator = InlineHandle("c", b"x" * 16)
        operators.append(OperatorState(ident, f"op {number}", f"op-{number}", width, 32000, coordinator, states))
    tail = properties.encode(properties.CHECKPOINT)
    return encode(Metadata(6, 1, (), tuple(operators), properties.CHECKPOINT, tail))


def cost(subtasks: int) -> None:
    """Time and memory of reading and writing a large file."""
    data = synthetic(subtasks)
    begin = time.perf_counter()
    metadata = parse(data)
    read = time.perf_counter() - begin
    begin = time.perf_counter()
    written = encode(metadata)
    wrote = time.perf_counter() - begin
    assert written == data
    del metadata, written
    tracemalloc.start()
    again = parse(data)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(again.operators) == subtasks // 1000
    print(f"{subtasks} subtask states, {len(data) / 1e6:.1f} MB: read {read:.2f} s, written {wrote:.2f} s")
    print(f"  memory of the model {kept / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB beyond the file's bytes")
    print(f"  process at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def inspect(path: Path) -> None:
    """CPU of list, detail and raw facts in a process of their own, best of five."""
    runs = [
        float(subprocess.run([sys.executable, "-c", INSPECT, str(path)], capture_output=True, check=True).stdout)
        for _ in range(5)
    ]
    print(f"inspect of {path.name} without the command line: {min(runs) * 1000:.0f} ms CPU (best of 5)")


if __name__ == "__main__":
    agreement(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
    cost(100_000)
    inspect(next((DATA / "in-progress").iterdir()))
    inspect(next((DATA / "hashmap-checkpoint").iterdir()))
