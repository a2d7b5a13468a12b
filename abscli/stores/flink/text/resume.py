"""The effect of resuming from a Flink checkpoint on the sinks of its job."""

from __future__ import annotations

from collections.abc import Mapping

from abscli.report.standing import epochs_named
from formats.view import Status

ENDED = (Status.COMPLETE, Status.DAMAGED)
"""Verdicts of checkpoints that Flink completed, so that sinks committed them."""


def output_again(epoch: int, newer: Mapping[int, Status]) -> list[str]:
    """Return what sinks write again, a sentence each: a checkpoint does not record which sinks are transactional.

    newer: the checkpoints after it in the directory that was named.
    """
    completed = [number for number, status in newer.items() if status in ENDED]
    if not completed:
        return [
            f"If checkpoint {epoch} is the newest of the job, exactly-once sinks (two-phase commit) publish nothing "
            "twice.",
            "Other sinks write again what they wrote after it. The checkpoint does not record which kind a sink is.",
        ]
    return [
        f"{epochs_named(completed, 'checkpoint').capitalize()} {'was' if len(completed) == 1 else 'were'} completed: "
        "sinks have published this output already and write it again, exactly-once sinks too.",
        "A sink that overwrites by key gives the right result.",
    ]
