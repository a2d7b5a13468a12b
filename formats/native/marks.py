"""What a sink's target has, as the store remembers it for one that does not, and which one it is:
`written/<operator>.json`, put after the rows."""

from __future__ import annotations

import msgspec

from formats.errors import NotFound
from formats.ids import EpochId
from formats.native import layout
from formats.native.facts import STAGED_VERSION, WrittenFacts, header, seal, unseal
from formats.native.names import check_facts
from formats.storage import Storage
from formats.timestamps import now


def written(storage: Storage, operator: str) -> EpochId | None:
    """The epoch that was written last, with the attempt that made it; Damaged where that cannot be read."""
    facts = _read(storage, operator)
    return EpochId(facts.attempt_id, facts.epoch) if facts is not None else None


def target_written(storage: Storage, operator: str) -> str | None:
    """Which one of its name the target was; None where the store does not know. Damaged."""
    facts = _read(storage, operator)
    return facts.target if facts is not None and facts.target is not msgspec.UNSET else None


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


def note_written(storage: Storage, operator: str, epoch: EpochId, target: str | None = None) -> None:
    """All that a manifest names of the sink, and all older ones of its line, is in the target. target: which one."""
    facts = WrittenFacts(
        operator=operator, epoch=epoch.number, attempt_id=epoch.attempt_id, written=now(),
        target=msgspec.UNSET if target is None else target,
        **header(WrittenFacts, STAGED_VERSION),
    )  # fmt: skip
    storage.put(layout.written(operator), seal(facts), replace=True)


def forget_written(storage: Storage, operator: str) -> None:
    """What the target has is left behind."""
    storage.delete(layout.written(operator))
