"""The demo's course: run to the end; run again and lose a worker to SIGKILL; look, plan, restore, resume; compare."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineStopped
from abscli.engine.job import JobOptions, run_job
from abscli.examples import inputs
from abscli.stores.native.plan import plan_recovery
from abscli.stores.native.restore import restore
from abscli.stores.native.text_inspect import store_text
from abscli.text.inspect_page import StorePage
from formats.job.model import Topology
from formats.native.sink import SinkFolder
from formats.native.store import NativeStore
from formats.storage import LocalStorage
from formats.view import Status

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


class Story(msgspec.Struct, frozen=True):
    """What happened to one job.

    back_edge_records: log records of the epoch that was restored.
    seconds_to_epoch: from the kill to the first new complete epoch.
    seconds_lost: work between the last complete epoch and the kill, done again.
    checks: by name.
    """

    job: str
    rows: int
    undisturbed_epochs: int
    undisturbed_seconds: float
    killed: Killed
    restored_epoch: int
    new_epoch: int
    back_edge_records: int
    source_records_again: int | None
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
    say(f"{name}: preparing its input from this Python's standard library")
    calm, rough = folder / "undisturbed", folder / "killed"
    topology = inputs.write_job(name, calm)
    inputs.write_job(name, rough)

    say(f"{name}: running to the end, undisturbed")
    undisturbed = run_job(topology, str(calm / "store"), _options(calm, name, context, interval), show)

    say(f"{name}: running again; a worker gets SIGKILL while an epoch is being taken")
    killed, when = _run_and_kill(topology, rough, _options(rough, name, context, interval), show)
    store = NativeStore(LocalStorage(rough / "store"))
    lost_since = store.manifest(killed.last_complete).completed

    say(f"{name}: the store as `abs inspect` shows it now:\n" + store_text(StorePage.of(store)).rstrip())
    say(f"{name}: epoch {killed.last_complete} is the newest whole one; planning and restoring")
    plan = plan_recovery(store)
    options = _options(rough, name, context, interval)
    restored = restore(plan, topology, dataclasses.replace(options, until="drained", keep=None), on_progress=show)

    say(f"{name}: epoch {restored.epoch} is whole; going on to the end")
    resumed = run_job(topology, str(rough / "store"), dataclasses.replace(options, from_epoch=restored.epoch), show)

    say(f"{name}: comparing")
    rows, checks = _compare(name, calm, rough)
    return Story(
        job=name,
        rows=rows,
        undisturbed_epochs=undisturbed.epochs,
        undisturbed_seconds=round(undisturbed.elapsed, 2),
        killed=killed,
        restored_epoch=restored.parent,
        new_epoch=restored.epoch,
        back_edge_records=restored.replayed,
        source_records_again=plan.body.cost.source_records,
        seconds_to_epoch=round(restored.first_complete - when, 2),
        seconds_lost=round(max(0.0, when - _unix(lost_since)), 2),
        resumed_epochs=resumed.epochs,
        checks={"undisturbed run finished": undisturbed.finished, "resumed run finished": resumed.finished, **checks},
    )


def _options(folder: Path, name: str, context: Any, interval: float) -> JobOptions:
    return JobOptions(str(folder), f"{name}.yaml", context=context, interval=interval, workers=2)


class _Killer:
    """Watches a job, and kills the Python process of its last worker once, in the middle of an epoch."""

    def __init__(self, show: Callable[[Progress], None], since: float) -> None:
        self._since = since
        self.killed: Killed | None = None
        self.when = 0.0
        self._complete = (0, 0.0)
        self._show = show
        self._service: Service | None = None

    def meet(self, service: Service) -> None:
        self._service = service

    def progress(self, progress: Progress) -> None:
        self._show(progress)
        if progress.epochs > self._complete[0]:
            self._complete = progress.epochs, time.time()
        well_into = progress.open_epochs and time.time() - self._complete[1] >= self._since
        if self.killed is None and self._service is not None and progress.epochs and well_into:
            worker, process = max(self._service.pids().items())
            self.when = time.time()
            os.kill(process, signal.SIGKILL)
            self.killed = Killed(worker, process, progress.epoch, None, None, None, progress.records)


def _run_and_kill(
    topology: Topology, folder: Path, options: JobOptions, show: Callable[[Progress], None]
) -> tuple[Killed, float]:
    """Run until an epoch is complete and another open, then SIGKILL the Python process of the last worker."""
    for since in SINCE_COMPLETE:
        killer = _Killer(show, since)
        try:
            run_job(topology, str(folder / "store"), options, killer.progress, killer.meet)
        except EngineStopped:
            if killer.killed is None:
                raise
            return _looked_at(killer.killed, folder), killer.when
        shutil.rmtree(folder / "store")
        shutil.rmtree(folder / "out")
        options = dataclasses.replace(options, interval=(options.interval or 1) / 4)
    raise EngineStopped("the job ended before a worker could be killed", hint="run the demo again")


def _looked_at(killed: Killed, folder: Path) -> Killed:
    """What the store says of the moment: the newest whole epoch, and the acks of the one that was being taken."""
    rows = NativeStore(LocalStorage(folder / "store")).epochs()
    last = max(row.epoch for row in rows if row.status is Status.COMPLETE)
    newest = rows[-1] if rows[-1].epoch > last else None
    return msgspec.structs.replace(
        killed,
        last_complete=last,
        open_epoch=newest.epoch if newest else None,
        acked=newest.acked if newest else None,
        expected=newest.expected if newest else None,
    )


def _compare(name: str, calm: Path, rough: Path) -> tuple[int, dict[str, bool]]:
    """Rows of the answer, and the comparisons: both runs with each other and with the answer computed here."""
    if name == "wordcount":
        truth = inputs.count_words(calm)
        one, one_grows = _last_counts(calm)
        other, other_grows = _last_counts(rough)
        return len(truth), {
            "both runs agree": one == other,
            "both agree with the count made without the engine": one == truth,
            "no visible count ever went down": one_grows and other_grows,
        }
    pairs = inputs.reach()
    first, second = ([(r["module"], r["reached"]) for r in _rows(folder)] for folder in (calm, rough))
    return len(pairs), {
        "both runs agree": set(first) == set(second),
        "both agree with the search made without the engine": set(first) == pairs,
        "every pair came out exactly once, also in the run that was killed": len(second) == len(pairs),
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
