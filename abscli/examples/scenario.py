"""The demo's course: run to the end; lose a worker to SIGKILL, and go on; lose one with no restarts: look, plan,
restore, resume; compare."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from abscli.api import open_store, run_job
from abscli.api.jobs import RunningJob
from abscli.engine.coordinator import Progress
from abscli.engine.losses.decisions import Recovery
from abscli.engine.telemetry.news import Begun, News, Recovered
from abscli.errors import EngineStopped
from abscli.examples import inputs
from abscli.graph.job_graph import JobGraph
from abscli.planner.guarantee import guarantee_of
from abscli.text.guarantee import guarantee_line
from abscli.text.recoveries import recovered
from formats.native.sink import SinkFolder

WORKERS = 2
SINCE_COMPLETE = (0.1, 0.05, 0.0, 0.0)
"""Seconds of work since the last complete epoch that the kill shall cost, in a first and further tries: the jobs take
a few seconds, and on a fast machine one may end before it can be killed in the middle."""

Report = Callable[[str], None]


class Killed(msgspec.Struct, frozen=True):
    """The second run's end.

    last_complete: newest whole epoch.
    open_epoch: the one that was being taken, if any.
    records: rows read by then.
    """

    worker: int
    process: int
    last_complete: int
    open_epoch: int | None
    acked: int | None
    expected: int | None
    records: int


class Survived(msgspec.Struct, frozen=True):
    """What a run that lost a worker did about it while it ran.

    restarted: tasks that went back.
    untouched: tasks that went on.
    epoch: to which they went back.
    records: rows read again.
    seconds: from the loss until all had caught up.
    """

    worker: int
    process: int
    epoch: int
    restarted: int
    untouched: int
    records: int
    seconds: float


class Story(msgspec.Struct, frozen=True):
    """What happened to one job.

    survived: of the run that went on by itself.
    killed: of the run that was not allowed to.

    back_edge_records: log records of the epoch that was restored.
    seconds_to_epoch: from the kill to the first new complete epoch.
    seconds_lost: work between the last complete epoch and the kill, done again.
    checks: by name.
    """

    job: str
    rows: int
    baseline_epochs: int
    baseline_seconds: float
    survived: Survived
    killed: Killed
    restored_epoch: int
    new_epoch: int
    back_edge_records: int
    source_records_replayed: int | None
    seconds_to_epoch: float
    seconds_lost: float
    resumed_epochs: int
    checks: dict[str, bool]

    @property
    def holds(self) -> bool:
        """Whether every comparison holds."""
        return all(self.checks.values())


def tell(
    name: str, folder: Path, context: Any, interval: float, say: Report, show: Callable[[Progress], None]
) -> Story:
    """Take the example job `name` through its course below `folder`, on a SparkContext. say: a line a step."""
    say(f"{name}: generating its input from the source files of Python's standard library")
    calm, live, rough = folder / "undisturbed", folder / "survived", folder / "killed"
    calm_job, live_job, job = (inputs.write_job(name, place) for place in (calm, live, rough))

    say(f"{name}: running to the end, without failures")
    undisturbed = run_job(
        calm_job, calm / "store", context=context, workers=WORKERS, interval=interval, on_progress=show,
        on_news=partial(_say_guarantee, name, say),
    )  # fmt: skip

    say(f"{name}: running again; a worker is killed with SIGKILL while an epoch is in progress, and the job recovers")
    survived = _run_and_survive(live_job, context, interval, show, say)

    say(f"{name}: running again with --restarts 0; a worker is killed with SIGKILL, and the job stops")
    killed, when = _run_and_kill(job, context, interval, show)
    store = open_store(rough / "store")
    facts = store.epoch(killed.last_complete).facts
    lost_since = _unix(facts.triggered or "") + (facts.duration or 0)

    say(f"{name}: the store as `abs inspect` shows it now:\n{store}")
    say(f"{name}: epoch {killed.last_complete} is the newest intact epoch; planning and restoring")
    plan = store.plan()
    restored = store.restore(plan, job=job, context=context).result

    say(f"{name}: epoch {restored.epoch} is complete; continuing to the end of the input")
    resumed = run_job(
        job, rough / "store", context=context, workers=WORKERS, interval=interval, from_epoch=restored.epoch,
        on_progress=show,
    )  # fmt: skip

    say(f"{name}: comparing")
    rows, checks = _compare(name, calm, live, rough)
    return Story(
        job=name,
        rows=rows,
        baseline_epochs=undisturbed.epochs,
        baseline_seconds=round(undisturbed.elapsed, 2),
        survived=survived,
        killed=killed,
        restored_epoch=restored.parent,
        new_epoch=restored.epoch,
        back_edge_records=restored.replayed,
        source_records_replayed=plan.plan.body.cost.source_records,
        seconds_to_epoch=round(restored.first_complete - when, 2),
        seconds_lost=round(max(0.0, when - lost_since), 2),
        resumed_epochs=resumed.epochs,
        checks={"undisturbed run finished": undisturbed.finished, "resumed run finished": resumed.finished, **checks},
    )


def _say_guarantee(name: str, say: Report, news: News) -> None:
    if isinstance(news, Begun):
        say(f"{name}: {guarantee_line(guarantee_of(JobGraph.of(news.topology), news.policy))}")


class _Killer:
    """Watches a job, and kills the Python process of its last worker once, in the middle of an epoch."""

    def __init__(self, show: Callable[[Progress], None], since: float) -> None:
        self._since = since
        self.killed: Killed | None = None
        self.when = 0.0
        self._complete = (0, 0.0)
        self._show = show
        self._job: RunningJob | None = None

    def meet(self, job: RunningJob) -> None:
        self._job = job

    def progress(self, progress: Progress) -> None:
        self._show(progress)
        if progress.epochs > self._complete[0]:
            self._complete = progress.epochs, time.time()
        well_into = progress.open_epochs and time.time() - self._complete[1] >= self._since
        if self.killed is None and self._job is not None and progress.epochs and well_into:
            worker, process = max(self._job.pids().items())
            self.when = time.time()
            os.kill(process, signal.SIGKILL)
            self.killed = Killed(worker, process, progress.epoch, None, None, None, progress.records)


def _run_and_survive(
    job: Path, context: Any, interval: float, show: Callable[[Progress], None], say: Report
) -> Survived:
    """Run to the end, with a SIGKILL on the way; EngineStopped if no run can be hit in its middle."""
    store = job.parent / "store"
    for since in SINCE_COMPLETE:
        killer = _Killer(show, since)
        recoveries: list[Recovery] = []

        def news(event: News, recoveries: list[Recovery] = recoveries) -> None:
            if isinstance(event, Recovered):
                recoveries.append(event.recovery)
                say(f"{job.stem}: {recovered(event.recovery)}")

        run_job(
            job, store, context=context, workers=WORKERS, interval=interval, on_progress=killer.progress,
            on_start=killer.meet, on_news=news,
        )  # fmt: skip
        if killer.killed is not None and recoveries:
            done = recoveries[0]
            restarted = sum(subtasks.count for subtasks in done.subtasks.values())
            return Survived(
                worker=killer.killed.worker,
                process=killer.killed.process,
                epoch=done.epoch,
                restarted=restarted,
                untouched=done.untouched,
                records=done.replayed,
                seconds=round(done.seconds, 2),
            )
        shutil.rmtree(store)
        shutil.rmtree(job.parent / "out")
        interval /= 4
    raise EngineStopped("the job ended before a worker could be killed", hint="run the demo again")


def _run_and_kill(
    job: Path, context: Any, interval: float, show: Callable[[Progress], None]
) -> tuple[Killed, float]:
    """Run until an epoch is complete and another open, then SIGKILL the Python process of the last worker."""
    store = job.parent / "store"
    for since in SINCE_COMPLETE:
        killer = _Killer(show, since)
        try:
            run_job(
                job, store, context=context, workers=WORKERS, interval=interval, restarts=0,
                on_progress=killer.progress, on_start=killer.meet,
            )  # fmt: skip
        except EngineStopped:
            if killer.killed is None:
                raise
            return _looked_at(killer.killed, store), killer.when
        shutil.rmtree(store)
        shutil.rmtree(job.parent / "out")
        interval /= 4
    raise EngineStopped("the job ended before a worker could be killed", hint="run the demo again")


def _looked_at(killed: Killed, path: Path) -> Killed:
    """What the store says of the moment: the newest whole epoch, and the acks of the one that was being taken."""
    store = open_store(path)
    last = store.resolve("latest")
    newest = store.epochs()[-1].facts
    being_taken = newest if newest.epoch > last else None
    return msgspec.structs.replace(
        killed,
        last_complete=last,
        open_epoch=being_taken.epoch if being_taken else None,
        acked=being_taken.acked if being_taken else None,
        expected=being_taken.expected if being_taken else None,
    )


def _compare(name: str, *runs: Path) -> tuple[int, dict[str, bool]]:
    """Rows of the answer, and the comparisons: the runs with each other and with the answer computed here."""
    if name == "wordcount":
        truth = inputs.count_words(runs[0])
        counts, grows = zip(*(_last_counts(run) for run in runs), strict=True)
        return len(truth), {
            "all runs agree": all(count == counts[0] for count in counts),
            "they agree with the count made without the engine": counts[0] == truth,
            "no visible count ever went down": all(grows),
        }
    pairs = inputs.reach()
    rows = [[(r["module"], r["reached"]) for r in _rows(run)] for run in runs]
    return len(pairs), {
        "all runs agree": all(set(run) == set(rows[0]) for run in rows),
        "they agree with the search made without the engine": set(rows[0]) == pairs,
        "every pair came out exactly once, also in the runs with a kill": all(len(run) == len(pairs) for run in rows),
    }


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The sink's visible rows, by epoch, then task."""
    out = folder / "out"
    for part in sorted(SinkFolder(str(out)).visible(), key=lambda name: name.split("-")[::-1]):
        with (out / part).open("rb") as file:
            for line in file:
                yield json.loads(line)


def _last_counts(folder: Path) -> tuple[dict[str, int], bool]:
    """The last row a word, and whether counts only grew."""
    last: dict[str, int] = {}
    grew = True
    for row in _rows(folder):
        grew &= row["n"] > last.get(row["word"], 0)
        last[row["word"]] = row["n"]
    return last, grew


def _unix(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()
