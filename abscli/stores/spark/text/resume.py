"""The effect of resuming after a batch on the sink of a Spark query."""

from __future__ import annotations

from abscli.report.findings import StoreReport
from abscli.stores.spark.text.plan import seen_again
from formats.spark.plan import Again
from formats.view import Status

UNFINISHED = (Status.IN_PROGRESS, Status.ABORTED)


def output_again(report: StoreReport, batch: int) -> list[str]:
    """Return what the sink sees again, a sentence each, as a recovery plan says it."""
    newer = [one for one in report.epochs if one.epoch > batch]
    return seen_again(batch, [Again(one.epoch, one.verdict not in UNFINISHED) for one in newer])
