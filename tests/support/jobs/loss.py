"""A keyed job at a steady rate that loses a worker: its input, what its tasks write down, and the figures from that.

Rows are `{"key", "id"}`. `id // WIDTH` is the number of a row within its source, `id % WIDTH` the source. Each source
goes round and round over keys of its own, so that the count of a key tells whether all its rows have been counted once.
The first round is a backlog; a later row is due at `begin + (number - backlog) / rate`, with its whole file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from formats.native.hashing import key_groups

WIDTH = 4
"""Sources, and tasks of every other operator."""

MAX_PARALLELISM = 128
BACKLOG_FILES = 10

FUNCTIONS = """
import functools
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from formats.native.hashing import key_groups

FOLDER = Path({folder!r})
RATE, BACKLOG, KEYS, WIDTH, GROUPS = {rate!r}, {backlog!r}, {keys!r}, {width!r}, {groups!r}

@functools.cache
def log(pid):
    return os.open(FOLDER / "log" / str(pid), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

@functools.cache
def begin():
    now = FOLDER / f"begin-{{os.getpid()}}"
    now.write_text(repr(time.time()))
    try:
        os.link(now, FOLDER / "begin")
    except FileExistsError:
        pass
    return float((FOLDER / "begin").read_text())

def note(kind, task, source, numbers, wrong):
    pid = os.getpid()
    line = f"{{time.time():.6f}} {{pid}} {{kind}} {{task}} {{source}} {{len(numbers)}}"
    os.write(log(pid), f"{{line}} {{numbers[0]}} {{numbers[-1]}} {{wrong}}\\n".encode())

def pace(batch):
    ids = batch["id"].to_numpy()
    due = begin() + max(0, int(ids[0]) // WIDTH - BACKLOG) / RATE
    time.sleep(max(0.0, due - time.time()))
    source = int(ids[0]) % WIDTH
    note("read", source, source, ids // WIDTH, 0)
    return batch

def put_out(batch):
    ids, counts = batch["id"].to_numpy(), batch["n"].to_numpy()
    task = int(key_groups([batch["key"].slice(0, 1)], GROUPS)[0]) * WIDTH // GROUPS
    for source in np.unique(ids % WIDTH).tolist():
        mine = ids % WIDTH == source
        numbers = ids[mine] // WIDTH
        note("keyed", task, source, numbers, int((counts[mine] != numbers // KEYS[source] + 1).sum()))
    return pa.array(np.zeros(batch.num_rows, dtype=bool))
"""
"""`pace` stands between source and reduce, `put_out` behind the reduce; it lets nothing pass, so that no sink is part
of what is measured."""


@dataclass(frozen=True, slots=True)
class Input:
    """Rows on disk.

    folder: of its files, of which every WIDTH-th in the order of names is of one source.
    keys: how many each source goes round over.
    backlog: rows of a source that are due at once.
    rate: rows a second and source after that.
    """

    folder: Path
    keys: tuple[int, ...]
    backlog: int
    rate: int

    def due(self, number: int) -> float:
        """Seconds after the beginning at which a row of a source is due."""
        return max(0, number - self.backlog) / self.rate

    def functions(self, folder: Path) -> str:
        """The module of the job's functions, which write to `folder`/log."""
        return FUNCTIONS.format(
            folder=str(folder), rate=self.rate, backlog=self.backlog, keys=self.keys, width=WIDTH,
            groups=MAX_PARALLELISM,
        )  # fmt: skip


def keys_of_sources(keys: int, *, shuffled: bool, seed: int = 1) -> list[npt.NDArray[np.int64]]:
    """Which keys each source has. shuffled: any; otherwise those of the task of the same number of a keyed operator."""
    order = np.random.default_rng(seed).permutation(keys).astype(np.int64)
    if shuffled:
        return np.array_split(order, WIDTH)
    owners = key_groups([pa.array(order)], MAX_PARALLELISM).astype(np.int64) * WIDTH // MAX_PARALLELISM
    return [order[owners == task] for task in range(WIDTH)]


def write_input(folder: Path, *, keys: int, rate: int, batch: int, seconds: float, shuffled: bool) -> Input:
    """An input of about so many seconds, in files of `batch` rows after the backlog."""
    folder.mkdir(parents=True)
    sources = keys_of_sources(keys, shuffled=shuffled)
    each = math.ceil(max(map(len, sources)) / BACKLOG_FILES)
    for source, own in enumerate(sources):
        sizes = [each] * BACKLOG_FILES + [batch] * math.ceil(seconds * rate / batch)
        start = 0
        for i, size in enumerate(sizes):
            numbers = np.arange(start, start + size)
            key, id = (pa.array(c).cast(pa.string()) for c in (own[numbers % len(own)], numbers * WIDTH + source))
            lines = pc.binary_join_element_wise('{"key":', key, ',"id":', id, "}\n", "")
            length = pc.sum(pc.binary_length(lines)).as_py()
            (folder / f"{i:06d}-{source}.jsonl").write_bytes(memoryview(lines.buffers()[2])[:length])
            start += size
    return Input(folder, tuple(map(len, sources)), each * BACKLOG_FILES, rate)


@dataclass(frozen=True, slots=True)
class Line:
    """Rows that a task has processed.

    kind: `read` (behind a source) or `keyed` (behind the keyed operator).
    first, last: numbers within their source, of rows in ascending order.
    wrong: how many counted something else than the rows of their key up to them.
    """

    at: float
    pid: int
    kind: str
    task: int
    source: int
    rows: int
    first: int
    last: int
    wrong: int


def read_lines(folder: Path) -> list[Line]:
    """All that tasks have written down, by time; a line that is being written is left out."""
    lines = []
    for path in (folder / "log").iterdir():
        for text in path.read_text().splitlines(keepends=True):
            if text.endswith("\n"):
                at, pid, kind, *numbers = text.split()
                lines.append(Line(float(at), int(pid), kind, *map(int, numbers)))
    return sorted(lines, key=lambda line: line.at)


def with_new_rows(lines: Iterable[Line]) -> Iterator[tuple[Line, int]]:
    """Each line with how many of its rows its task had not processed before; lines in the order of time."""
    frontier: dict[tuple[str, int, int], int] = defaultdict(lambda: -1)
    for line in lines:
        place = line.kind, line.task, line.source
        before = frontier[place]
        if line.first > before:
            new = line.rows
        elif line.last <= before:
            new = 0
        else:  # numbers have gaps behind a shuffle: as if they were even
            new = max(1, round(line.rows * (line.last - before) / (line.last - line.first + 1)))
        frontier[place] = max(before, line.last)
        yield line, new


@dataclass(frozen=True, slots=True)
class Figures:
    """What a kill cost. Seconds are from the kill; None for what has not come.

    rate: rows a second of the keyed tasks before.
    first_row: until a lost keyed task processes a row that it had not.
    all_sources: until it has done so of each source: the key range is back.
    as_fresh: until its rows are as soon after they were due as before, within FRESH.
    epoch: until an epoch is complete that began after the kill.
    kept: rows that the other keyed tasks had not processed before, until `all_sources`, to those at their rate before;
        what they make up for in that time counts.
    on_time: of the rows that were due at the others until then, the share that they processed when they were due.
    pause: the longest time in which one of these processed none, until `as_fresh`.
    read_again, keyed_again: rows that sources, and keyed tasks, processed again.
    wrong: rows of which the count of the key was wrong.
    """

    rate: float
    first_row: float | None
    all_sources: float | None
    as_fresh: float | None
    epoch: float | None
    kept: float | None
    on_time: float | None
    pause: float | None
    read_again: int
    keyed_again: int
    wrong: int

    @property
    def over(self) -> bool:
        """Whether all has come."""
        return None not in (self.all_sources, self.as_fresh, self.epoch)


class Epoch(NamedTuple):
    """Unix times of one that is complete."""

    begun: float
    completed: float


FRESH = 0.25
"""Seconds of lateness beyond what was usual before that count as none."""

BEFORE = 4.0
"""Seconds before the kill whose rate counts."""


def figures(
    lines: list[Line], epochs: Iterable[Epoch], killed_at: float, victim: int, rows: Input, begin: float
) -> Figures:
    """lines: by time; epochs: those that are complete; victim: the process that was killed then."""
    keyed = [line for line in lines if line.kind == "keyed"]
    lost = {line.task for line in keyed if line.pid == victim and killed_at - BEFORE < line.at}
    recent = [line for line in keyed if killed_at - BEFORE < line.at <= killed_at]
    usual = _lateness(recent, rows, begin)
    awaited = {(line.task, line.source) for line in recent if line.task in lost}
    back: dict[tuple[int, int], float] = {}
    as_fresh = None
    again = {"read": 0, "keyed": 0}
    fresh_rows: list[tuple[float, int, int]] = []
    due_rows: list[tuple[float, float, int]] = []
    for line, new in with_new_rows(lines):
        if line.at > killed_at:
            again[line.kind] += line.rows - new
        if line.kind != "keyed":
            continue
        place = line.task, line.source
        if line.task not in lost:
            fresh_rows.append((line.at, line.task, new))
            due_rows.append((rows.due(line.last), line.at - begin, new))
        elif line.at > killed_at and line.pid != victim and new:
            back.setdefault(place, line.at)
            lateness = line.at - begin - rows.due(line.last)
            if as_fresh is None and awaited <= back.keys() and lateness < usual + FRESH:
                as_fresh = line.at
    all_sources = max(back[place] for place in awaited) if awaited and awaited <= back.keys() else None
    others_before = sum(new for at, _, new in fresh_rows if killed_at - BEFORE < at <= killed_at) / BEFORE
    kept = on_time = None
    if all_sources is not None and others_before:
        others = sum(new for at, _, new in fresh_rows if killed_at < at <= all_sources)
        kept = others / (others_before * (all_sources - killed_at))
        on_time = _share_on_time(due_rows, killed_at - begin, all_sources - begin, usual)
    epoch = min((epoch.completed for epoch in epochs if epoch.begun > killed_at), default=None)
    return Figures(
        rate=sum(line.rows for line in recent) / BEFORE,
        first_row=_since(killed_at, min(back.values(), default=None)),
        all_sources=_since(killed_at, all_sources),
        as_fresh=_since(killed_at, as_fresh),
        epoch=_since(killed_at, epoch),
        kept=kept,
        on_time=on_time,
        pause=_longest_pause(fresh_rows, killed_at, as_fresh),
        read_again=again["read"],
        keyed_again=again["keyed"],
        wrong=sum(line.wrong for line in lines),
    )


def is_steady(lines: list[Line], now: float, rows: Input, begin: float) -> bool:
    """Whether every keyed task goes on at the rate of its input, and they have made up for nothing of late: the rate
    before a kill is that of BEFORE seconds."""
    recent = [line for line in lines if line.kind == "keyed" and now - BEFORE < line.at <= now]
    going = {line.task for line in recent if line.at > now - 1.0}
    made_up = sum(line.rows for line in recent) > 1.1 * rows.rate * WIDTH * BEFORE
    return len(going) == WIDTH and not made_up and _lateness(recent, rows, begin) < FRESH


def _since(killed_at: float, at: float | None) -> float | None:
    return None if at is None else at - killed_at


def _lateness(lines: list[Line], rows: Input, begin: float) -> float:
    """The median of how late lines were."""
    late = sorted(line.at - begin - rows.due(line.last) for line in lines)
    return late[len(late) // 2] if late else 0.0


def _share_on_time(due_rows: list[tuple[float, float, int]], start: float, end: float, usual: float) -> float | None:
    """Of (due, processed, rows) that were due between start and end."""
    between = [(at - due < usual + FRESH, count) for due, at, count in due_rows if start < due <= end]
    total = sum(count for _, count in between)
    return sum(count for is_on_time, count in between if is_on_time) / total if total else None


def _longest_pause(fresh_rows: list[tuple[float, int, int]], killed_at: float, until: float | None) -> float | None:
    if until is None:
        return None
    moments: Mapping[int, list[float]] = defaultdict(list)
    for at, task, new in fresh_rows:
        if new and at > killed_at - 1.0:
            moments[task].append(at)
    pauses = [b - max(a, killed_at) for at in moments.values() for a, b in pairwise(at) if b > killed_at and a < until]
    return max(pauses, default=None)
