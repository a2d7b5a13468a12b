"""Small real jobs for tests: word count, and reachability in a graph round a loop of parallel tasks."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from abscli.engine.job import JobOptions
from formats.job.model import Aggregate, Edge, Kind, Operator, Partition, Topology

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
            operator("counts", Kind.REDUCE, p, key=("word",), aggregates=(Aggregate("n", "count", "*"),), emit=emit),
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


TURNING = "turning"
"""The key of a record that goes round a loop until the gate is open, and is no part of the result."""

REACHING = """
import json
import time
from pathlib import Path
import pyarrow as pa
NEXT = json.loads((Path({folder!r}) / "next.json").read_text())
OPEN = Path({folder!r}) / "open"

def steps(batch):
    starts, nodes = [], []
    for row in batch.to_pylist():
        if row["start"] == {turning!r}:
            time.sleep(0.001)
            if not OPEN.exists():
                starts.append(row["start"])
                nodes.append(str(int(row["node"]) + 1))
        for node in NEXT.get(row["node"], ()):
            starts.append(row["start"])
            nodes.append(node)
    return pa.record_batch([pa.array(starts, pa.string()), pa.array(nodes, pa.string())], names=["start", "node"])
"""


def write_graph(
    folder: Path, *, nodes: int = 60, degree: int = 2, seed: int = 1, turning: bool = False
) -> set[tuple[str, str]]:
    """A random graph's edges as input, the step function beside it, and all pairs (start, node reached). turning: the
    job does not end before `open_gate`; the pairs that keep it going are none of these."""
    rng = random.Random(seed)
    following: dict[str, set[str]] = defaultdict(set)
    for i in range(nodes):
        following[f"n{i}"] = {f"n{rng.randrange(nodes)}" for _ in range(degree)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "next.json").write_text(json.dumps({k: sorted(v) for k, v in following.items()}))
    (folder / "reaching.py").write_text(REACHING.format(folder=str(folder), turning=TURNING))
    with (folder / "edges.jsonl").open("w") as f:
        if turning:
            f.write(json.dumps({"start": TURNING, "node": "0"}) + "\n")
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
import functools
import time
from pathlib import Path

import pyarrow.compute as pc
from abscli.engine.functions import words as split
from formats.ids import TaskId
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status

FOLDER = Path({folder!r})
QUICK_BATCHES = 8
PATIENCE = 120.0

@functools.cache
def store():
    # There is none yet when the job is looked at before it runs.
    return NativeStore(LocalStorage(FOLDER / "store"))

def is_open():
    return (FOLDER / "open").exists()

def under_way():
    return [row for row in store().epochs() if row.status in (Status.IN_PROGRESS, Status.INCOMPLETE)]

def wait(fact, seconds):
    end = time.monotonic() + seconds
    while not (found := fact()) and time.monotonic() < end:
        time.sleep(0.01)
    return found

class Turns:
    # Its worker takes barriers and acks epochs between two calls only, so a wait that is no fact's ends: a bit later
    # each time, so that neither the input nor the time of the quick case is used up.
    def __init__(self):
        self.calls = 0

    def wait(self, fact):
        self.calls += 1
        return wait(fact, 0.02 * self.calls)

class Quick:
    # words/0 counts its batches behind its copy of each epoch under way.
    def __init__(self):
        self.turns, self.batches = Turns(), {{}}

    def next(self):
        for row in self.turns.wait(lambda: [row for row in under_way() if TaskId("words", 0) not in row.missing]):
            self.batches[row.epoch] = self.batches.get(row.epoch, 0) + 1
            if self.batches[row.epoch] == QUICK_BATCHES:
                (FOLDER / f"ahead-{{row.epoch}}").touch()

class Slow:
    # words/1 waits, from before an epoch is begun, until the other is ahead in it; when that epoch is complete, for
    # the test: no epoch after it can be, since its worker acks none.
    def __init__(self):
        self.turns, self.behind = Turns(), None

    def next(self):
        if self.behind is None:
            begun = max(store().epoch_numbers(), default=0)
            def ahead():
                rows = [row.epoch for row in under_way() if row.epoch > begun]
                return max((epoch for epoch in rows if (FOLDER / f"ahead-{{epoch}}").exists()), default=None)
            if self.turns.wait(lambda: ahead() or not under_way()):
                self.behind = wait(ahead, PATIENCE)
        elif self.turns.wait(lambda: (store().latest() or 0) >= self.behind):
            (FOLDER / "held").write_text(str(store().latest()))
            wait(is_open, PATIENCE)

quick, slow = Quick(), Slow()

def words(batch):
    if not is_open():
        (slow if pc.any(pc.starts_with(batch["line"], "slow")).as_py() else quick).next()
    return split(batch)
"""


def skewed() -> Topology:
    """The word count over an input of which one half is slow: what `words/1` sends to `counts` comes late."""
    topology = word_count()
    lines, words, *others = topology.operators
    connector = {"type": "jsonl", "path": "in/*.jsonl", "schema": {"line": "string"}}
    operators = (
        msgspec.structs.replace(lines, connector=connector),
        msgspec.structs.replace(words, function="skew:words"),
        *others,
    )
    return msgspec.structs.replace(topology, operators=operators)


def write_skewed(folder: Path, *, batches: int = 120, lines: int = 5, seed: int = 1) -> Counter[str]:
    """Its input and function, and the counts of its words. The job comes to a middle that lasts until `open_gate`: an
    epoch is complete at whose cut `words/0` was ahead of `words/1`, the next is under way and cannot end, and the file
    `held` has the number of the first (`held_at`)."""
    rng = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    (folder / "skew.py").write_text(SKEW.format(folder=str(folder)))
    counts: Counter[str] = Counter()
    for i in range(batches):  # a file is a batch, and files go to the two sources in turn
        for task, kind in enumerate(("quick", "slow")):
            with (folder / "in" / f"{i:04d}-{task}.jsonl").open("w") as f:
                for _ in range(lines):
                    words = [kind, *(f"w{rng.randrange(300)}" for _ in range(8))]
                    counts.update(words)
                    f.write(json.dumps({"line": " ".join(words)}) + "\n")
    return counts


def held_at(folder: Path) -> int | None:
    """The newest complete epoch of a job of `skewed` that has come to its middle."""
    held = folder / "held"
    return int(held.read_text() or 0) or None if held.exists() else None


def open_gate(folder: Path) -> None:
    """From now on the job goes on to its end."""
    (folder / "open").touch()


COUNTDOWN = """
import time
from pathlib import Path
import pyarrow as pa
import pyarrow.compute as pc
OPEN = Path({folder!r}) / "open"

def step(batch):
    turning = pc.equal(batch["id"], {turning!r})
    if pc.any(turning).as_py():
        time.sleep(0.001)
        if OPEN.exists():
            batch = batch.filter(pc.invert(turning))
    going = batch.filter(pc.greater(batch["left"], 0))
    time.sleep(0.00005 * going.num_rows)
    left = pc.subtract(going["left"], pc.if_else(pc.equal(going["id"], {turning!r}), 0, 1))
    return pa.record_batch([going["id"], left], names=["id", "left"])
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
            operator("visits", Kind.REDUCE, p, key=("id",), aggregates=(Aggregate("n", "count", "*"),), emit="epoch"),
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


def write_countdown(
    folder: Path, *, files: int = 40, rows: int = 100, rounds: int = 20, turning: bool = False
) -> Counter[str]:
    """Its input and function, and how often each id goes past. turning: the job does not end before `open_gate`, and
    at no cut is its loop empty, once a complete epoch has a log (from the first epoch on that found it reading)."""
    (folder / "in").mkdir(parents=True)
    (folder / "countdown.py").write_text(COUNTDOWN.format(folder=str(folder), turning=TURNING))
    counts: Counter[str] = Counter()
    if turning:
        (folder / "in" / "0.jsonl").write_text(json.dumps({"id": TURNING, "left": 1}) + "\n")
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


def output_pairs(folder: Path) -> list[tuple[str, str]]:
    """Visible pairs of a job of `reach`."""
    rows = output_rows(folder)
    return [(str(row["start"]), str(row["node"])) for row in rows if row["start"] != TURNING]


def last_counts(folder: Path, key: str = "word") -> dict[str, int]:
    """The last visible count of each word; asserts that a count never goes down across epochs."""
    last: dict[str, int] = {}
    for row in output_rows(folder):
        word, n = str(row[key]), int(str(row["n"]))
        assert n > last.get(word, 0)
        last[word] = n
    last.pop(TURNING, None)
    return last


def inline(folder: Path, **more: object) -> JobOptions:
    defaults: dict[str, object] = {"engine": "inline", "interval": 0.1, "workers": 2}
    return JobOptions(str(folder), "job.yaml", **{**defaults, **more})  # type: ignore[arg-type]
