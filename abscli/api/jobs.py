"""A job, run with snapshots, or tried on given rows."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, Protocol

from abscli.api.shared import Unwatched, unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from abscli.engine.coordinator import Progress as JobProgress
    from abscli.engine.job import Outcome
    from abscli.engine.telemetry.news import News
    from abscli.jobs.files import JobSource
    from formats.durations import Duration


class RunningJob(Protocol):
    """A job that runs; what it can be asked from another thread."""

    def request_stop(self) -> None:
        """Take one more epoch and stop, as after SIGTERM."""

    def pids(self) -> dict[int, int]:
        """The process of each worker that has come, by its number."""


def run_job(
    job: JobSource,
    store: str | os.PathLike[str],
    *,
    engine: str = "spark",
    master: str = "local[*]",
    context: Any = None,
    workers: int | None = None,
    policy: str | None = None,
    interval: Duration | None = 1.0,
    epoch_timeout: Duration = 600.0,
    max_concurrent: int = 1,
    keep: int | None = 10,
    recovery: str = "subgraph",
    state_memory: int | None = None,
    restarts: int = 3,
    worker_timeout: Duration = 10.0,
    advertise: str | None = None,
    bind: str | None = None,
    insecure: bool = False,
    resume: bool = False,
    from_epoch: int | None = None,
    parallelism: Mapping[str, int] | None = None,
    take_ownership: bool = False,
    accept_missing: bool = False,
    on_progress: Callable[[JobProgress], None] | None = None,
    on_news: Callable[[News], None] | None = None,
    on_start: Callable[[RunningJob], None] | None = None,
) -> Outcome:
    """Runs a job to its end, or until SIGTERM or SIGINT, and takes snapshots of it.

    job: its file, or one that is built in Python. A file of Python is imported.
    store: the directory that the snapshots go to.
    engine: `spark`, or `inline` for this process alone.
    master: of Spark.
    context: a SparkContext that runs already, and goes on, in place of one at `master`. One in local mode needs
        `spark.authenticate`, unless `insecure` is set.
    workers: processes, at most; None for as many as there are slots. Never more than have something to do.
    policy: `aligned`, `unaligned` or `at-least-once`; None for that of the last run.
    interval: from one epoch to the next, seconds, "500ms" or a timedelta; None for no periodic ones.
    epoch_timeout: likewise, after which an epoch that cannot complete is given up.
    max_concurrent: epochs in flight at once.
    keep: complete epochs that stay; None keeps all.
    recovery: what restarts when a worker is lost: `subgraph`, the smallest subgraph that must restart, or `full`, every
        task.
    state_memory: bytes of keyed state that each worker has in memory, more is on its local disk; None: all of it.
    restarts: how often within ten epochs that may be; 0: the job stops with EngineStopped when a worker is lost.
    worker_timeout: likewise, without a heartbeat after which a worker is declared failed.
    advertise: host under which workers on other hosts reach this one, and bind: the address on which it listens; None:
        as Spark finds them.
    insecure: what goes between hosts is not encrypted, and who takes part in the job does not have to prove it.
    resume: go on from the newest whole epoch, or start where there is none; why newer ones are passed over goes to the
        log of `abscli`.
    from_epoch: to go on from; None, without `resume`, for an empty store.
    parallelism: numbers of tasks by operator, in place of the file's; an epoch that has others is rescaled.
    take_ownership: also sinks that another store has written since.
    accept_missing: also where parts of the output are gone.
    on_progress, on_news: told how it goes on.
    on_start: gets the job that runs, when its workers are about to be started.

    Raises BadOption, NoRecovery, UsageError, EngineStopped, JobFailed, StoreInUse, OtherJob, Damaged, FormatError for a
    bad topology file.

    >>> outcome = run_job("job.yaml", "made", engine="inline", interval=None)
    >>> outcome.finished, outcome.records
    (True, 3)
    >>> open_store("made").state("seen").num_rows
    2
    """
    from abscli.engine.errors import UsageError
    from abscli.engine.functions import refuse_in_imports
    from abscli.engine.job import JobOptions
    from abscli.engine.losses.decisions import Scope
    from abscli.jobs.durations import positive_seconds
    from abscli.jobs.files import job_directory
    from abscli.jobs.job import Job
    from abscli.stores.native.run import prepare_job

    refuse_in_imports()
    try:
        scope = Scope(recovery)
    except ValueError:
        raise UsageError(f"unknown recovery mode {recovery!r}", hint=f"choose one of {', '.join(Scope)}") from None
    file = "JOB" if isinstance(job, Job) else shlex.quote(os.fspath(job))
    options = JobOptions(
        directory=job_directory(job), job_hint=file + " --engine inline" * (engine == "inline"),
        engine=engine, master=master, context=context, workers=workers, policy=policy,
        interval=None if interval is None else positive_seconds("interval", interval),
        epoch_timeout=positive_seconds("epoch_timeout", epoch_timeout), max_concurrent=max_concurrent, keep=keep,
        from_epoch=from_epoch, take_ownership=take_ownership, accept_missing=accept_missing, recovery=scope,
        restarts=restarts, state_memory=state_memory, worker_timeout=positive_seconds("worker_timeout", worker_timeout),
        advertise=advertise, bind=bind, insecure=insecure,
    )  # fmt: skip
    prepared = prepare_job(job, os.fspath(store), options, resume=resume, parallelism=parallelism or {})
    if prepared.resumed is not None:
        for warning in prepared.resumed.warnings:
            Unwatched().note(warning)
    return prepared.run(on_progress or unshown, on_news or unshown, on_start or unshown)


def try_job(
    job: JobSource,
    rows: Mapping[str, Iterable[str | Mapping[str, Any]]],
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
    kills: int = 5,
    timeout: Duration = "1m",
) -> dict[str, list[dict[str, Any]]]:
    """Runs a job on these rows, in place of what its sources read, and kills it: what its sinks show, by their ids.

    job: its file, or one that is built in Python, whose `test` this is. A file of Python is imported.

    The rest is as of `Job.test`. Nothing is left behind.

    >>> shown = try_job("job.yaml", {"lines": ["a", "b", "a"]}, kills=1)
    >>> sorted(row["line"] for row in shown["out"])
    ['a', 'b']
    """
    from functools import partial

    from abscli.jobs.files import job_directory, read_job
    from abscli.jobs.trial import try_source

    __tracebackhide__ = True
    return try_source(partial(read_job, job), job_directory(job), rows, keys or {}, kills, timeout)
