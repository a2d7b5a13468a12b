"""Three jobs, and what each should show at an epoch: worked out from the input alone, without the engine.

Every line of input has a number of its own, a key, and how often it goes round. `acyclic` shows each line (`raw`) and
counts keys (`out`, once an epoch); `cyclic` sends each line round a loop, less one each time, shows what it is at each
turn, and counts that; `timed` shows each line, and counts keys in windows of event time, each of which comes out once.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import abscli
from formats.native.sink import SinkFolder
from formats.native.store import NativeStore
from formats.storage import LocalStorage

FILES = 2
LINES = 300
ROUNDS = 3
KEYS = 13

SINKS = ("raw", "out")

STEPS = '''
import pyarrow as pa

def keyed(batch):
    """The key of each line."""
    keys = [line.split()[1] for line in batch["line"].to_pylist()]
    return pa.record_batch([pa.array(keys, pa.string())], names=["line"])

def keyed_with_time(batch):
    """The key of each line, and its time."""
    keys = [line.split()[1] for line in batch["line"].to_pylist()]
    return pa.record_batch([pa.array(keys, pa.string()), batch["at"]], names=["line", "at"])

def hop(batch):
    """Each line that has rounds left, with one less."""
    lines = []
    for line in batch["line"].to_pylist():
        name, key, left = line.split()
        if int(left):
            lines.append(f"{name} {key} {int(left) - 1}")
    return pa.record_batch([pa.array(lines, pa.string())], names=["line"])
'''

ACYCLIC = """\
version: 1
job: sequences
parallelism: 2
max_parallelism: 8
operators:
  lines:
    source: {type: text, path: in/*.txt}
  raw:
    from: lines
    sink: {type: jsonl, path: raw}
  step:
    from: lines
    map: steps:keyed
  counts:
    from: {step: {partition: hash, key: [line]}}
    reduce: {key: [line], n: {count: "*"}, emit: epoch}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""

CYCLIC = """\
version: 1
job: sequences
parallelism: 2
max_parallelism: 8
operators:
  lines:
    source: {type: text, path: in/*.txt}
  step:
    from: {lines: {partition: hash, key: [line]}, step: {partition: hash, key: [line]}}
    flat_map: steps:hop
  raw:
    from: {step: {partition: rebalance}}
    sink: {type: jsonl, path: raw}
  counts:
    from: {step: {partition: hash, key: [line]}}
    reduce: {key: [line], n: {count: "*"}, emit: epoch}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""

TIMED = """\
version: 1
job: sequences
parallelism: 2
max_parallelism: 8
operators:
  lines:
    source:
      {type: jsonl, path: in/*.jsonl, schema: {line: string, at: timestamp}, event_time: {column: at, ordered: true}}
  raw:
    from: lines
    sink: {type: jsonl, path: raw}
  step:
    from: lines
    map: steps:keyed_with_time
  counts:
    from: {step: {partition: hash, key: [line]}}
    reduce: {key: [line], n: {count: "*"}}
    window: {time: at, tumbling: 50s}
  out:
    from: counts
    sink: {type: jsonl, path: out}
"""

Job = Literal["acyclic", "cyclic", "timed"]
FILES_OF: dict[Job, str] = {"acyclic": ACYCLIC, "cyclic": CYCLIC, "timed": TIMED}
START, WINDOW = datetime(2026, 1, 1), timedelta(seconds=50)


@dataclass(frozen=True)
class Answer:
    """What should be there when so many lines of each file have been read.

    at_rest: nothing goes round any more.
    in_flight: some of it may still be on its way, as part of the epoch: what is there is right, and may not be all.
    """

    job: Job
    read: dict[str, int]
    at_rest: bool
    in_flight: bool

    def check(self, folder: Path, store: Path, epoch: int) -> None:
        """The sinks and the state of an epoch of the store that they belong to are this, to the row."""
        lines = {name: (folder / name).read_text().splitlines() for name in self.read}
        due = [line for name, count in self.read.items() for line in lines[name][:count]]
        raw = Counter(str(row["line"]) for row in rows(folder / "raw"))
        if self.job == "timed":
            self._check_windows([json.loads(line) for line in due], raw, rows(folder / "out"), windows_of(store, epoch))
            return
        state = counts_of(store, epoch)
        if self.job == "acyclic":
            self._compare(raw, Counter(due), "shown", "read")
            self._compare(state, Counter(line.split()[1] for line in due), "counted", "read")
        else:
            possible = Counter(turn for line in due for turn in turns_of(line))
            assert_all(raw, possible, "shown", "possible")
            assert_all(state, possible, "counted", "possible")
            if not self.in_flight:
                self._compare(raw, state, "shown", "counted")
                for line in due:
                    done = [turn in raw for turn in turns_of(line)]
                    # What goes round still has not been shown; what it was before has.
                    assert done == sorted(done, reverse=True), f"{line} was lost in the middle: {done}"
                    assert all(done) or not self.at_rest, f"{line} was lost: {done}"
        last: dict[str, int] = {}
        for row in rows(folder / "out"):
            key, count = str(row["line"]), int(str(row["n"]))
            assert count > last.get(key, 0), f"{row} comes after a count of {last[key]}"
            last[key] = count
        self._compare(Counter(last), state, "shown as counts", "counted")

    def _check_windows(
        self, due: list[dict[str, str]], raw: Counter[str], shown: list[dict[str, object]], open: Counter[str]
    ) -> None:
        """Each window is open, or was shown, once, and has all its rows."""
        self._compare(raw, Counter(row["line"] for row in due), "shown", "read")
        closed: Counter[str] = Counter()
        for row in shown:
            window = f"{row['line']} {row['window_start']}"
            assert window not in closed, f"window {window} was shown twice"
            closed[window] = int(str(row["n"]))
        assert not closed.keys() & open.keys(), f"shown, and open: {sorted(closed.keys() & open.keys())[:5]}"
        self._compare(closed + open, Counter(map(window_of, due)), "counted in windows", "read")
        is_over = self.at_rest and len(due) == FILES * LINES
        assert not open or not is_over, f"open at the end: {sorted(open)[:5]}"

    def _compare(self, one: Counter[str], other: Counter[str], is_one: str, is_other: str) -> None:
        assert_all(one, other, is_one, is_other)
        if not self.in_flight:
            assert_all(other, one, is_other, is_one)


def assert_all(one: Counter[str], other: Counter[str], is_one: str, is_other: str) -> None:
    """Whatever is one is the other, as often."""
    more = one - other
    assert not more, f"{len(more)} {is_one} and not {is_other}, or more often: {dict(more.most_common(5))}"


def turns_of(line: str) -> list[str]:
    """What a line is at each turn of the loop."""
    name, key, left = line.split()
    return [f"{name} {key} {n}" for n in reversed(range(int(left)))]


def window_of(row: dict[str, str]) -> str:
    """The key of a row of the timed job, and the start of its window."""
    number = (datetime.fromisoformat(row["at"]) - START) // WINDOW
    return f"{row['line'].split()[1]} {(START + number * WINDOW).isoformat()}"


def write(folder: Path, job: Job) -> None:
    """A job file, its functions and its input."""
    (folder / "in").mkdir(parents=True)
    (folder / "steps.py").write_text(STEPS)
    (folder / "job.yaml").write_text(FILES_OF[job])
    for i in range(FILES):
        lines = [f"{i}-{k:03d} key{k % KEYS:02d} {k % (ROUNDS + 1)}" for k in range(LINES)]
        if job == "timed":
            times = [(START + timedelta(seconds=k)).isoformat() for k in range(LINES)]
            lines = [json.dumps({"line": line, "at": at}) for line, at in zip(lines, times, strict=True)]
        (folder / "in" / f"{i}.{'jsonl' if job == 'timed' else 'txt'}").write_text("\n".join(lines) + "\n")


def rows(sink: Path) -> list[dict[str, object]]:
    """Visible rows, by epoch, then task."""
    parts = sorted(SinkFolder(str(sink)).visible(), key=lambda name: name.split("-")[::-1])
    return [json.loads(line) for part in parts for line in (sink / part).read_text().splitlines()]


def counts_of(store: Path, epoch: int) -> Counter[str]:
    """The state of the operator that counts."""
    table = abscli.open_store(store).state("counts", epoch=epoch).to_pydict()
    return Counter(dict(zip(table["line"], table["n"], strict=True)))


def windows_of(store: Path, epoch: int) -> Counter[str]:
    """The windows that are open at an epoch, by key and start."""
    opened = abscli.open_store(store)
    if not opened.states("counts", epoch=epoch):
        return Counter()
    table: list[dict[str, Any]] = opened.state("counts", epoch=epoch).to_pylist()
    return Counter({f"{row['line']} {row['window_start'].isoformat()}": row["n"] for row in table})


def read_at(store: Path, epoch: int) -> dict[str, int]:
    """How many lines of each file had been read at an epoch."""
    operators = NativeStore(LocalStorage(store)).detail(epoch).operators
    positions = [place for one in operators for task in one.tasks for place in task.position or ()]
    return {place.split: place.records or 0 for place in positions}
