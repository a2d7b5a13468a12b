"""Small real jobs for tests: word count, and reachability in a graph round a loop of parallel tasks."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

from abscli.engine.job import JobOptions
from formats.topology import Aggregate, Edge, Kind, Operator, Partition, Topology

HASH, FORWARD, REBALANCE = Partition.HASH, Partition.FORWARD, Partition.REBALANCE


def operator(id: str, kind: Kind, parallelism: int = 2, **more: object) -> Operator:
    return Operator(id, kind, parallelism, 128, **more)  # type: ignore[arg-type]


def word_count(parallelism: int = 2, emit: str = "epoch", source: str = "in/*.txt") -> Topology:
    p = parallelism
    return Topology(
        "words",
        (
            operator("lines", Kind.SOURCE, p, connector={"type": "text", "path": source}),
            operator("words", Kind.FLAT_MAP, p, function="words"),
            operator(
                "counts", Kind.REDUCE, p, key=("word",), aggregates=(Aggregate("n", "count", "*"),), emit=emit
            ),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("lines", "words", FORWARD),
            Edge("words", "counts", HASH, ("word",)),
            Edge("counts", "out", FORWARD),
        ),
    )


def write_words(folder: Path, *, files: int = 3, lines: int = 200, seed: int = 1) -> Counter[str]:
    """Text files below `folder`/in, and the counts of their words."""
    rng = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    counts: Counter[str] = Counter()
    for i in range(files):
        with (folder / "in" / f"{i}.txt").open("w") as f:
            for _ in range(lines):
                words = [f"w{int(rng.paretovariate(0.6)) % 5000}" for _ in range(8)]
                counts.update(words)
                f.write(" ".join(words) + "\n")
    return counts


def reach(parallelism: int = 2) -> Topology:
    p = parallelism
    key = ("start", "node")
    return Topology(
        "reach",
        (
            operator("edges", Kind.SOURCE, 1, connector={"type": "jsonl", "path": "edges.jsonl"}),
            operator("pairs", Kind.DISTINCT, p, key=key),
            operator("steps", Kind.FLAT_MAP, p, function="reaching:steps"),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("edges", "pairs", HASH, key),
            Edge("steps", "pairs", HASH, key),
            Edge("pairs", "steps", FORWARD),
            Edge("pairs", "out", FORWARD),
        ),
    )


REACHING = """
import json
from pathlib import Path
import pyarrow as pa
NEXT = json.loads((Path({folder!r}) / "next.json").read_text())

def steps(batch):
    starts, nodes = [], []
    for row in batch.to_pylist():
        for node in NEXT.get(row["node"], ()):
            starts.append(row["start"])
            nodes.append(node)
    return pa.record_batch([pa.array(starts, pa.string()), pa.array(nodes, pa.string())], names=["start", "node"])
"""


def write_graph(folder: Path, *, nodes: int = 60, degree: int = 2, seed: int = 1) -> set[tuple[str, str]]:
    """A random graph's edges as input, the step function beside it, and all pairs (start, node reached)."""
    rng = random.Random(seed)
    following: dict[str, set[str]] = defaultdict(set)
    for i in range(nodes):
        following[f"n{i}"] = {f"n{rng.randrange(nodes)}" for _ in range(degree)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "next.json").write_text(json.dumps({k: sorted(v) for k, v in following.items()}))
    (folder / "reaching.py").write_text(REACHING.format(folder=str(folder)))
    with (folder / "edges.jsonl").open("w") as f:
        for start, targets in following.items():
            for node in sorted(targets):
                f.write(json.dumps({"start": start, "node": node}) + "\n")
    pairs = set()
    for start in following:
        todo = list(following[start])
        while todo:
            node = todo.pop()
            if (start, node) not in pairs:
                pairs.add((start, node))
                todo += following[node]
    return pairs


def output_rows(folder: Path) -> list[dict[str, object]]:
    """Visible rows of a sink, by epoch, then task."""
    parts = sorted((folder / "out").glob("part-*.jsonl"), key=lambda p: p.name.split("-")[::-1])
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def last_counts(folder: Path) -> dict[str, int]:
    """The last visible count of each word; asserts that a count never goes down across epochs."""
    last: dict[str, int] = {}
    for row in output_rows(folder):
        word, n = str(row["word"]), int(str(row["n"]))
        assert n > last.get(word, 0)
        last[word] = n
    return last


def inline(folder: Path, **more: object) -> JobOptions:
    defaults: dict[str, object] = {"engine": "inline", "interval": 0.1, "workers": 2}
    return JobOptions(str(folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]
