"""One attempt of a job, from the store's lock to its last manifest: `run_job` is what `run` and `restore` call."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from abscli.engine.attempt import Parent, Request, Start, begin, first_epoch, look, policy_of
from abscli.engine.channels.door import is_loopback
from abscli.engine.channels.messages import JobSpec, Patience
from abscli.engine.coordinator import Progress, Service
from abscli.engine.drivers.inline import InlineWorkers
from abscli.engine.errors import EngineStopped, Overtaken, ServerUnavailable, UsageError
from abscli.engine.functions import refuse_in_imports
from abscli.engine.generations.generation import publish
from abscli.engine.generations.rescaling import JobSinks
from abscli.engine.journal import Journal, records_read, skipped_by
from abscli.engine.losses.crew import Launcher
from abscli.engine.losses.decisions import Scope
from abscli.engine.runnable import check_runnable
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.sources.inputs import LaterInput, later_input
from abscli.engine.sources.kafka.topics import beginnings
from abscli.engine.stopping import Signals, signals_handled
from abscli.engine.telemetry.news import Begun, Changed, News
from abscli.engine.telemetry.tracing import TraceFile, check_trace
from abscli.engine.telemetry.wait_reports import WaitWatch
from abscli.engine.waits import StepTimer, Wait
from abscli.protocol.coordinator import Coordinator, Until
from abscli.protocol.policy import Policy
from abscli.protocol.trace import TracedCoordinator
from formats.errors import FormatError, StoreInUse
from formats.job.changes import NO_CHANGES, Changes
from formats.job.expand import task_ids
from formats.job.model import Kind, Topology
from formats.native import lock
from formats.native.facts import AttemptFacts
from formats.native.store import NativeStore
from formats.native.writer import check_store_of
from formats.redaction import refuse_credentials
from formats.storage import Storage, WritableStorage, absolute, deciding, open_writable
from formats.storage.credentials import hadoop_configuration, use_hadoop
from formats.view import Position, Repeat


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How to run.

    directory: of the job file.
    job_hint: the words of a command that runs the job, for hints.
    workers: at most so many, None for as many as there are slots; never more than have something to do.
    policy: None for that of the job's last attempt, `aligned` for a new job.
    interval: seconds from one epoch to the next; None for no periodic epochs.
    keep: complete epochs that stay in the store; None keeps all.
    from_epoch: to go on from (0: the start); None to require an empty store.
    take_ownership: also sinks that another store has written since.
    accept_missing: also where parts of the output are gone.
    plan: digest of the plan that a restore carries out.
    recovery: what restarts when a worker is lost.
    backup_buffer: bytes that each worker keeps of what it has sent, where a lost worker restarts alone; None: in
    proportion to memory.
    state_memory: bytes of keyed state that each worker has in memory, more is on its local disk; None: all of it.
    restarts: how often within ten epochs that may be; 0: the job ends with the first loss.
    worker_timeout: seconds without a heartbeat after which a worker is declared failed.
    context: a SparkContext to use.
    advertise: host under which workers reach the driver, and bind: the address on which it listens; None: as Spark
    finds them.
    insecure: nothing that goes between hosts is encrypted.
    changes: what the job file says of operators since the last run.
    trace: a file for all that the machines see and do, appended to.
    sinks_in: a folder that sinks write to, each in one of its own, in place of where the job file says.
    whole: every epoch has files of its own for all of the state, and refers to no older ones.
    pace: lines that each source task reads for an epoch, at most; None: as it comes.
    """

    directory: str
    job_hint: str
    engine: str = "spark"
    master: str = "local[*]"
    workers: int | None = None
    policy: str | None = None
    interval: float | None = 1.0
    epoch_timeout: float = 600.0
    max_concurrent: int = 1
    keep: int | None = 10
    from_epoch: int | None = None
    until: Until = "end"
    kind: str = "run"
    take_ownership: bool = False
    accept_missing: bool = False
    plan: str | None = None
    recovery: Scope = Scope.SUBGRAPH
    backup_buffer: int | None = None
    state_memory: int | None = None
    restarts: int = 3
    worker_timeout: float = 10.0
    context: Any = None
    advertise: str | None = None
    bind: str | None = None
    insecure: bool = False
    changes: Changes = NO_CHANGES
    trace: str | None = None
    sinks_in: str | None = None
    whole: bool = False
    pace: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended well.

    epoch: newest complete.
    parent: the epoch that it went on from.
    epochs: completed in this attempt.
    records: rows read.
    elapsed: seconds.
    finished: the job has nothing left to do.
    signal: that asked it to stop, or None.
    completed_at: Unix times of the manifests.
    policy: of its epochs.
    repeats: what the state of `parent` holds and came again, None if unknown.
    taken_over: by sink operator, the store that it was taken over from.
    skipped: by operator, records that it has left out in this attempt.
    """

    epoch: int
    parent: int
    epochs: int
    records: int
    elapsed: float
    finished: bool
    signal: int | None
    completed_at: tuple[float, ...]
    policy: str
    repeats: tuple[Repeat, ...] | None
    taken_over: dict[str, str]
    skipped: dict[str, int] = field(default_factory=dict)


def run_job(
    topology: Topology,
    store_path: str,
    options: JobOptions,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_service: Callable[[Service], None] = lambda service: None,
    verify: Callable[[], None] = lambda: None,
    on_news: Callable[[News], None] = lambda news: None,
) -> Outcome:
    """Run until the end, or until SIGTERM or SIGINT, which take a last epoch; a second one leaves at once.

    verify: called with the store's lock held, before anything is written. Raises UsageError, EngineStopped,
    JobFailed, and the errors of `formats` (StoreInUse, OtherJob, Damaged).
    """
    refuse_in_imports()
    check_runnable(topology)
    _check_recovery(options)
    _check_addresses(options)
    if options.context is not None:
        use_hadoop(dict(options.context.getConf().getAll()))
    storage = _storage(store_path)
    if options.trace is not None:
        check_trace(options.trace, storage.root)
    timer, tell = StepTimer(), _one_at_a_time(on_news)
    outputs = _outputs(topology, options, timer)
    outputs.check_apart(storage.root)
    watch = WaitWatch(timer, tell)
    with (
        signals_handled(tell, watch.current) as signals, lock.exclusive(storage, new=True), watch,
        contextlib.ExitStack() as stack,
    ):  # fmt: skip
        verify()
        request = _request(topology, options)
        # Until the attempt has begun, nobody but this thread writes to the store.
        looking = stack.enter_context(contextlib.ExitStack())
        looking.enter_context(deciding(storage, is_held=True))
        # What can be refused is refused before Spark is started, which takes seconds.
        parent = look(storage, request)
        later = _later_input(parent, topology, options)
        positions = _beginnings(parent, topology, options, timer)
        trace = stack.enter_context(contextlib.closing(TraceFile(options.trace))) if options.trace else None
        launcher = stack.enter_context(_launcher(options))
        if not options.insecure and (error := launcher.in_clear) is not None:
            raise error
        most = max(op.parallelism for op in topology.operators)  # one more would have no task
        asked = options.workers and min(options.workers, most)
        slots = launcher.slots(asked or 1, asked or most, signals.while_waiting)
        workers = asked or min(slots or 1, most)
        _check_slots(slots, workers)
        stack.enter_context(outputs.hold())
        start = begin(storage, request, outputs, workers)
        looking.close()
        for news in (*start.news, *later):
            tell(news)
        return _attempt(
            storage, topology, options, start, positions, outputs, launcher, workers, on_progress, tell, on_service,
            signals, trace, watch.note,
        )  # fmt: skip


def _later_input(parent: Parent, topology: Topology, options: JobOptions) -> tuple[LaterInput, ...]:
    """Input that the job will not read; JobFailed where what it had read has changed."""
    if options.until == "drained":  # sources read nothing
        return ()
    parts = parent.opening.parts if parent.opening else parent.parts
    return tuple(later_input(topology, parts, options.directory))


def _beginnings(
    parent: Parent, topology: Topology, options: JobOptions, timer: StepTimer
) -> dict[str, tuple[Position, ...]]:
    """Where sources begin that the parent has no positions of, of those that do not look for it themselves; JobFailed
    where those that it has lead nowhere any more."""
    if options.until == "drained":
        return {}
    parts = parent.opening.parts if parent.opening else parent.parts
    return beginnings(topology, parts, options.directory, timer)


def _one_at_a_time(on_news: Callable[[News], None]) -> Callable[[News], None]:
    """Let several threads call a function, one at a time; a signal handler may call it in the middle of a call."""
    lock = threading.RLock()

    def tell(news: News) -> None:
        with lock:
            on_news(news)

    return tell


class Rehearsal(NamedTuple):
    """What an attempt would be.

    new: whether the store would be made.
    parent: the epoch that it goes on from, 0 for the start.
    news: of what has changed since.
    """

    new: bool
    attempt: int
    parent: int
    policy: Policy
    news: tuple[Changed, ...]


def rehearse(topology: Topology, store_path: str, options: JobOptions) -> Rehearsal:
    """All that `run_job` checks of the job, the store and the sinks before it starts anything; nothing is changed.

    Raises what `run_job` would raise.
    """
    check_runnable(topology)
    _check_recovery(options)
    _check_addresses(options)
    storage = _storage(store_path)
    if options.trace is not None:
        check_trace(options.trace, storage.root)
    outputs = _outputs(topology, options)
    outputs.check_apart(storage.root)
    if lock.held(storage):
        raise StoreInUse("a running job uses this store", path=store_path, hint="wait for the job to end, or stop "
            "the job with SIGTERM")
    request = _request(topology, options)
    parent = look(storage, request)
    new = check_store_of(storage, topology.job)
    store = None if new else NativeStore(storage)
    sinks = outputs.examine(store, parent.epoch, parent.origins)
    _beginnings(parent, topology, options, StepTimer())
    attempts = store.attempts() if store else []
    number = max((attempt.attempt for attempt in attempts), default=0) + 1
    news = (
        *parent.news(first_epoch(store, attempts)), *sinks.stays_written(), *_later_input(parent, topology, options),
    )  # fmt: skip
    return Rehearsal(new, number, parent.epoch, policy_of(request, attempts), news)


def job_sinks(topology: Topology, store_path: str, options: JobOptions, timer: StepTimer | None = None) -> JobSinks:
    """Return the sinks to which a rescale delivers the pending rows of its epoch.

    topology: of the job file, with the parallelism of that epoch.
    timer: times what is done at their targets.
    """
    parent = look(_storage(store_path), _request(topology, options))
    return JobSinks(_outputs(topology, options, timer), parent.origins)


def _request(topology: Topology, options: JobOptions) -> Request:
    return Request(
        topology,
        os.path.abspath(options.directory),
        options.from_epoch,
        options.policy,
        options.kind,
        options.plan,
        options.job_hint,
        options.changes,
    )


def _storage(store_path: str) -> WritableStorage:
    if not store_path:
        raise UsageError("no store is given", hint="set --store to a directory or a bucket prefix")
    return open_writable(absolute(store_path))


def _outputs(topology: Topology, options: JobOptions, timer: StepTimer | None = None) -> Outputs:
    return Outputs(
        topology, options.directory, take_ownership=options.take_ownership, accept_missing=options.accept_missing,
        sinks_in=options.sinks_in, timer=timer,
    )  # fmt: skip


def _attempt(
    storage: Storage,
    topology: Topology,
    options: JobOptions,
    start: Start,
    positions: dict[str, tuple[Position, ...]],
    outputs: Outputs,
    launcher: Launcher,
    workers: int,
    on_progress: Callable[[Progress], None],
    on_news: Callable[[News], None],
    on_service: Callable[[Service], None],
    signals: Signals,
    trace: TraceFile | None,
    on_waits: Callable[[int, Iterable[Wait]], None],
) -> Outcome:
    started = time.monotonic()
    attempt = start.attempt
    journal = Journal(
        storage,
        topology,
        attempt,
        keep=options.keep,
        directory_hint=options.job_hint,
        reveal=outputs.publish,
        records_before=records_read(start.parts),
        skipped_before=skipped_by(start.parts),
    )
    if start.opening is not None:
        publish(journal, storage, attempt, start.opening)
    # A generation's first epoch, or the one that the attempt goes on from where tasks and channels are the same.
    base = journal.last_complete
    first_triggered = attempt.first_epoch + (start.opening is not None)
    finished = {part.task for part in start.parts if part.finished}
    tasks = task_ids(topology)
    kinds = {op.id: op.kind for op in topology.operators}
    if trace is not None:
        trace.begin(_head(topology, attempt, journal, base, begins=start.opening is not None))
    coordinator = (Coordinator if trace is None else partial(TracedCoordinator, tell=trace.tell))(
        tasks,
        [task for task in tasks if kinds[task.operator] is Kind.SOURCE],
        attempt=attempt.attempt,
        first_epoch=first_triggered,
        parent=base,
        max_concurrent=options.max_concurrent,
        until=options.until,
        ended=[task for task in tasks if task in finished],
    )
    service = Service(
        coordinator,
        journal,
        topology,
        policy=Policy(attempt.policy),
        workers=workers,
        host=launcher.host,
        bind=launcher.bind,
        secure=_is_secure(launcher, options),
        interval=options.interval,
        epoch_timeout=options.epoch_timeout,
        worker_timeout=options.worker_timeout,
        recovery=options.recovery,
        restarts=options.restarts,
        on_progress=on_progress,
        on_news=on_news,
        on_trace=trace.write if trace is not None else lambda lines: None,
        on_waits=on_waits,
    )
    spec = JobSpec(
        topology=topology,
        store=storage.root,
        directory=os.path.abspath(options.directory),
        root=os.path.abspath(options.directory),
        attempt=attempt.attempt,
        attempt_id=attempt.id,
        policy=attempt.policy,
        workers=workers,
        read_sources=options.until == "end",
        token=service.token,
        address=service.address,
        driver=socket.gethostname(),
        keys=service.keys,
        pulse=Patience.of(options.worker_timeout) if launcher.pulse else None,
        trace=trace is not None,
        hadoop=hadoop_configuration(os.environ),
        backup_buffer=_backup_buffer(options, workers) if options.recovery is Scope.LOCAL else None,
        state_memory=options.state_memory,
        sinks_in=options.sinks_in,
        whole=options.whole,
        pace=options.pace,
        begin=positions,
    )
    signals.attach(service)
    on_service(service)
    on_news(Begun(topology, Policy(attempt.policy)))
    launcher.prepare(spec)
    try:
        service.serve(launcher)
    except EngineStopped as error:
        if (cause := _cause(error, journal, outputs)) is not None:
            raise cause from error
        if isinstance(error, ServerUnavailable):
            error.hint = journal.hint(error.hint)
        raise
    outputs.note_published(journal.store, coordinator.last_complete)
    if isinstance(coordinator, TracedCoordinator):
        coordinator.leave()
    return Outcome(
        epoch=coordinator.last_complete,
        parent=attempt.parent,
        epochs=service.progress.epochs,
        records=service.progress.records,
        elapsed=time.monotonic() - started,
        finished=coordinator.idle,
        signal=signals.received[0] if signals.received else None,
        completed_at=tuple(journal.completed_at),
        policy=attempt.policy,
        repeats=start.repeats,
        taken_over=start.taken_over,
        skipped=dict(journal.skipped),
    )


def _head(topology: Topology, attempt: AttemptFacts, journal: Journal, parent: int, *, begins: bool) -> dict[str, Any]:
    """What a trace says of an attempt. begins: a generation begins with the epoch that its tasks start from."""
    return {
        "job": topology.job,
        "topology": msgspec.to_builtins(topology),
        "policy": str(attempt.policy),
        "attempt": attempt.attempt,
        "parent": parent,
        "logged": journal.store.manifest(parent).log_records if parent else 0,
        "new_generation": begins,
    }


def _check_addresses(options: JobOptions) -> None:
    """UsageError where there is nobody on another host; CredentialsRefused."""
    hosts = {"--master": options.master, "--advertise": options.advertise, "--bind": options.bind}
    for option, host in hosts.items():
        if host is not None:
            refuse_credentials(host, option)
    given: dict[str, object] = {"--advertise": options.advertise, "--bind": options.bind}
    if options.context is None:  # for a context of the caller, only its own configuration can say how it is protected
        given["--insecure"] = options.insecure or None
    for name, value in given.items():
        if value is not None and (options.engine == "inline" or re.match(r"local(\[|$)", options.master)):
            raise UsageError(f"{name} applies only if --master runs workers on other hosts")


def _cause(error: EngineStopped, journal: Journal, outputs: Outputs) -> EngineStopped | None:
    """Find out whether the store or a sink changed while the job ran: a worker then misses files as a consequence."""
    if isinstance(error, Overtaken) or error.exit_code != EngineStopped.exit_code:
        return None  # it says so itself, or a signal stopped it
    try:
        return journal.overtaken() or outputs.changed_meanwhile()
    except (FormatError, OSError):
        return None  # the store or the sink cannot be asked: the error stands as it is


def _is_secure(launcher: Launcher, options: JobOptions) -> bool:
    """Whether connections are encrypted: wherever they may leave this machine."""
    return not options.insecure and not (is_loopback(launcher.host) and is_loopback(launcher.bind))


def _check_recovery(options: JobOptions) -> None:
    """UsageError for what means nothing where no task takes its steps again."""
    if options.recovery is not Scope.LOCAL and options.backup_buffer is not None:
        raise UsageError("--backup-buffer requires --recovery local")


def _backup_buffer(options: JobOptions, workers: int) -> int:
    """Bytes for one worker: an eighth of the memory of this machine for all of them, where it is not said."""
    if options.backup_buffer is not None:
        return options.backup_buffer
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8 // workers


def _launcher(options: JobOptions) -> contextlib.AbstractContextManager[Launcher]:
    if options.engine == "inline":
        return InlineWorkers()
    from abscli.engine.drivers.spark import SparkWorkers

    return SparkWorkers(options.master, options.context, advertise=options.advertise, bind=options.bind)


def _check_slots(slots: int | None, workers: int) -> None:
    if slots is not None and workers > slots:
        raise UsageError(
            f"{workers} workers need {workers} slots, but the master has only {slots}",
            hint=f"use --workers {slots}, or a --master with more slots",
        )
