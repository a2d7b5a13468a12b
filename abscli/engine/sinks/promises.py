"""What the attempts and complete epochs of a store say that its sinks show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from abscli.planner.lineage import Life, by_number, lives_of, maker, stretches
from abscli.planner.settlement import Wanted
from formats.native.facts import AttemptFacts, CommittedFacts, SinkFile
from formats.native.sink import PartId
from formats.native.store import NativeStore


@dataclass(frozen=True, slots=True)
class Promises:
    """What the attempts and complete epochs of a store say of the output of all its sinks; read once for an attempt.

    attempts: ascending.
    lives: those that have epochs of their own.
    highest: the highest epoch number ever seen.
    parents: by epoch.
    origins: by epoch, of operators that have another id from there on, the one in its parent.
    parts: by epoch and operator, of the epochs that can be read.
    committed: by epoch, what targets must have.
    named: all parts. Those of several sinks may have one id: attempt, task and epoch are the same.
    unread: epochs of which it is not known what they name.
    """

    attempts: Sequence[AttemptFacts]
    lives: Sequence[Life]
    highest: int
    parents: Mapping[int, int]
    origins: Mapping[int, Mapping[str, str]]
    parts: Mapping[int, Mapping[str, Mapping[PartId, SinkFile]]]
    committed: Mapping[int, Sequence[CommittedFacts]]
    named: Mapping[PartId, Sequence[SinkFile]]
    unread: Sequence[int]


NO_PROMISES = Promises((), (), 0, {}, {}, {}, {}, {}, ())


def read_promises(store: NativeStore) -> Promises:
    attempts = store.attempts()
    parents: dict[int, int] = {}
    origins: dict[int, dict[str, str]] = {}
    by_epoch: dict[int, dict[str, dict[PartId, SinkFile]]] = {}
    committed: dict[int, Sequence[CommittedFacts]] = {}
    named: dict[PartId, list[SinkFile]] = {}
    unread: list[int] = []
    complete = [epoch for epoch in store.epoch_numbers() if store.has_manifest(epoch)]
    for epoch, read in store.read_epochs(complete):
        if read is None:
            unread.append(epoch)
            continue
        parents[epoch] = read.manifest.parent
        origins[epoch] = {after: before for before, after in read.manifest.moved.items()}
        committed[epoch] = read.manifest.committed
        if read.parts is None:
            unread.append(epoch)
            continue
        by_operator = by_epoch[epoch] = {}
        for part in read.parts:
            for file in part.sink:
                id = PartId(part.attempt_id, file.name)
                by_operator.setdefault(part.operator, {})[id] = file
                named.setdefault(id, []).append(file)
    lives = lives_of(attempts, store.is_fenced)
    return Promises(attempts, lives, store.highest_number(), parents, origins, by_epoch, committed, named, unread)


def wanted_of(
    promises: Promises,
    operator: str,
    lies_in: Callable[[PartId, SinkFile], bool],
    parent: int,
) -> Wanted:
    """What the store says that a sink should show, and all that it has ever asked of it. operator: the sink's id in the
    epoch `parent`; lies_in: whether a part is one for its folder."""
    parts_due: dict[PartId, SinkFile] = {}
    # Up the line, to the first epoch whose manifest is gone: above it, what no manifest names belongs to nobody.
    epoch = parent
    while epoch in promises.parts:
        parts = promises.parts[epoch].get(operator, {})
        parts_due.update({id: file for id, file in parts.items() if lies_in(id, file)})
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    # Which parts an epoch names that cannot be read is not known: none of the attempt that made it may be set aside.
    makers = by_number(promises.lives)
    attempts = {attempt.id for attempt in promises.attempts}
    attempts -= {maker(makers, unread) or "" for unread in promises.unread}
    named = {id: file for id, files in promises.named.items() for file in files if lies_in(id, file)}
    return Wanted(stretches(promises.lives, parent), parts_due, epoch, named, frozenset(attempts))
