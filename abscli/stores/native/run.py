"""A job that is about to run: its topology file is looked at, and the epoch is found that it goes on from."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from abscli.engine.coordinator import Progress
from abscli.engine.job import JobOptions, Outcome, Rehearsal
from abscli.engine.job import rehearse as rehearse_job
from abscli.engine.job import run_job as run_in_store
from abscli.engine.news import News
from abscli.engine.runnable import all_faults, graph_faults
from abscli.stores.native.plan import newest_whole, own_line
from abscli.stores.own import open_native
from abscli.stores.recovery import BadOption
from formats.errors import NotFound
from formats.job.file import parse_topology
from formats.job.model import Topology
from formats.native.lock import held
from formats.native.store import is_native
from formats.storage import LocalStorage, local_name


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
    """

    topology: Topology
    store: str
    options: JobOptions
    resumed: Resumed | None

    def run(self, on_progress: Callable[[Progress], None], on_news: Callable[[News], None]) -> Outcome:
        """See `abscli.engine.job.run_job`."""
        return run_in_store(self.topology, self.store, self.options, on_progress, on_news=on_news)

    def rehearse(self) -> Rehearsal:
        """See `abscli.engine.job.rehearse`."""
        return rehearse_job(self.topology, self.store, self.options)


def job_directory(job: str) -> str:
    """Where the functions and the inputs of a topology file are looked for."""
    return os.path.dirname(os.path.abspath(job))


def prepare_job(job: str, store: str, options: JobOptions, *, resume: bool, dry_run: bool = False) -> PreparedJob:
    """A job from its topology file, once that holds; nothing is changed.

    resume: go on from the newest whole epoch, and start where there is none.
    dry_run: it will not be run, so functions and inputs are looked for here though a cluster may have others.

    Raises BadOption, FormatError, and NoRecovery when there are complete epochs and none is whole.
    """
    if resume and options.from_epoch is not None:
        raise BadOption("--resume", "--resume and --from-epoch exclude each other")
    # Workers of a cluster may have what this machine lacks: there a run finds out by itself.
    here = dry_run or options.engine == "inline" or options.master.startswith("local")
    from_start = not resume and not options.from_epoch
    topology = parse_topology(
        job,
        lambda graph: all_faults(graph, options.directory, from_start=from_start) if here else graph_faults(graph),
    )
    resumed = resume_from(store) if resume else None
    if resumed is not None:
        options = replace(options, from_epoch=resumed.epoch)
    return PreparedJob(topology, store, options, resumed)


def resume_from(store: str) -> Resumed:
    """The newest whole epoch, every digest checked; NoRecovery when there are complete epochs and none is whole."""
    storage = LocalStorage(local_name(store))
    try:
        opened = open_native(store, purpose="`abs run`")
        latest = next((epoch for epoch in own_line(opened) if opened.has_manifest(epoch)), None)
    except NotFound:
        if is_native(storage):  # it has lost its own file: to start anew would write over what it holds
            raise
        latest = None
    if latest is None and held(storage):
        return Resumed(0)  # nothing starts: that it is in use is said when it is locked
    if latest is None:
        return Resumed(0, f"{store} has no complete epoch to go on from: the job starts from the beginning")
    detail, skipped = newest_whole(opened)
    epoch = detail.facts.epoch
    warnings = [f"epoch {number} cannot be used: it {reason}" for number, reason in skipped if number <= latest]
    if epoch != latest:
        warnings.append(f"going on from epoch {epoch}")
    return Resumed(epoch, warnings=tuple(warnings))
