"""The effect of resuming after a batch on the sink of a Spark query."""

from __future__ import annotations

from collections.abc import Mapping

from abscli.stores.spark.text.plan import seen_again
from formats.spark.plan import Again
from formats.view import Status

UNFINISHED = (Status.IN_PROGRESS, Status.ABORTED)


def output_again(batch: int, newer: Mapping[int, Status]) -> list[str]:
    """Return the output that is written again, one sentence each, as in a plan. newer: the batches after it."""
    return seen_again(batch, [Again(number, status not in UNFINISHED) for number, status in newer.items()])
