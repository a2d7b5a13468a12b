"""Measure what the loss of one of four workers costs a keyed job at a steady rate.

Compared are recovery `local`, `subgraph` and `full`, and Flink 2.3.

    python -m tests.bench.engine.bench_loss [--pairs 3] [--flinks 1] [--heartbeats default,1] [--minutes 10]

Two jobs, source -> map -> count and newest row by key, four tasks each, a million keys, an epoch every 5 s:
`parallel`, four pipelines that have nothing to do with each other, and `shuffled`, by hash from all to all. After a
first round over all keys a file of rows is due at each source every `batch / rate` seconds, so that all run at the
same rate and a backlog can be made up for. One worker is killed with SIGKILL half an interval after an epoch began
that is complete, when all have kept up with that rate.
What tasks process they write down; `tests/support/jobs/loss.py` says what each figure is. Every count is checked.

Ours: Spark local[4], a Python worker process for each of the four; another is started in place of the lost one. The
job of pipelines is given as a topology, since a job file has hash before a reduce: a source's keys are those of its
task.
Flink: one JobManager and five TaskManager processes of one slot, one of them to spare; `hashmap` state on heap, whole
checkpoints to a local folder; fixed-delay restart without delay; failover by region as it is by default. A TaskManager
that is gone is missed when the second heartbeat cannot be sent to it: after 10 to 20 s with `heartbeat.interval` as it
is by default (10 s), so that there is a run with 1 s, too. Pipelines are four chains of parallelism 1, each in its own
slot.
What differs: ours reads in a Python worker and pauses in the map, up to a batch's time (which delays what it hears
meanwhile); Flink reads and pauses in its source, row by row; ours writes what has changed, Flink all of its state.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abscli.engine.coordinator import Service
from abscli.engine.drivers.spark import start_context
from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.job import JobOptions, run_job
from abscli.engine.losses.decisions import Scope
from abscli.engine.telemetry.news import EpochDone, News
from formats.job.model import Aggregate, Edge, Kind, Topology
from tests.support.flink.cluster import FlinkCluster
from tests.support.flink.venv import VERSION, flink_jars
from tests.support.intervals import median_interval
from tests.support.jobs.loss import BEFORE, WIDTH, Epoch, Figures, Input, figures, is_steady, read_lines, write_input
from tests.support.jobs.small import FORWARD, HASH, operator

INTERVAL = 5.0
VICTIM = 1
PATIENCE = 45.0
"""Seconds for a steady rate, and for a recovery."""

NOT_STEADY = "nothing was killed: the job ended, or did not keep up with its input in time (give a lower --rate)"

JOBS = ("parallel", "shuffled")
JAVA = Path(__file__).parents[2] / "flink_java" / "LossJob.java"


def topology(name: str) -> Topology:
    """The job, as our engine runs it."""
    key = ("key",)
    aggregates = (Aggregate("n", "count", "*"), Aggregate("id", "max", "id"))
    schema = {"key": "int", "id": "int"}
    edge = Edge("paced", "counts", HASH, key) if name == "shuffled" else Edge("paced", "counts", FORWARD)
    return Topology(
        name,
        (
            operator("rows", Kind.SOURCE, WIDTH, connector={"type": "jsonl", "path": "in/*.jsonl", "schema": schema}),
            operator("paced", Kind.MAP, WIDTH, function="loss_functions:pace"),
            operator("counts", Kind.REDUCE, WIDTH, key=key, aggregates=aggregates, emit="record"),
            operator("seen", Kind.FILTER, WIDTH, function="loss_functions:put_out"),
            operator("out", Kind.SINK, WIDTH, connector={"type": "jsonl", "path": "out"}),
        ),
        (Edge("rows", "paced", FORWARD), edge, Edge("counts", "seen", FORWARD), Edge("seen", "out", FORWARD)),
    )


Run = Callable[[str, Input, Path], Figures]
"""Of a job, with its input, in a folder of its own."""


class NotSteadyError(RuntimeError):
    """A run in which nothing was killed, since the job did not keep the rate: it says nothing about a loss."""


class Kill(NamedTuple):
    """What was killed, and when (Unix time)."""

    at: float
    pid: int


class Watch:
    """Waits for the moment, kills, and looks until all has come back.

    epochs(): those that are complete so far. victim(): the process to kill.
    """

    def __init__(
        self, folder: Path, rows: Input, warm: float, epochs: Callable[[], list[Epoch]], victim: Callable[[], int]
    ) -> None:
        self.kill: Kill | None = None
        self._folder = folder
        self._rows = rows
        self._warm = warm
        self._epochs = epochs
        self._victim = victim

    def run(self, gone: Callable[[], bool] = lambda: False) -> None:
        """Returns when there is no more to wait for. gone: the job has ended."""
        until = time.monotonic() + PATIENCE + self._warm
        while not self._due():
            if gone() or time.monotonic() > until:
                return
            time.sleep(0.02)
        pid = self._victim()
        self.kill = Kill(time.time(), pid)
        os.kill(pid, signal.SIGKILL)
        self._epochs()  # which have begun by now
        until = time.monotonic() + PATIENCE
        time.sleep(1.0)
        while not (gone() or time.monotonic() > until or self.figures().over):
            time.sleep(1.0)

    def _due(self) -> bool:
        begin, now, newest = self._begin(), time.time(), max(self._epochs(), default=Epoch(0.0, 0.0))
        if begin is None or newest.completed < begin + self._warm:
            return False
        if not max(newest.begun + INTERVAL / 2, newest.completed + 0.1) <= now < newest.begun + INTERVAL - 0.5:
            return False
        return is_steady(read_lines(self._folder), now, self._rows, begin)

    def _begin(self) -> float | None:
        path = self._folder / "begin"
        return float(path.read_text()) if path.exists() else None

    def figures(self) -> Figures:
        """As far as they have come; there was a kill."""
        begin = self._begin()
        assert self.kill is not None
        assert begin is not None
        return figures(read_lines(self._folder), self._epochs(), self.kill.at, self.kill.pid, self._rows, begin)


def run_ours(name: str, rows: Input, folder: Path, *, context: Any, scope: Scope, warm: float) -> Figures:
    """One run on Spark with one kill."""
    (folder / "log").mkdir(parents=True)
    (folder / "in").symlink_to(rows.folder)
    (folder / "loss_functions.py").write_text(rows.functions(folder))
    epochs: list[Epoch] = []
    services: list[Service] = []

    def news(news: News) -> None:
        if isinstance(news, EpochDone):
            epochs.append(Epoch(news.at - news.seconds, news.at))

    watch = Watch(folder, rows, warm, lambda: list(epochs), lambda: services[0].pids()[VICTIM])
    ended = threading.Event()
    enough = EngineStopped("enough has been seen")

    def look() -> None:
        watch.run(ended.is_set)
        services[0].abandon(enough)

    thread = threading.Thread(target=look, name="bench-watch")

    def meet(service: Service) -> None:
        services.append(service)
        thread.start()

    options = JobOptions(
        str(folder), "job.yaml", workers=WIDTH, interval=INTERVAL, recovery=scope, context=context, policy="aligned"
    )
    try:
        run_job(topology(name), str(folder / "store"), options, on_service=meet, on_news=news)
    except EngineStopped as error:
        if error is not enough:
            raise
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()
    if watch.kill is None:
        raise NotSteadyError(NOT_STEADY)
    return watch.figures()


def run_flink(
    name: str, rows: Input, folder: Path, *, jars: list[Path], classes: Path, heartbeat: str, warm: float
) -> Figures:
    """One run on a Flink of its own with one kill. heartbeat: seconds between two, or `default`."""
    (folder / "log").mkdir(parents=True)
    (folder / "in").symlink_to(rows.folder)
    checkpoints = folder / "checkpoints"
    begun: dict[str, float] = {}
    completed: dict[str, float] = {}

    def epochs() -> list[Epoch]:
        for path in checkpoints.glob("*/chk-*"):
            begun.setdefault(path.name, time.time())
            with contextlib.suppress(FileNotFoundError):  # it is open, or a newer one has taken its place
                completed.setdefault(path.name, (path / "_metadata").stat().st_mtime)
        return [Epoch(begun[name], at) for name, at in completed.items()]

    def victim() -> int:
        return next(line.pid for line in reversed(read_lines(folder)) if line.kind == "keyed" and line.task == VICTIM)

    options = {
        "execution.checkpointing.interval": f"{INTERVAL:g} s",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "execution.checkpointing.storage": "filesystem",
        "state.backend.type": "hashmap",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 s",
        **({} if heartbeat == "default" else {"heartbeat.interval": f"{heartbeat} s"}),
    }
    with FlinkCluster(jars, classes, folder / "cluster", workers=WIDTH + 1, options=options) as cluster:
        keys = ",".join(map(str, rows.keys))
        given = [f"{key}={value}" for key, value in options.items()]
        cluster.submit("LossJob", str(folder), name, str(rows.rate), str(rows.backlog), str(WIDTH), keys, *given)
        watch = Watch(folder, rows, warm, epochs, victim)
        watch.run()
        if watch.kill is None:
            raise NotSteadyError(NOT_STEADY)
        return watch.figures()


def flink_runs(root: Path, heartbeats: list[str], warm: float) -> list[tuple[str, Run]]:
    """What to run on Flink; nothing where there is none, which is told."""
    if not heartbeats:
        return []
    try:
        jars = flink_jars()
    except pytest.skip.Exception as skipped:
        print(f"no Flink: {skipped}")
        return []
    if shutil.which("javac") is None:
        print("no Flink: there is no Java compiler")
        return []
    classes = compiled(jars, root / "classes")
    return [
        (
            f"Flink {VERSION}, heartbeats {beat if beat == 'default' else f'{beat} s'}",
            partial(run_flink, jars=jars, classes=classes, heartbeat=beat, warm=warm),
        )
        for beat in heartbeats
    ]


def compiled(jars: list[Path], folder: Path) -> Path:
    """The classes of the Java job."""
    folder.mkdir()
    path = ":".join(map(str, jars))
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", folder, JAVA], check=True, timeout=300, capture_output=True)
    return folder


def text(values: list[float | None], unit: str = "") -> str:
    """Median of those that have come, with its interval of 95 % where there are enough, else least to most."""
    come = [value for value in values if value is not None]
    if not come:
        return f"- (0 of {len(values)} came)"
    middle = statistics.median(come)
    digits = 0 if middle >= 1000 else 2
    interval = median_interval(come)
    low, high = interval or (min(come), max(come))
    several = f" ({low:,.{digits}f} {'..' if interval else 'to'} {high:,.{digits}f})" if len(come) > 1 else ""
    missing = f", {len(come)} of {len(values)} came" if len(come) < len(values) else ""
    return f"{middle:,.{digits}f}{unit}{several}{missing}"


COLUMNS: dict[str, Callable[[Figures], float | None]] = {
    "rows/s before": lambda f: f.rate,
    "first new row of the lost range, s": lambda f: f.first_row,
    "from all sources, s": lambda f: f.all_sources,
    "as fresh as before, s": lambda f: f.as_fresh,
    "first complete epoch, s": lambda f: f.epoch,
    "others keep": lambda f: f.kept,
    "others on time": lambda f: f.on_time,
    "longest pause of the others, s": lambda f: f.pause,
    "rows read again": lambda f: f.read_again,
    "rows counted again": lambda f: f.keyed_again,
}


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def show(results: dict[tuple[str, str], dict[int, Figures]]) -> None:
    """A table in Markdown, and of each job the ratios of its first system to the others, by pairs of runs in turn."""
    print(f"| job | system | runs | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    for (job, system), runs in sorted(results.items()):
        cells = [text([column(run) for run in runs.values()]) for column in COLUMNS.values()]
        print(f"| {job} | {system} | {len(runs)} | {' | '.join(cells)} |")
    for job in sorted({job for job, _ in results}):
        first, *others = [system for name, system in results if name == job]
        for other in others:
            firsts, seconds = results[job, first], results[job, other]
            pairs = [(firsts[turn], seconds[turn]) for turn in firsts if turn in seconds]
            print(f"{job}: {first} to {other}, ratios of {len(pairs)} pairs")
            for name, column in COLUMNS.items():
                print(f"  {name}: {text([_ratio(column(one), column(two)) for one, two in pairs])}")
    print(f"wrong counts: {sum(run.wrong for runs in results.values() for run in runs.values())}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each scope")
    parser.add_argument("--scopes", default="local,set,full", help="what restarts")
    parser.add_argument("--flinks", type=int, default=1, help="runs of each Flink, one after each of the first pairs")
    parser.add_argument("--heartbeats", default="default,1", help="of Flink, seconds between two: a Flink for each")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=12_500, help="rows a second and source")
    parser.add_argument("--batch", type=int, default=500, help="rows of a file")
    parser.add_argument("--seconds", type=float, default=80.0, help="of input")
    parser.add_argument("--warm", type=float, default=8.0, help="seconds before the epoch that the kill follows")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which no other run is begun")
    parser.add_argument("--tries", type=int, default=3, help="of a run that does not keep the rate")
    parser.add_argument("--jobs", default=",".join(JOBS))
    arguments = parser.parse_args()
    assert arguments.warm > BEFORE
    ends = time.monotonic() + arguments.minutes * 60
    results: dict[tuple[str, str], dict[int, Figures]] = defaultdict(dict)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="abs-loss-") as folder, contextlib.ExitStack() as stack:
        root, jobs = Path(folder), arguments.jobs.split(",")
        inputs = {
            name: write_input(
                root / f"in-{name}", keys=arguments.keys, rate=arguments.rate, batch=arguments.batch,
                seconds=arguments.seconds, shuffled=name == "shuffled",
            )
            for name in jobs
        }  # fmt: skip
        ours: list[tuple[str, Run]] = []
        if arguments.pairs:
            context = start_context(f"local[{WIDTH}]")
            stack.callback(context.stop)
            ours = [
                (f"abs --recovery {scope}", partial(run_ours, context=context, scope=scope, warm=arguments.warm))
                for scope in map(Scope, arguments.scopes.split(","))
            ]
        flinks = flink_runs(root, [beat for beat in arguments.heartbeats.split(",") if beat], arguments.warm)
        rounds = [
            (turn, *run) for turn in range(max(arguments.pairs, arguments.flinks))
            for run in [*ours * (turn < arguments.pairs), *flinks * (turn < arguments.flinks)]
        ]  # fmt: skip
        for number, ((turn, system, run), name) in enumerate(itertools.product(rounds, jobs)):
            if time.monotonic() > ends:
                print(f"no time for {system}, {name}", file=sys.stderr)
                continue
            for _ in range(arguments.tries):
                place = Path(tempfile.mkdtemp(prefix=f"run-{number}-", dir=root))
                try:
                    result = run(name, inputs[name], place)
                except (EngineError, RuntimeError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"{name}, {system}: {error}", file=sys.stderr, flush=True)
                    if not isinstance(error, NotSteadyError):
                        break
                else:
                    results[name, system][turn] = result
                    print(f"{turn + 1}, {name}, {system}: {result}", file=sys.stderr, flush=True)
                    break
                finally:
                    shutil.rmtree(place, ignore_errors=True)
    print(f"{arguments.keys:,} keys, {WIDTH * arguments.rate:,} rows/s, {os.cpu_count()} cores; {failed} runs failed")
    show(results)
    return bool(failed or sum(run.wrong for runs in results.values() for run in runs.values()))


if __name__ == "__main__":
    sys.exit(main())
