"""Rows that come later than the watermark: when a query that is rolled back may treat them otherwise. Pure."""

from __future__ import annotations

from formats.spark.evidence.gathering import CheckpointEvidence
from formats.spark.logs.repartitions import repartitions
from formats.spark.plan import LateRows


def late_rows(evidence: CheckpointEvidence, batch: int, *, unchanged: bool) -> LateRows | None:
    """Tell what a roll-back to a batch does to late rows; None if they are treated as they were.

    unchanged: the next batch runs with the offsets that it had.

    Spark drops rows by the watermark of the batch before. After a batch that moved the watermark it runs one without
    input, which removes state; not so when it starts (`MicroBatchExecution.constructNextBatch`): then the first batch
    with input still drops rows by the older watermark. Batches that are cut differently move the watermark elsewhere.
    """
    later = [one for one in evidence.history if one.batch > batch and one.batch not in repartitions(evidence)]
    if evidence.stateless or not any(one.offsets is not None and one.offsets.watermark for one in evidence.history):
        return None
    if unchanged:
        later = [one for one in later if one.batch > batch + 1]
    if not later:
        return None
    at = next((one.offsets for one in evidence.history if one.batch == batch), None)
    following = next((one.offsets for one in later if one.batch == batch + 1), None)
    if at is None or following is None or following.sources != at.sources:
        return LateRows.OTHER_BATCHES
    return LateRows.WITHOUT_INPUT
