"""A job that is about to run: its topology file is looked at, and the epoch is found that it goes on from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from abscli.engine.coordinator import Progress, Service
from abscli.engine.generations.rescaling import Rescale, publish
from abscli.engine.generations.rescaling import check as check_logs
from abscli.engine.job import JobOptions, Outcome, Rehearsal, job_sinks
from abscli.engine.job import rehearse as rehearse_job
from abscli.engine.job import run_job as run_in_store
from abscli.engine.runnable import all_faults, check_runnable, graph_faults
from abscli.engine.telemetry.news import News, Rescaled
from abscli.engine.telemetry.wait_reports import WaitWatch
from abscli.engine.waits import StepTimer
from abscli.jobs.files import JobSource, read_job
from abscli.planner.rescale import Change, with_parallelism
from abscli.stores.native.plan import newest_whole, own_line
from abscli.stores.native.rescale import in_words, overridden, rescaled, rescaled_by
from abscli.stores.own import open_native
from abscli.stores.reasons import NoPlan
from abscli.stores.recovery import BadOption
from formats.errors import NotFound
from formats.job.model import Topology
from formats.native.layout import STORE
from formats.native.lock import held
from formats.native.store import NativeStore, is_native
from formats.storage import deciding, open_writable

NO_CHANGE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a job goes on from.

    epoch: the newest whole one; 0 for the start.
    remark: why it is the start, where that needs saying.
    warnings: why newer complete epochs are passed over.
    """

    epoch: int
    remark: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that can be run.

    store: the directory that the snapshots go to.
    resumed: where it goes on from, if that was to be found.
    rescale: operators that get another parallelism than they have in the epoch that it goes on from.
    """

    topology: Topology
    store: str
    options: JobOptions
    resumed: Resumed | None
    rescale: tuple[Change, ...] = ()

    def run(
        self,
        on_progress: Callable[[Progress], None],
        on_news: Callable[[News], None],
        on_service: Callable[[Service], None] = lambda service: None,
    ) -> Outcome:
        """See `abscli.engine.job.run_job`. A rescale is published first, once nothing is in the way of the run."""
        options = self.options
        if self.rescale and options.from_epoch:
            self.rehearse()
            storage = open_writable(self.store)
            graph = rescaled(NativeStore(storage).topology(options.from_epoch), self.rescale)
            order = Rescale(options.from_epoch, graph, os.path.abspath(options.directory))
            timer = StepTimer()
            with WaitWatch(timer, on_news):
                sinks = job_sinks(self._with_old_parallelism(), self.store, options, timer)
                epoch = publish(storage, order, sinks=sinks)
            on_news(Rescaled(epoch, options.from_epoch, in_words(self.rescale)))
            options = replace(options, from_epoch=epoch)
        return run_in_store(self.topology, self.store, options, on_progress, on_service, on_news=on_news)

    def _with_old_parallelism(self) -> Topology:
        heir = self.options.changes.heir
        return with_parallelism(self.topology, {heir(change.operator) or "": change.before for change in self.rescale})

    def rehearse(self) -> Rehearsal:
        """See `abscli.engine.job.rehearse`; NoRecovery for a log that a rescale cannot take over."""
        if not self.rescale:
            return rehearse_job(self.topology, self.store, self.options)
        check_runnable(self.topology)
        # What a run would be refused for besides: as if the epoch's tasks were as many as they are.
        rehearsal = rehearse_job(self._with_old_parallelism(), self.store, self.options)
        store = NativeStore(open_writable(self.store))
        check_logs(store, rehearsal.parent, rescaled(store.topology(rehearsal.parent), self.rescale))
        return rehearsal


def prepare_job(
    job: JobSource,
    store: str,
    options: JobOptions,
    *,
    resume: bool,
    dry_run: bool = False,
    parallelism: Mapping[str, int] = NO_CHANGE,
) -> PreparedJob:
    """A job from its file, once that holds; nothing is changed.

    resume: go on from the newest whole epoch, and start where there is none.
    dry_run: it will not be run, so functions and inputs are looked for here though a cluster may have others.
    parallelism: of operators, in place of the file's; an epoch that has another is rescaled.

    Raises BadOption, FormatError, and NoRecovery when there are complete epochs and none is whole.
    """
    if resume and options.from_epoch is not None:
        raise BadOption("--resume", "--resume and --from-epoch exclude each other")
    # Workers of a cluster may have what this machine lacks: there a run finds out by itself.
    here = dry_run or options.engine == "inline" or options.master.startswith("local")
    from_start = not resume and not options.from_epoch
    topology, changes = read_job(
        job,
        lambda graph: all_faults(graph, options.directory, from_start=from_start) if here else graph_faults(graph),
    )
    topology = overridden(topology, parallelism)
    resumed = resume_from(store, dry_run=dry_run) if resume else None
    if resumed is not None:
        options = replace(options, from_epoch=resumed.epoch)
    options = replace(options, changes=changes)
    rescale = _rescale(topology, store, options, parallelism)
    return PreparedJob(topology, store, options, resumed, rescale)


def _rescale(
    topology: Topology, store: str, options: JobOptions, parallelism: Mapping[str, int]
) -> tuple[Change, ...]:
    """What has to be rescaled of the epoch that a job goes on from."""
    storage, epoch = open_writable(store), options.from_epoch
    if not epoch or not parallelism or not is_native(storage):
        return ()
    opened = NativeStore(storage)
    if epoch not in opened.epoch_numbers():
        return ()  # which is said when the job begins
    old = opened.topology(epoch)
    changed = rescaled_by(old, topology, options.changes, parallelism)
    rescaled(old, changed)  # which the epoch's own graph may refuse
    return changed


def _nothing_in(store: str) -> str:
    """Say that there is no epoch to resume from, and name a store beside it whose name is nearly the same."""
    if "://" in store or os.path.lexists(store):
        return f"{store} has no complete epoch to resume from"
    beside = [found.parent.name for found in islice(Path(store).absolute().parent.glob(f"*/{STORE}"), 1_000)]
    near = get_close_matches(Path(store).name, beside, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no store {store}{meant}"


def resume_from(store: str, *, dry_run: bool = False) -> Resumed:
    """The newest whole epoch, every digest checked; NoRecovery when there are complete epochs and none is whole.

    dry_run: nothing is written, so an object store may answer with older lists.
    """
    storage = open_writable(store)
    with contextlib.ExitStack() as stack:
        try:
            opened = open_native(store, purpose="`abs run`")
            stack.enter_context(deciding(opened.storage, decides=not dry_run, is_held=True))
            latest = next((epoch for epoch in own_line(opened) if opened.has_manifest(epoch)), None)
        except NotFound:
            if is_native(storage):  # it has lost its own file: to start anew would write over what it holds
                raise
            latest = None
        if latest is None and held(storage):
            return Resumed(0)  # nothing starts: that it is in use is said when it is locked
        if latest is None:
            return Resumed(0, f"{_nothing_in(store)}: the job starts from the beginning")
        whole = newest_whole(opened)
    if isinstance(whole, NoPlan):
        raise whole.error()
    detail, skipped = whole
    epoch = detail.facts.epoch
    warnings = [f"epoch {number} cannot be used: it {reason}" for number, reason in skipped if number <= latest]
    if epoch != latest:
        warnings.append(f"resuming from epoch {epoch}")
    return Resumed(epoch, warnings=tuple(warnings))
