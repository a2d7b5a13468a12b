"""A rescale: an attempt that publishes one epoch and ends.

In that epoch the tasks of a new generation refer to what those of the old one had: facts and routed logs are written,
and no record of state moves. The job goes on from it as from any other; after a crash at any moment the store has the
old epoch, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain

from abscli.engine.attempt import first_epoch, record
from abscli.engine.sinks.outputs import NO_SINKS, Outputs
from abscli.engine.state.rerouting import Log, Rerouting
from abscli.graph.backedges import back_edges
from abscli.planner.repeats import may_repeat
from abscli.planner.rescale import Identity, Pair, lifted
from formats.ids import ChannelId, TaskId
from formats.job.expand import neighbours
from formats.job.model import Edge, Topology
from formats.native import layout, lock
from formats.native.counters import Channels, by_operator
from formats.native.facts import AttemptFacts, LogFacts, TriggerFacts, header, new_id
from formats.native.state.tables import encode_log
from formats.native.store import NativeStore
from formats.native.writer import complete, put_file, put_topology, put_trigger
from formats.storage import Storage
from formats.timestamps import now

KIND = "rescale"
"""Of the attempt."""


@dataclass(frozen=True, slots=True)
class JobSinks:
    """The sinks of the job file. A rescale delivers all pending rows to them before it publishes its epoch.

    Only the epoch from which a job resumes may have pending rows.

    origins: new id of an operator to its id in that epoch; None if no operator was renamed.
    """

    outputs: Outputs
    origins: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Rescale:
    """What is to be done.

    epoch: that is lifted.
    topology: its job graph, but for the parallelism of operators.
    directory: of the job file, absolute.
    plan: digest of the plan that a restore carries out.
    """

    epoch: int
    topology: Topology
    directory: str
    plan: str | None = None


def check(store: NativeStore, epoch: int, topology: Topology) -> None:
    """NoRecovery if a log of the epoch cannot be taken over, with the reason; nothing is changed."""
    Rerouting(store.storage, store.topology(epoch), topology, store.parts(epoch)).check()


def publish(
    storage: Storage,
    rescale: Rescale,
    verify: Callable[[], None] = lambda: None,
    sinks: JobSinks | None = None,
) -> int:
    """Return the number of the new epoch.

    verify: called with the store's lock held, before anything is written.
    sinks: None for a job without pending rows.

    Raises NoRecovery if a log cannot be taken over, StoreInUse, Damaged, and what sinks raise.
    """
    with lock.exclusive(storage), sinks.outputs.hold() if sinks else nullcontext():
        store = NativeStore(storage)
        # Read before all else: an attempt that lives on without its lock may write an outcome at any moment.
        undecided = store.undecided_from()
        verify()
        check(store, rescale.epoch, rescale.topology)
        examined = sinks.outputs.examine(store, rescale.epoch, sinks.origins) if sinks else NO_SINKS
        attempt = _attempt(storage, store, rescale)
        record(storage, attempt, undecided)
        if sinks:
            sinks.outputs.take(examined, store, attempt)
        return _publish(storage, store, rescale, attempt)


def _attempt(storage: Storage, store: NativeStore, rescale: Rescale) -> AttemptFacts:
    """Return the attempt that publishes the epoch. It runs no code, so it has the code version of the old epoch's
    attempt."""
    manifest, attempts = store.manifest(rescale.epoch), store.attempts()
    maker = next((life for life in attempts if life.attempt == manifest.attempt), None)
    head = header(AttemptFacts)
    return AttemptFacts(
        schema=head["schema"],
        version=head["version"],
        attempt=max((life.attempt for life in attempts), default=0) + 1,
        kind=KIND,
        generation=manifest.generation + 1,
        parent=rescale.epoch,
        first_epoch=first_epoch(store, attempts),
        policy=attempts[-1].policy if attempts else manifest.policy,
        topology_sha256=put_topology(storage, rescale.topology),
        directory=rescale.directory,
        started=now(),
        id=new_id(),
        plan=rescale.plan,
        code=maker.code if maker else None,
    )


def _publish(storage: Storage, store: NativeStore, rescale: Rescale, attempt: AttemptFacts) -> int:
    old, parts, manifest = store.topology(rescale.epoch), store.parts(rescale.epoch), store.manifest(rescale.epoch)
    epoch = attempt.first_epoch
    # The policy is that of the cut, whatever the job runs under from here on.
    trigger = TriggerFacts.of(attempt, epoch, rescale.epoch, triggered=now(), policy=manifest.policy)
    put_trigger(storage, trigger)
    rerouting = Rerouting(storage, old, rescale.topology, parts)
    back = back_edges(rescale.topology)
    logs = {}
    for edge in rescale.topology.edges:
        ends = edge.source, edge.target
        logs[ends] = {
            pair: _log(storage, edge, pair, pieces, epoch, attempt.id)
            for pair, pieces in rerouting.routed(edge).items()
        }
        if ends in back:
            logs[ends] = {**_empty(edge, rescale.topology), **logs[ends]}
    identity = Identity(epoch, attempt.attempt, attempt.id)
    by_id = {id: [part for part in mine if part] for id, mine in by_operator(old, parts).items()}
    repeats = may_repeat(manifest.policy, Channels(old, by_operator(old, parts))) or ()
    made = lifted(old, rescale.topology, by_id, logs, identity, repeats)
    complete(
        storage, trigger, rescale.topology.job, made,
        idle=manifest.idle, committed=manifest.committed, state_rows=manifest.state_rows,
    )  # fmt: skip
    return epoch


def _log(storage: Storage, edge: Edge, pair: Pair, pieces: list[Log], epoch: int, attempt: str) -> LogFacts:
    """The log of one new channel: the file of an old one where it is nothing else, else a file of its own."""
    channel = _channel(edge, pair)
    whole = pieces[0].facts if len(pieces) == 1 else None
    if whole is not None:
        return LogFacts(str(channel), whole.records, whole.file)
    batches = list(chain.from_iterable(piece.batches for piece in pieces))
    rows = sum(batch.num_rows for batch in batches)
    path = layout.log(epoch, str(channel.receiver), str(channel.sender), attempt)
    return LogFacts(str(channel), rows, put_file(storage, path, encode_log(batches), rows))


def _channel(edge: Edge, pair: Pair) -> ChannelId:
    return ChannelId(TaskId(edge.source, pair[0]), TaskId(edge.target, pair[1]))


def _empty(edge: Edge, topology: Topology) -> Mapping[Pair, LogFacts]:
    """A log without records for every channel of a back edge: that it is empty is part of the cut."""
    width = {op.id: op.parallelism for op in topology.operators}
    return {
        (i, j): LogFacts(str(_channel(edge, (i, j))), 0, None)
        for i in range(width[edge.source])
        for j in neighbours(edge, i, width[edge.target])
    }
