"""What the commit of a Spark batch said, told from the logs of later batches and from the names of its state."""

from __future__ import annotations

import json
from typing import Any

from formats.errors import NoRecovery
from formats.spark import layout
from formats.spark.evidence.gathering import CheckpointEvidence
from formats.spark.logs.repartitions import repartitions


def can_be_told(evidence: CheckpointEvidence, batch: int) -> bool:
    """Whether `commit_of` has an answer."""
    try:
        commit_of(evidence, batch)
    except NoRecovery:
        return False
    return True


def commit_of(evidence: CheckpointEvidence, batch: int) -> bytes:
    """A commit for a batch that lost its own, and was done: a later one was begun, which Spark does only then.

    Its watermark is what the next batch began with; where that one's offsets are lost too, any later batch says it that
    began with the watermark of this one, since it never goes back. In checkpoint format 2 the unique ids of its state
    are in the lineage of later changelogs, or in the names of the only files of its version. NoRecovery.
    """
    at = next((one for one in evidence.history if one.batch == batch), None)
    after = next((one for one in evidence.history if one.batch > batch and one.offsets is not None), None)
    begun = at.offsets.watermark if at is not None and at.offsets is not None else None
    left = after.offsets.watermark if after is not None and after.offsets is not None else None
    if after is not None and after.batch in repartitions(evidence):
        # It begins with what this batch began with. Its commit is that of this batch.
        left = after.commit.watermark if after.commit is not None else None
    adjacent = after is not None and (evidence.sparse or after.batch == batch + 1)
    if left is None or not (adjacent or left == begun):
        message = f"commits/{batch} is lost, and no later batch says the watermark that it left"
        raise NoRecovery(message, path=layout.commits(batch))
    commit: dict[str, Any] = {"nextBatchWatermarkMs": left}
    version = 1
    if evidence.with_ids:
        version, commit["stateUniqueIds"] = 2, _ids(evidence, batch)
    if (sinks := _sinks(evidence, batch)) is not None:
        version, commit["sinkMetadataMap"] = 3, sinks
    return f"v{version}\n{json.dumps(commit, separators=(',', ':'), ensure_ascii=False)}".encode()


def _sinks(evidence: CheckpointEvidence, batch: int) -> dict[str, dict[str, Any]] | None:
    """The sinks that a query with names for them had when a batch ended: those of the commits around it, which have to
    agree; None of one without."""
    there = [(one.batch, one.commit.sinks) for one in evidence.history if one.commit is not None]
    earlier = next((sinks for number, sinks in reversed(there) if number < batch), None)
    later = next((sinks for number, sinks in there if number > batch), None)
    if earlier is not None and later is not None and earlier != later:
        message = f"commits/{batch} is lost, and the commits around it name other sinks than each other"
        raise NoRecovery(message, path=layout.commits(batch))
    return later if earlier is None else earlier


def _ids(evidence: CheckpointEvidence, batch: int) -> dict[str, list[list[str]]]:
    """By operator, partition and store the unique id of the state that a batch left."""
    at = next(one for one in evidence.history if one.batch == batch)
    ids: dict[str, list[list[str]]] = {}
    for task in sorted(evidence.tasks(at)):
        own = [part for part in evidence.partitions if part.id.task == task]
        of = [part.files.id_of(batch + 1) for part in own]
        if not of or None in of:
            message = f"commits/{batch} is lost, and with it the unique ids of its state"
            raise NoRecovery(f"{message}: nothing says that of partition {task.id}",
                             path=layout.commits(batch))  # fmt: skip
        ids.setdefault(str(task.operator), []).append([one for one in of if one is not None])
    return ids
