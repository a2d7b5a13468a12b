"""How an attempt begins: what it goes on from, its record and its fence, and sinks that show just what leads there.

Everything that can be refused is refused in `look`, before the store or a sink is touched and before workers are
started; `begin` looks again, since `look` was a while ago, and then changes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abscli.engine.errors import UsageError
from abscli.engine.generations.change import change_since, other_code
from abscli.engine.generations.code import modules_of
from abscli.engine.generations.generation import Opening, opening
from abscli.engine.sinks.outputs import Outputs
from abscli.engine.telemetry.news import Changed, NewGeneration, OtherCode, OtherTimes
from abscli.planner.repeats import may_repeat
from abscli.planner.retimed import Retimed, retimed
from abscli.planner.succession import Fate, Succession
from abscli.protocol.policy import Policy
from formats.errors import Damaged, NotFound, StoreInUse
from formats.job.changes import NO_CHANGES, Changes
from formats.job.model import Topology
from formats.native import layout
from formats.native.counters import Channels, by_operator
from formats.native.facts import (
    AttemptFacts,
    PartFacts,
    header,
    new_id,
)
from formats.native.store import NativeStore
from formats.native.writer import create, put_attempt, put_fence, put_topology
from formats.storage import Storage
from formats.timestamps import now
from formats.view import Repeat

MAX_FENCES = 10_000
"""Numbers without an outcome that an attempt fences one by one: there are as many as attempts died at once."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an attempt is asked to do.

    directory: of the job file, absolute.
    from_epoch: to go on from; None to require a store without epochs.
    policy: None to go on as the job ran last.
    kind: `run` or `restore`.
    plan: digest of the plan that a restore carries out.
    job_hint: the words of a command that runs the job, for hints.
    changes: what the job file says of operators since the last run.
    """

    topology: Topology
    directory: str
    from_epoch: int | None
    policy: str | None
    kind: str
    plan: str | None = None
    job_hint: str = "JOB"
    changes: Changes = NO_CHANGES


class Parent(NamedTuple):
    """The epoch that an attempt goes on from.

    repeats: what its state holds and will come again.
    generation: of the attempt.
    opening: what the generation begins with, where it is a new one.
    other_code: what the epoch was made by, where that is not the code that runs now.
    change: what becomes of its operators.
    retimed: what they do by other times.
    """

    epoch: int
    parts: tuple[PartFacts, ...]
    repeats: tuple[Repeat, ...] | None
    generation: int
    opening: Opening | None
    other_code: OtherCode | None = None
    change: Succession | None = None
    retimed: tuple[Retimed, ...] = ()

    def news(self, first_epoch: int) -> Iterator[Changed]:
        """What is to be said of it. first_epoch: of the attempt that goes on from it."""
        if self.other_code is not None:
            yield self.other_code
        if self.retimed:
            yield OtherTimes(self.epoch, self.retimed)
        if self.change is not None and self.opening is not None:
            gone = tuple(row.operator for row in self.change.operators if row.successor is None)
            added = tuple(row.operator for row in self.change.operators if row.outcome is Fate.ADDED)
            yield NewGeneration(self.generation, first_epoch, self.opening.moved, gone, added)

    @property
    def origins(self) -> Mapping[str, str] | None:
        """By the ids of operators, those that they had in the epoch; None where all are the same."""
        return self.opening.origins if self.opening else None


class Start(NamedTuple):
    """What an attempt is and goes on from.

    parts: that its tasks are restored from.
    repeats: what these hold and will come again.
    taken_over: by sink operator, the store that it was taken over from.
    opening: what its generation begins with, where it is a new one.
    news: of what has changed since.
    """

    attempt: AttemptFacts
    parts: tuple[PartFacts, ...]
    repeats: tuple[Repeat, ...] | None
    taken_over: dict[str, str]
    opening: Opening | None
    news: tuple[Changed, ...] = ()


FROM_START = Parent(0, (), (), 1, None)


def look(storage: Storage, request: Request) -> Parent:
    """The epoch to go on from; nothing is changed.

    UsageError for a store that has epochs and a request that names none, NotFound, OtherJob, NoRecovery, Damaged.
    """
    if storage.size(layout.STORE) is None:
        if request.from_epoch:
            raise NotFound(f"no epoch {request.from_epoch}: there is no store yet", path=storage.root)
        policy_of(request, [])
        return FROM_START
    store = NativeStore(storage)
    epochs = store.epoch_numbers()
    if request.from_epoch is None and epochs:
        span = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs, {epochs[0]} to {epochs[-1]},"
        resume = f"`abs run {request.job_hint} --store {shlex.quote(storage.root)} --resume`"
        raise UsageError(
            f"{storage.root} already contains {span}",
            hint=f"{resume} resumes from the newest epoch; use --from-epoch N for another epoch, or another "
            "--store",
        )
    policy_of(request, store.attempts())
    parent = request.from_epoch or 0
    if not parent:
        return FROM_START
    if parent not in epochs:
        raise store.no_epoch(parent)
    if not store.has_manifest(parent):
        hint = f"`abs inspect {shlex.quote(storage.root)}` shows which are"
        raise NotFound(f"epoch {parent} is not complete", path=storage.root, hint=hint)
    parts, manifest, topology = store.parts(parent), store.manifest(parent), store.topology(parent)
    change = change_since(store, parent, request.topology, request.changes)
    begins = opening(change, request.topology, parts, manifest.policy) if change.generation else None
    counters = Channels(topology, by_operator(topology, parts))
    repeats = may_repeat(manifest.policy, counters)
    generation = manifest.generation + (begins is not None)
    code = other_code(store, parent, request.topology, request.directory)
    times = tuple(retimed(topology, request.topology, change.heirs))
    return Parent(parent, parts, repeats, generation, begins, code, change, times)


def begin(storage: Storage, request: Request, outputs: Outputs, workers: int | None = None) -> Start:
    """Fence the attempts before it, record the attempt, and make the sinks show what leads to its parent.

    workers: how many it is to run on, None where no task will run. To be called with the store's lock held and the
    sinks held. Raises as `look`, and as `Outputs.examine`; StoreInUse
    if an older attempt turns out to be alive.
    """
    old_store = NativeStore(storage) if storage.size(layout.STORE) is not None else None
    # Read before all else: an attempt that lives on without its lock may write an outcome at any moment.
    undecided = old_store.undecided_from() if old_store is not None else 1
    parent = look(storage, request)
    sinks = outputs.examine(old_store, parent.epoch, parent.origins)
    create(storage, request.topology.job)
    store = NativeStore(storage)
    attempts = store.attempts()
    attempt = AttemptFacts(
        attempt=max((a.attempt for a in attempts), default=0) + 1,
        kind=request.kind,
        generation=parent.generation,
        parent=parent.epoch,
        first_epoch=first_epoch(store, attempts),
        policy=policy_of(request, attempts),
        topology_sha256=put_topology(storage, request.topology),
        directory=request.directory,
        started=now(),
        id=new_id(),
        plan=request.plan,
        code=modules_of(request.topology, request.directory),
        repairs=None,
        workers=workers,
        **header(AttemptFacts),
    )
    record(storage, attempt, undecided)
    outputs.take(sinks, NativeStore(storage), attempt)
    taken_over = {sink.operator: sink.taken_over for sink in sinks.files if sink.taken_over is not None}
    parts = parent.opening.parts if parent.opening else parent.parts
    news = (*parent.news(attempt.first_epoch), *sinks.stays_written())
    return Start(attempt, parts, parent.repeats, taken_over, parent.opening, news)


def record(storage: Storage, attempt: AttemptFacts, undecided: int) -> None:
    """Fence the numbers from `undecided` up to the attempt's own, and record it; StoreInUse if an older attempt turns
    out to be alive, Damaged where there would be too many fences."""
    highest = NativeStore(storage).highest_number()
    if highest - undecided > MAX_FENCES:
        raise Damaged(
            f"according to an attempt epochs up to {highest} have started, but none from {undecided} on has an outcome",
            path=f"{storage.root}/{layout.ATTEMPTS}",
            hint=f"`abs validate {shlex.quote(storage.root)}` lists the damaged records",
        )
    try:
        # From the number that was undecided when the look began: an outcome written since shows an owner that lives.
        # It goes on with the numbers that this attempt would have had, so they must not be recorded as this one's.
        for number in range(undecided, attempt.first_epoch):
            put_fence(storage, number, attempt)
        put_attempt(storage, attempt)
    except FileExistsError as error:
        raise StoreInUse(
            f"another process is writing to this store: it has just written {error.filename or 'the next outcome'}",
            path=storage.root,
            hint="wait for the other process, or stop it; then run the same command again",
        ) from None


def first_epoch(store: NativeStore | None, attempts: Sequence[AttemptFacts]) -> int:
    """The lowest epoch number of the attempt that comes after these."""
    highest = store.highest_number() if store is not None else 0
    # Where there was an attempt it may live on without its lock: the number below the first epoch is the fence.
    return highest + 2 if attempts else highest + 1


def policy_of(request: Request, attempts: list[AttemptFacts]) -> Policy:
    """What was asked for; else the job goes on as it ran last."""
    name = request.policy or (attempts[-1].policy if attempts else Policy.ALIGNED)
    try:
        return Policy(name)
    except ValueError:
        raise UsageError(
            f"unknown policy {name!r}", hint=f"choose one with --policy: {', '.join(Policy)}"
        ) from None
