"""How an attempt begins: what it goes on from, its record and its fence, and sinks that show just what leads there.

Everything that can be refused is refused in `look`, before the store or a sink is touched and before workers are
started; `begin` looks again, since `look` was a while ago, and then changes them.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import NamedTuple

from abscli.engine.errors import UsageError
from abscli.engine.io.outputs import Outputs
from abscli.planner.repeats import may_repeat
from abscli.protocol.policy import Policy
from formats.errors import Damaged, NotFound, OtherJob, StoreInUse
from formats.job.model import Topology
from formats.native import layout
from formats.native.counters import Channels, by_operator
from formats.native.facts import AttemptFacts, PartFacts, header, new_id
from formats.native.store import NativeStore
from formats.native.writer import bring_up, create, now, put_attempt, put_fence, put_topology
from formats.storage import LocalStorage
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
    """

    topology: Topology
    directory: str
    from_epoch: int | None
    policy: str | None
    kind: str
    plan: str | None = None
    job_hint: str = "JOB"


class Parent(NamedTuple):
    """The epoch that an attempt goes on from.

    repeats: what its state holds and will come again.
    """

    epoch: int
    parts: tuple[PartFacts, ...]
    repeats: tuple[Repeat, ...] | None


class Start(NamedTuple):
    """What an attempt is and goes on from.

    parts: of its parent.
    repeats: what these hold and will come again.
    taken_over: by sink operator, the store that it was taken over from.
    """

    attempt: AttemptFacts
    parts: tuple[PartFacts, ...]
    repeats: tuple[Repeat, ...] | None
    taken_over: dict[str, str]


def look(storage: LocalStorage, request: Request) -> Parent:
    """The epoch to go on from; nothing is changed.

    UsageError for a store that has epochs and a request that names none, NotFound, OtherJob, Damaged.
    """
    if storage.size(layout.STORE) is None:
        if request.from_epoch:
            raise NotFound(f"no epoch {request.from_epoch}: there is no store yet", path=storage.root)
        policy_of(request, [])
        return Parent(0, (), ())
    store = NativeStore(storage)
    epochs = store.epoch_numbers()
    if request.from_epoch is None and epochs:
        span = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs, {epochs[0]} to {epochs[-1]},"
        resume = f"`abs run {request.job_hint} --store {shlex.quote(storage.root)} --resume`"
        raise UsageError(
            f"{storage.root} has {span} already",
            hint=f"{resume} goes on from the newest, --from-epoch N from another; or give --store another directory",
        )
    policy_of(request, store.attempts())
    parent = request.from_epoch or 0
    if not parent:
        return Parent(0, (), ())
    if parent not in epochs:
        raise store.no_epoch(parent)
    if not store.has_manifest(parent):
        hint = f"`abs inspect {shlex.quote(storage.root)}` shows which are"
        raise NotFound(f"epoch {parent} is not complete", path=storage.root, hint=hint)
    parts = store.parts(parent)
    topology = store.topology(parent)
    check_same_graph(topology, request.topology, storage.root)
    counters = Channels(topology, by_operator(topology, parts))
    return Parent(parent, parts, may_repeat(store.manifest(parent).policy, counters))


def begin(storage: LocalStorage, request: Request, outputs: Outputs) -> Start:
    """Fence the attempts before it, record the attempt, and make the sinks show what leads to its parent.

    To be called with the store's lock held and the sinks held. Raises as `look`, and as `Outputs.examine`; StoreInUse
    if an older attempt turns out to be alive.
    """
    old_store = NativeStore(storage) if storage.size(layout.STORE) is not None else None
    # Read before all else: an attempt that lives on without its lock may write an outcome at any moment.
    undecided = old_store.undecided_from() if old_store is not None else 1
    parent = look(storage, request)
    sinks = outputs.examine(old_store, parent.epoch)
    create(storage, request.topology.job)
    store = NativeStore(storage)
    bring_up(storage, store.facts)
    attempts = store.attempts()
    # Where there was an attempt it may live on without its lock: the number below the first epoch is the fence.
    highest = store.highest_number()
    if highest - undecided > MAX_FENCES:
        raise Damaged(
            f"an attempt says that epochs up to {highest} were begun, and none from {undecided} on has an outcome",
            path=f"{storage.root}/{layout.ATTEMPTS}",
            hint=f"`abs validate {shlex.quote(storage.root)}` says which records are damaged",
        )
    attempt = AttemptFacts(
        attempt=max((a.attempt for a in attempts), default=0) + 1,
        kind=request.kind,
        generation=1,
        parent=parent.epoch,
        first_epoch=highest + 2 if attempts else highest + 1,
        policy=policy_of(request, attempts),
        topology_sha256=put_topology(storage, request.topology),
        directory=request.directory,
        started=now(),
        id=new_id(),
        plan=request.plan,
        **header(AttemptFacts),
    )
    try:
        # From the number that was undecided when the look began: an outcome written since shows an owner that lives.
        # It goes on with the numbers that this attempt would have had, so they must not be recorded as this one's.
        for number in range(undecided, attempt.first_epoch):
            put_fence(storage, number, attempt)
        put_attempt(storage, attempt)
    except FileExistsError as error:
        raise StoreInUse(
            f"another process is at work here: it has just written {error.filename or 'the next outcome'}",
            path=storage.root,
            hint="wait for it, or stop it; then run this again",
        ) from None
    outputs.take(sinks, NativeStore(storage), attempt)
    taken_over = {sink.operator: sink.taken_over for sink in sinks if sink.taken_over is not None}
    return Start(attempt, parent.parts, parent.repeats, taken_over)


def policy_of(request: Request, attempts: list[AttemptFacts]) -> Policy:
    """What was asked for; else the job goes on as it ran last."""
    name = request.policy or (attempts[-1].policy if attempts else Policy.ALIGNED)
    try:
        return Policy(name)
    except ValueError:
        raise UsageError(
            f"there is no policy {name!r}", hint=f"choose one with --policy: {', '.join(Policy)}"
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

    def refuse(difference: str) -> OtherJob:
        return OtherJob(difference, path=path, hint="run the job as it was, or start a new store")

    before, after = shape(old), shape(new)
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after or name not in before:
            raise refuse(f"{name} is {'new' if name in after else 'gone'} since the epoch was taken")
        for field, value in before[name].items():
            if after[name][field] != value:
                change = f"{field} was {value}, is {after[name][field]}"
                raise refuse(f"{name} has changed since the epoch was taken: {change}")
