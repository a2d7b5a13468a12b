"""Jobs that lose workers while they run: killed at moments that a test states, on either engine."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from abscli.engine.coordinator import Progress, Service
from abscli.engine.losses.decisions import Recovery
from abscli.engine.telemetry.news import News, Recovered, Recovering
from formats.job.model import Aggregate, Edge, Kind, Topology
from tests.support.jobs.small import FORWARD, HASH, open_gate, operator, output_rows

Due = Callable[[Progress], bool]

SLOW = """
import time
from pathlib import Path
OPEN = Path({folder!r}) / "open"

def pass_on(batch):
    if not OPEN.exists():
        time.sleep({pause})
    return batch
"""


def fan(emit: str = "record") -> Topology:
    """One source, whose rows are spread over two tasks by key: those that go on when its worker is lost drop by number
    what comes again."""
    return spread("fan", 1, 2, emit)


def spread(name: str, sources: int, counting: int, emit: str = "record") -> Topology:
    """So many sources, whose rows are spread by key over the tasks that count them."""
    counted = (Aggregate("n", "count", "*"),)
    return Topology(
        name,
        (
            operator("rows", Kind.SOURCE, sources, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator("same", Kind.MAP, sources, function="slow:pass_on"),
            operator("counts", Kind.REDUCE, counting, key=("key",), aggregates=counted, emit=emit),
            operator("out", Kind.SINK, counting, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "same", FORWARD), Edge("same", "counts", HASH, ("key",)), Edge("counts", "out", FORWARD)),
    )


def in_event_time(topology: Topology, folder: Path) -> Topology:
    """A job on the same rows, each of which has a time: they follow each other over all files."""
    for path in sorted((folder / "in").iterdir()):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        timed = [row | {"at": f"2026-01-{1 + row['id'] // 86400:02}T{_clock(row['id'] % 86400)}"} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in timed))
    rows, *others = topology.operators
    connector = (rows.connector or {}) | {
        "schema": {"key": "string", "id": "int", "at": "timestamp"}, "event_time": {"column": "at", "ordered": True},
    }  # fmt: skip
    operators = (msgspec.structs.replace(rows, connector=connector), *others)
    return msgspec.structs.replace(topology, operators=operators)


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def pipelines(parallelism: int = 2) -> Topology:
    """Chains that have nothing to do with each other, one a worker."""
    p = parallelism
    return Topology(
        "pipelines",
        (
            operator("rows", Kind.SOURCE, p, connector={"type": "jsonl", "path": "in/*.jsonl"}),
            operator("same", Kind.MAP, p, function="slow:pass_on"),
            operator("out", Kind.SINK, p, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "same", FORWARD), Edge("same", "out", FORWARD)),
    )


def write_rows(folder: Path, *, files: int = 400, rows: int = 20, pause: float = 0.01) -> Counter[str]:
    """Their input, a batch a file, and how many rows each key has. Until `open_gate` a batch takes as long as `pause`
    says, in seconds."""
    (folder / "in").mkdir(parents=True)
    (folder / "slow.py").write_text(SLOW.format(folder=str(folder), pause=pause))
    counts: Counter[str] = Counter()
    for i in range(files):
        keys = [f"k{(i * 7 + j * 3) % 97}" for j in range(rows)]
        counts.update(keys)
        lines = [json.dumps({"key": key, "id": i * rows + j}) for j, key in enumerate(keys)]
        (folder / "in" / f"{i:04d}.jsonl").write_text("\n".join(lines) + "\n")
    return counts


def check_counted(folder: Path, counts: Counter[str]) -> None:
    """Of `fan` with `emit: record`: each key's rows came out numbered from 1, each once."""
    numbers: dict[str, list[int]] = {}
    for row in output_rows(folder):
        numbers.setdefault(str(row["key"]), []).append(int(str(row["n"])))
    assert {key: sorted(seen) for key, seen in numbers.items()} == {
        key: list(range(1, count + 1)) for key, count in counts.items()
    }


def check_rows(folder: Path, counts: Counter[str]) -> None:
    """Of `pipelines`: each row came out once."""
    ids = [int(str(row["id"])) for row in output_rows(folder)]
    assert Counter(ids) == Counter(range(sum(counts.values()))), sorted(ids)


class Kills:
    """Kills workers of a job when it is time to, and opens its gate when what that led to is over.

    moments: when, and which workers; each waits for the one before to have happened.
    gate: the folder of a job that goes on to its end when its gate is open; opened after the last kill, when `enough`
    recoveries have ended (by default one for every moment).
    at_once: of each moment that came, how many workers were killed.
    during: how many were killed while others recovered.
    still: it is not opened before an epoch is complete that was begun after the last kill. Functions that look at the
    gate do something else when it is open, so that no task may take its steps again then.
    """

    def __init__(
        self, moments: Sequence[tuple[Due, Sequence[int]]], gate: Path, *, enough: int | None = None,
        still: bool = False,
    ) -> None:  # fmt: skip
        self.recoveries: list[Recovery] = []
        self.begun: list[Recovering] = []
        self.pids: list[int] = []
        self.at_once: list[int] = []
        self.during = 0
        self._moments = list(moments)
        self._gate = gate
        self._enough = len(self._moments) if enough is None else enough
        self._still = still
        self._killed_at = 0
        self._service: Service | None = None

    def meet(self, service: Service) -> None:
        """The job is about to start."""
        self._service = service

    def progress(self, progress: Progress) -> None:
        """To be called whenever the job has come further."""
        if self._moments and self._moments[0][0](progress):
            _, workers = self._moments.pop(0)
            before, recovering = len(self.pids), self.recovering
            for number in workers:
                self.kill(number)
            self.at_once.append(len(self.pids) - before)
            self.during += self.at_once[-1] if recovering else 0
            self._killed_at = progress.epochs
        if not self._moments and len(self.recoveries) >= self._enough and self._is_over(progress):
            open_gate(self._gate)

    def _is_over(self, progress: Progress) -> bool:
        """Of two epochs since the kill the second was begun after it."""
        assert self._service is not None
        settled = progress.epochs >= self._killed_at + 2 and self._service.losses.settled
        return settled or not self._still

    @property
    def recovering(self) -> bool:
        """Whether what was lost before is not yet there again."""
        return len(self.begun) > len(self.recoveries)

    def pid(self, number: int) -> int | None:
        """The process of a worker that is there."""
        assert self._service is not None
        crew = self._service.crew
        return crew.pids()[number] if crew.is_there(number) else None

    def kill(self, number: int) -> None:
        """SIGKILL where the worker is a process of its own; a thread is dropped with all that it has."""
        pid = self.pid(number)
        if pid is None:
            return
        self.pids.append(pid)
        if pid == os.getpid():
            assert self._service is not None
            self._service.crew.kill(number)
        else:
            os.kill(pid, signal.SIGKILL)

    def news(self, news: News) -> None:
        """What the job has to tell."""
        if isinstance(news, Recovering):
            self.begun.append(news)
        elif isinstance(news, Recovered):
            self.recoveries.append(news.recovery)


def after(epochs: int, *, open_epoch: bool = False) -> Due:
    """When so many epochs are complete; open_epoch: and another is being taken."""
    return lambda progress: progress.epochs >= epochs and (bool(progress.open_epochs) or not open_epoch)
