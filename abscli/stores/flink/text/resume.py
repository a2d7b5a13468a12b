"""The effect of resuming from a Flink checkpoint on the sinks of its job."""

from __future__ import annotations

from abscli.report.findings import StoreReport
from abscli.report.standing import epochs_named
from formats.view import Status

ENDED = (Status.COMPLETE, Status.DAMAGED)
"""Verdicts of checkpoints that Flink completed, so that sinks committed them."""


def output_again(report: StoreReport, epoch: int) -> list[str]:
    """Return what sinks write again, a sentence each: a checkpoint does not record which sinks are transactional."""
    newer = [one.epoch for one in report.epochs if one.epoch > epoch and one.verdict in ENDED]
    if not newer:
        return [
            "Exactly-once sinks (two-phase commit) publish nothing twice. Other sinks write again what they wrote "
            f"after checkpoint {epoch}. The checkpoint does not record which kind a sink is.",
        ]
    completed = "was" if len(newer) == 1 else "were"
    return [
        f"{epochs_named(newer, 'checkpoint').capitalize()} {completed} completed: sinks have published this output "
        "already and write it again, exactly-once sinks too. A sink that overwrites by key gives the right result."
    ]
