"""One attempt of a job, from the store's lock to its last manifest: `run_job` is what `run` and `restore` call."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from abscli.engine.errors import EngineError, EngineStopped, UsageError
from abscli.engine.inline import InlineWorkers
from abscli.engine.journal import Journal
from abscli.engine.service import Progress, Service
from abscli.engine.sinks import check_sinks, claim, refuse_strangers, settle
from abscli.engine.wire import JobSpec
from abscli.planner.lineage import Life, spans
from abscli.planner.repeats import may_repeat
from abscli.protocol.coordinator import Coordinator, Until
from abscli.protocol.policy import Policy
from formats.errors import NotFound, OtherJob
from formats.native import layout, lock
from formats.native.channels import Channels, by_operator
from formats.native.facts import AttemptFacts, PartFacts, digest, header
from formats.native.reader import NativeStore
from formats.native.writer import create, now, put_attempt, put_topology
from formats.storage import LocalStorage
from formats.topology import Kind, Topology, task_name
from formats.view import Repeat

RUNNABLE = frozenset({Kind.SOURCE, Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.REDUCE, Kind.DISTINCT, Kind.UNION,
                      Kind.SINK})  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How to run. directory: of the job file; from_epoch: None to require an empty store, otherwise the epoch to go
    on from (0: the start); policy None: that of the job's last attempt, `aligned` for a new job; interval None: no
    periodic epochs; context: a SparkContext to use."""

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
    context: Any = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended well. epoch: newest complete; epochs: completed in this attempt; records: rows read;
    finished: the job has nothing left to do; signal: that asked it to stop, or None; elapsed: seconds;
    completed_at: Unix times of the manifests; policy: of its epochs; repeats: what the state of `parent` holds and
    came again, None if unknown."""

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


def check_runnable(topology: Topology) -> None:
    """UsageError for operators that cannot be run, and marks that the engine does not keep."""
    for op in topology.operators:
        if op.kind not in RUNNABLE:
            raise UsageError(f"operator {op.id} is {op.kind}: it can be inspected and planned for, not run")
    for edge in topology.edges:
        if edge.replayable:
            raise UsageError(
                f"edge {edge.source}->{edge.target} is marked replayable, and the engine keeps no such log",
                hint="remove the mark to run the job",
            )
    check_sinks(topology)


def run_job(
    topology: Topology,
    store_path: str,
    options: JobOptions,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_service: Callable[[Service], None] = lambda service: None,
    verify: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run until the end, or until SIGTERM or SIGINT, which take a last epoch; a second one leaves at once.

    verify: called with the store's lock held, before anything is written. Raises UsageError, EngineStopped,
    JobFailed, and the errors of `formats` (StoreInUse, OtherJob, Damaged).
    """
    check_runnable(topology)
    store_path = store_path.removeprefix("file://")
    if "://" in store_path or not store_path:
        raise UsageError(
            f"cannot write to {store_path!r}: stores behind a URI are read-only", hint="give --store a local directory"
        )
    Path(store_path).mkdir(parents=True, exist_ok=True)
    storage = LocalStorage(os.path.abspath(store_path))
    with _signals() as signals, lock.exclusive(storage):
        verify()
        if storage.size(layout.STORE) is None:
            refuse_strangers(topology, options.directory)
        create(storage, topology.job)
        start = _begin(storage, topology, options)
        return _attempt(storage, topology, options, start, on_progress, on_service, signals)


class _Start(NamedTuple):
    """What an attempt is and goes on from. parts: of its parent; repeats: what these hold and will come again."""

    attempt: AttemptFacts
    parts: tuple[PartFacts, ...]
    repeats: tuple[Repeat, ...] | None


def _begin(storage: LocalStorage, topology: Topology, options: JobOptions) -> _Start:
    """Fix what this attempt is and starts from, and make sinks show just that."""
    store = NativeStore(storage)
    epochs = store.epoch_numbers()
    attempts = store.attempts()
    if options.from_epoch is None and epochs:
        raise UsageError(
            f"{storage.root} has epochs already, {epochs[0]} to {epochs[-1]}",
            hint="go on with --resume or --from-epoch N, or give --store another directory",
        )
    parent = options.from_epoch or 0
    policy = _policy(options, attempts)
    parts: tuple[PartFacts, ...] = ()
    repeats: tuple[Repeat, ...] | None = ()
    if parent:
        if parent not in epochs:
            raise store.no_epoch(parent)
        if not store.has_manifest(parent):
            raise NotFound(f"epoch {parent} is not complete", path=storage.root, hint="`abs inspect` shows which are")
        parts = store.parts(parent)
        before = store.topology(parent)
        check_same_graph(before, topology, storage.root)
        counters = Channels(before, by_operator(before, parts))
        repeats = may_repeat(store.manifest(parent).policy, counters)
    attempt = AttemptFacts(
        attempt=max((a.attempt for a in attempts), default=0) + 1,
        kind=options.kind,
        generation=1,
        parent=parent,
        first_epoch=store.highest_number() + 1,
        policy=policy,
        topology_sha256=put_topology(storage, topology),
        directory=os.path.abspath(options.directory),
        started=now(),
        **header(AttemptFacts),
    )
    claim(topology, options.directory, digest(storage.read(layout.STORE)), take_over=options.kind == "restore")
    put_attempt(storage, attempt)
    settle(topology, options.directory, spans([Life(a.first_epoch, a.parent) for a in attempts], parent), parts)
    return _Start(attempt, parts, repeats)


def _policy(options: JobOptions, attempts: list[AttemptFacts]) -> Policy:
    """What was asked for; else the job goes on as it ran last."""
    said = options.policy or (attempts[-1].policy if attempts else Policy.ALIGNED)
    try:
        return Policy(said)
    except ValueError:
        raise UsageError(
            f"there is no policy {said!r}", hint=f"choose one with --policy: {', '.join(Policy)}"
        ) from None


def check_same_graph(old: Topology, new: Topology, path: str) -> None:
    """OtherJob if the state of `old` has no owner in `new`: order and connectors may differ, the graph may not."""

    def shape(topology: Topology) -> dict[str, dict[str, object]]:
        operators: dict[str, dict[str, object]] = {
            f"operator {op.id}": {
                "kind": op.kind,
                "parallelism": op.parallelism,
                "max_parallelism": op.max_parallelism,
                "key": op.key,
                "outputs": tuple(f"{a.name}: {a.function}({a.column})" for a in op.aggregates),
            }
            for op in topology.operators
        }
        edges: dict[str, dict[str, object]] = {
            f"edge {e.source}->{e.target}": {"partition": e.partition, "key": e.key} for e in topology.edges
        }
        return {**operators, **edges}

    def refuse(what: str) -> OtherJob:
        return OtherJob(what, path=path, hint="run the job as it was, or start a new store")

    before, after = shape(old), shape(new)
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after or name not in before:
            raise refuse(f"{name} is {'new' if name in after else 'gone'} since the epoch was taken")
        for field, value in before[name].items():
            if after[name][field] != value:
                change = f"{field} was {value}, is {after[name][field]}"
                raise refuse(f"{name} has changed since the epoch was taken: {change}")


def _attempt(
    storage: LocalStorage,
    topology: Topology,
    options: JobOptions,
    start: _Start,
    on_progress: Callable[[Progress], None],
    on_service: Callable[[Service], None],
    signals: _Signals,
) -> Outcome:
    started = time.monotonic()
    attempt = start.attempt
    journal = Journal(storage, topology, attempt, keep=options.keep, directory_hint=options.job_hint)
    finished_sources = {p.task for p in start.parts if p.finished}
    names = [task_name(op.id, i) for op in topology.operators for i in range(op.parallelism)]
    kinds = {op.id: op.kind for op in topology.operators}
    sources = [name for name in names if kinds[name.rpartition("/")[0]] is Kind.SOURCE]
    coordinator = Coordinator(
        names,
        sources,
        attempt=attempt.attempt,
        first_epoch=attempt.first_epoch,
        parent=attempt.parent,
        max_concurrent=options.max_concurrent,
        until=options.until,
        ended=finished_sources,
    )
    widest = max(op.parallelism for op in topology.operators)
    with contextlib.ExitStack() as stack:
        launcher = stack.enter_context(_launcher(options))
        slots = launcher.slots()
        workers = options.workers or min(slots or 1, widest)
        _check_slots(slots, workers)
        service = Service(
            coordinator,
            journal,
            workers=workers,
            host=launcher.host,
            interval=options.interval,
            epoch_timeout=options.epoch_timeout,
            on_progress=on_progress,
        )
        spec = JobSpec(
            topology=topology,
            store=storage.root,
            directory=os.path.abspath(options.directory),
            root=os.path.abspath(options.directory),
            attempt=attempt.attempt,
            first_epoch=attempt.first_epoch,
            parent=attempt.parent,
            policy=attempt.policy,
            workers=workers,
            read_sources=options.until == "end",
            token=service.token,
            address=service.address,
        )
        signals.attach(service)
        on_service(service)
        launcher.launch(spec, service.abandon)
        service.serve()
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
    )


class Launcher(Protocol):
    """What starts workers, and waits for them when it is left."""

    @property
    def host(self) -> str:
        """Where the coordinator listens: as workers reach it."""

    def slots(self) -> int | None:
        """Workers that can run at once; None: any number."""

    def launch(self, spec: JobSpec, abandon: Callable[[EngineError], None]) -> None:
        """Start all workers; they find the coordinator by themselves. abandon: called from another thread when one
        fails before it could say why."""


def _launcher(options: JobOptions) -> contextlib.AbstractContextManager[Launcher]:
    if options.engine == "inline":
        return InlineWorkers()
    from abscli.engine.spark import SparkWorkers

    return SparkWorkers(options.master, options.context)


def _check_slots(slots: int | None, workers: int) -> None:
    if slots is not None and workers > slots:
        raise UsageError(
            f"{workers} workers need {workers} slots, the master has {slots}",
            hint=f"give --workers {slots} or a larger --master: they would wait for each other for ever",
        )


class _Signals:
    """SIGTERM and SIGINT ask for a last epoch, also before there is anything to ask; a second one leaves at once."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._service: Service | None = None

    def attach(self, service: Service) -> None:
        """From now on there is somebody to ask."""
        self._service = service
        if self.received:
            service.request_stop()

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if len(self.received) > 1:
            error = EngineStopped("stopped by a second signal, without a last epoch")
            error.exit_code = 128 + self.received[0]
            if self._service is None:
                raise error
            self._service.abandon(error)
        elif self._service is not None:
            self._service.request_stop()


@contextlib.contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    previous = {}
    with contextlib.suppress(ValueError):  # not in the main thread: the caller handles signals
        previous = {number: signal.signal(number, signals.handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
