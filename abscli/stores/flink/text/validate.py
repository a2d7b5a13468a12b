"""The meaning of findings in Flink checkpoints, and the command to type about them."""

from __future__ import annotations

import shlex

from abscli.report.findings import HARMLESS, Code, EpochReport, StoreReport
from abscli.text.validate import look_at

MEANING = {
    Code.MISSING_FILE: "Flink does not start from a checkpoint that needs this file. If another checkpoint or "
    "savepoint has a copy, name its directory with --search",
    Code.SINK_PART_MISSING: "a job that starts from the checkpoint fails or loses these rows without an error, as the "
    "finding says. Restore the file from a backup, or start from another checkpoint",
}
"""Meanings of findings where they differ from those of other systems."""


def next_command(
    code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
) -> str:
    """Return the command to type about a finding, ready to be copied."""
    if code in HARMLESS:
        return look_at(code, epoch, report, store)
    if report.restorable:
        newest = report.candidates[0] if report.candidates else report.latest_restorable
        return f"abs plan-recovery {shlex.quote(store)}@{newest} --out plan.json"
    return f"abs plan-recovery {shlex.quote(store)} --out plan.json"
