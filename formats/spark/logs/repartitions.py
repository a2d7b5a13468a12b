"""Batches that only repartition state (Spark 4.2 on): which they are, of which batch, and what they have passed over.

Such a batch reads nothing. Its offsets are those of the last batch that was committed, with its time and the watermark
that one began with, and another number of partitions; its commit is that one's, too; its state is whole snapshots.
Where it was allowed to (`enforce_exactly_once_sink` false), it passes over batches that were in flight: these get a
commit that says nothing, and their input comes again. Spark: `OfflineStateRepartitionRunner`.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.spark.evidence.facts import PartitionEvidence
from formats.spark.evidence.gathering import BatchEvidence, CheckpointEvidence


class Repartition(NamedTuple):
    """One of them.

    of: the batch whose state it has.
    passed: batches between the two, which were given up.
    before, after: numbers of partitions.
    """

    batch: int
    of: int
    passed: range
    before: int | None
    after: int | None


def repartitions(evidence: CheckpointEvidence) -> dict[int, Repartition]:
    """All of them by their number, ended or not."""
    out: dict[int, Repartition] = {}
    batches = [batch for batch in evidence.history if batch.offsets is not None]
    for at, batch in enumerate(batches):
        of = _of(batches, at, evidence)
        if of is not None and batch.offsets is not None and of.offsets is not None:
            passed = range(of.batch + 1, batch.batch)
            out[batch.batch] = Repartition(
                batch.batch, of.batch, passed, of.offsets.partitions, batch.offsets.partitions
            )
    return out


def _of(batches: list[BatchEvidence], at: int, evidence: CheckpointEvidence) -> BatchEvidence | None:
    """The batch that one has repartitioned; None if it is no such batch."""
    batch = batches[at]
    if at == 0 or batch.offsets is None:
        return None
    now = batch.offsets
    for before in reversed(batches[:at]):
        was = before.offsets
        if was is None or before.batch < batch.batch - (at - batches.index(before)):
            return None  # some offsets between are lost
        if (was.sources, was.timestamp, was.watermark) == (now.sources, now.timestamp, now.watermark):
            return before if was.partitions != now.partitions and _whole(batch, evidence) else None
        if not _given_up(before):
            return None
    return None


def _given_up(batch: BatchEvidence) -> bool:
    """Whether a commit says nothing, as that of a batch that was passed over."""
    return batch.commit is not None and batch.commit.watermark == 0 and batch.commit.ids is None


def _whole(batch: BatchEvidence, evidence: CheckpointEvidence) -> bool:
    """Whether the state of a batch is snapshots alone, as far as it is there yet, or still."""
    if not evidence.ended(batch):
        return True
    tasks, version = set(evidence.tasks(batch)), batch.batch + 1
    own = [part for part in evidence.partitions if part.id.task in tasks]
    if all(not _any(part, version) for part in own):
        return True  # purged
    return all(part.files.whole(version) is not None and part.files.log(version) is None for part in own)


def _any(part: PartitionEvidence, version: int) -> bool:
    return part.files.log(version) is not None or part.files.whole(version) is not None
