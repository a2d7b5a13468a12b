"""What the commit of a Spark batch said, told from the logs of the batch after it."""

from __future__ import annotations

from formats.errors import NoRecovery
from formats.spark import layout
from formats.spark.gather import CheckpointEvidence


def can_be_told(evidence: CheckpointEvidence, batch: int) -> bool:
    """Whether `commit_of` has an answer."""
    try:
        commit_of(evidence, batch)
    except NoRecovery:
        return False
    return True


def commit_of(evidence: CheckpointEvidence, batch: int) -> bytes:
    """A commit for a batch that lost its own: its watermark is what the next batch began with. NoRecovery for
    checkpoint format 2, whose unique ids nothing else says."""
    after = next((one for one in evidence.history if one.batch > batch), None)
    adjacent = after is not None and (evidence.sparse or after.batch == batch + 1)
    if after is None or not adjacent or after.offsets is None or after.offsets.watermark is None:
        message = f"commits/{batch} is lost, and batch {batch + 1} does not say the watermark that it left"
        raise NoRecovery(message, path=layout.commits(batch))
    if evidence.with_ids:
        message = f"commits/{batch} is lost, and with it the unique ids of its state"
        raise NoRecovery(message, path=layout.commits(batch))
    return b'v1\n{"nextBatchWatermarkMs":%d}' % after.offsets.watermark
