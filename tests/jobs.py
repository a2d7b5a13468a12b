"""Small real jobs for tests: word count, and reachability in a graph round a loop of parallel tasks."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

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


def write_skewed(folder: Path, *, files: int = 240, lines: int = 20, seed: int = 1) -> Counter[str]:
    """Its input and function, and the counts of its words. Files go to the two sources in turn: those of `lines/0`
    are quick, of `lines/1` one in eight is there, and takes ten times as long, so that both last about equally long. A
    batch is one file's, and a few of them fill a channel, which makes the source wait: so there is back pressure, and a
    middle in which a job can be killed, also in processes whose constants no test can reach."""
    rng = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    (folder / "skew.py").write_text(SKEW)
    counts: Counter[str] = Counter()
    for task, start, every, padding in ((0, "quick", 1, 12_000), (1, "slow", 8, 50_000)):
        words = [[start, *(f"w{rng.randrange(300)}" for _ in range(8))] for _ in range(lines)]
        (folder / start).write_text("".join(" ".join(line) + "." * padding + "\n" for line in words))
        for i in range(files):
            path = folder / "in" / f"{i:04d}-{task}.txt"
            if i % every:
                path.touch()
            else:
                os.link(folder / start, path)
                counts.update(word for line in words for word in line)
    return counts


COUNTDOWN = """
import time
import pyarrow as pa
import pyarrow.compute as pc

def step(batch):
    going = batch.filter(pc.greater(batch.column("left"), 0))
    time.sleep(0.00005 * going.num_rows)
    left = pc.subtract(going.column("left"), 1)
    return pa.record_batch([going.column("id"), left], names=["id", "left"])
"""


def countdown(parallelism: int = 2) -> Topology:
    """Records that go round a loop of parallel tasks `left` times; each round is counted, so none may come twice."""
    p = parallelism
    return Topology(
        "countdown",
        (
            operator("rows", Kind.SOURCE, p, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator("ring", Kind.UNION, p),
            operator("step", Kind.FLAT_MAP, p, function="countdown:step"),
            operator(
                "visits", Kind.REDUCE, p, key=("id",), aggregates=(Aggregate("n", "count", "*"),), emit="epoch"
            ),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (
            Edge("rows", "ring", HASH, ("id",)),
            Edge("step", "ring", REBALANCE),
            Edge("ring", "step", FORWARD),
            Edge("ring", "visits", HASH, ("id",)),
            Edge("visits", "out", FORWARD),
        ),
    )


def write_countdown(folder: Path, *, files: int = 40, rows: int = 100, rounds: int = 20) -> Counter[str]:
    """Its input and function, and how often each id goes past."""
    (folder / "in").mkdir(parents=True)
    (folder / "countdown.py").write_text(COUNTDOWN)
    counts: Counter[str] = Counter()
    for i in range(files):
        with (folder / "in" / f"{i:03d}.jsonl").open("w") as f:
            for j in range(rows):
                id, left = f"k{(i * rows + j) % 977}", (i + j) % (rounds + 1)
                f.write(json.dumps({"id": id, "left": left}) + "\n")
                counts[id] += left + 1
    return counts


def output_rows(folder: Path) -> list[dict[str, object]]:
    """Visible rows of a sink, by epoch, then task."""
    parts = sorted((folder / "out").glob("part-*.jsonl"), key=lambda p: p.name.split("-")[::-1])
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def last_counts(folder: Path, key: str = "word") -> dict[str, int]:
    """The last visible count of each word; asserts that a count never goes down across epochs."""
    last: dict[str, int] = {}
    for row in output_rows(folder):
        word, n = str(row[key]), int(str(row["n"]))
        assert n > last.get(word, 0)
        last[word] = n
    return last


def inline(folder: Path, **more: object) -> JobOptions:
    defaults: dict[str, object] = {"engine": "inline", "interval": 0.1, "workers": 2}
    return JobOptions(str(folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]
