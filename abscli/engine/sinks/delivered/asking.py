"""Collect the facts about a target that `abscli.planner.target.compare` needs, for a resumed job and for validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from abscli.engine.sinks.delivered.targets import title_of
from abscli.engine.sinks.gaps import records_of
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.promises import Promises
from abscli.engine.sinks.staged.contract import Delivery, StagedPart, Target
from abscli.planner.lineage import is_on, stretches
from abscli.planner.target import HistoryFacts, TargetFacts
from formats.ids import EpochId
from formats.job.model import Operator
from formats.native.facts import CommittedFacts, SinkFile
from formats.native.marks import target_written, written
from formats.native.sink import PartId, epoch_of_part, task_of_part
from formats.native.transactions import Transaction
from formats.storage import Storage


@dataclass(frozen=True, slots=True)
class AskedTarget:
    """A sink's target, and the epoch to compare it with.

    storage: the store; None if it does not exist yet.
    ids: of the sink, as of `ids_of`.
    id: of the sink in that epoch.
    directory: of the job file.
    """

    sink: Operator
    target: Target
    storage: Storage | None
    ids: Sequence[str]
    id: str
    directory: str
    epoch: int


def how_undone(asked: AskedTarget) -> str | None:
    """Return how the target lost commits since the sink wrote there last; None if it did not, or that is not known."""
    target, storage = asked.target, asked.storage
    if storage is None:
        return target.undone(None)
    known = (target_written(storage, id, target.title) for id in asked.ids)
    return target.undone(next((identity for identity in known if identity is not None), None))


def ask_target(asked: AskedTarget, undone: str | None) -> TargetFacts:
    """Ask the target what it has. undone: see `how_undone`."""
    target = asked.target
    shown = markers_of(target, asked.storage, asked.ids)
    return TargetFacts(shown, target.unfinished(), target.has, undone, target.remembers)


def ask_store(
    asked: AskedTarget, promises: Promises, facts: TargetFacts
) -> tuple[HistoryFacts[Delivery], list[Delivery]]:
    """Return what the store says of the target, and what the history names for other targets of the sink."""
    line = tuple(stretches(promises.lives, asked.epoch)) if asked.epoch else ()
    has_shown = facts.remembers and any(is_on(line, epoch) for epoch in facts.markers)
    committed = promises.committed.get(asked.epoch, ())
    is_own = matches_target(asked.sink, asked.directory, committed, asked.id, has_shown)
    every = deliveries_of(asked.storage, promises, asked.epoch, asked.id) if asked.storage is not None else []
    named = [one for one in every if is_own(one.directory)]
    records = records_of(promises, asked.epoch, asked.id, is_own)
    return HistoryFacts(asked.epoch, line, named, records), [one for one in every if one not in named]


def matches_target(
    op: Operator, directory: str, committed: Sequence[CommittedFacts], id: str, has_shown: bool
) -> Callable[[str], bool]:
    """Return a predicate: whether a target's name in a manifest is a name of the sink's current target.

    If the target has rows of the history and no record has its name, it is the sink's previous target, which was moved
    or is spelled differently. All names match then.

    directory: of the job file.
    committed: the records of the epoch from which the job resumes.
    id: the sink's id in that epoch.
    has_shown: whether the target has rows of the history.
    """
    title, has_path = title_of(op), "path" in (op.connector or {})

    def is_for(made_for: str) -> bool:
        return made_for == title or (has_path and place_of(directory, made_for) == place_of(directory, title))

    is_known = any(one.operator == id and is_for(one.target) for one in committed)
    return (lambda made_for: True) if has_shown and not is_known else is_for


def markers_of(target: Target, storage: Storage | None, ids: Sequence[str]) -> list[EpochId]:
    """Return the epochs that a target has, from its markers or, if it has none, from the store.

    storage: the store; None if it does not exist yet. ids: of the sink.
    """
    if target.remembers or storage is None:
        return target.markers()
    return [epoch for id in ids if (epoch := written(storage, id)) is not None]


def deliveries_of(storage: Storage, promises: Promises, parent: int, operator: str) -> list[Delivery]:
    """Return what the manifests of a history name of a sink, oldest first.

    parent: the newest epoch of the history. operator: the sink's id in that epoch.
    """
    named: list[Delivery] = []
    epoch = parent
    while epoch in promises.parts:
        delivery = delivery_of(storage, epoch, operator, promises.parts[epoch].get(operator, {}))
        named += [delivery] if delivery is not None else []
        operator = promises.origins.get(epoch, {}).get(operator, operator)
        epoch = promises.parents[epoch]
    return named[::-1]


def delivery_of(
    storage: Storage, epoch: int, operator: str, files: Mapping[PartId, SinkFile]
) -> Delivery | None:
    """Return what one manifest names of a sink; None if that is nothing."""
    parts = sorted(
        StagedPart(Transaction(id.attempt_id, epoch_of_part(id.name), task_of_part(id.name), operator), file)
        for id, file in files.items()
        if file.staged is not None or file.prepared is not None
    )
    return Delivery(EpochId(parts[0].id.attempt_id, epoch), tuple(parts), storage) if parts else None
