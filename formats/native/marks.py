"""What a sink's target has, as the store remembers it for one that does not, and which one it is:
`written/<operator>.json`, put after the rows."""

from __future__ import annotations

import msgspec

from formats.errors import NotFound
from formats.ids import EpochId
from formats.native import layout
from formats.native.facts import TargetFacts, WrittenFacts, header, seal, unseal
from formats.native.names import check_facts
from formats.storage import Storage
from formats.timestamps import now


def written(storage: Storage, operator: str) -> EpochId | None:
    """The epoch that was written last, with the attempt that made it; Damaged where that cannot be read."""
    facts = _read(storage, operator)
    return EpochId(facts.attempt_id, facts.epoch) if facts is not None else None


def target_written(storage: Storage, operator: str, title: str) -> str | None:
    """Which one of this name the target was; None where that is not known, or the sink wrote elsewhere. Damaged."""
    facts = _read(storage, operator)
    if facts is None or facts.target is msgspec.UNSET or facts.target.title != title:
        return None
    return facts.target.identity


def _read(storage: Storage, operator: str) -> WrittenFacts | None:
    path = layout.written(operator)
    try:
        data = storage.read(path)
    except NotFound:
        return None
    where = f"{storage.root}/{path}"
    facts = unseal(data, WrittenFacts, where)
    check_facts(facts, where)
    return facts


def note_written(
    storage: Storage, operator: str, epoch: EpochId, target: tuple[str, str] | None = None
) -> None:
    """All that a manifest names of the sink, and all older ones of its line, is in the target. target: its title, and
    which one of that name."""
    facts = WrittenFacts(
        operator=operator, epoch=epoch.number, attempt_id=epoch.attempt_id, written=now(),
        target=msgspec.UNSET if target is None else TargetFacts(*target),
        **header(WrittenFacts),
    )  # fmt: skip
    storage.put(layout.written(operator), seal(facts), replace=True)


def note_published(storage: Storage, operator: str, epoch: EpochId) -> None:
    """Note that the target of a sink has all rows that lead to an epoch; which target that is stays as it was noted."""
    facts = _read(storage, operator)
    target = None if facts is None or facts.target is msgspec.UNSET else (facts.target.title, facts.target.identity)
    if facts is None or (facts.epoch, facts.attempt_id) != (epoch.number, epoch.attempt_id):
        note_written(storage, operator, epoch, target)


def forget_written(storage: Storage, operator: str) -> None:
    """What the target has is left behind."""
    storage.delete(layout.written(operator))
