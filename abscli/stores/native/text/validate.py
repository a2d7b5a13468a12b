"""What `abs validate` says is to be typed about findings in our own store."""

from __future__ import annotations

import shlex

from abscli.report.findings import Code, EpochReport, StoreReport
from formats.native import layout
from formats.view import Status

BOOKS = (layout.STORE, f"{layout.ATTEMPTS}/", f"{layout.RECOVERIES}/", "topologies/")
"""What the paths of the store's own facts begin with."""


def next_command(
    code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None,
    *, job: str | None = None,
) -> str:  # fmt: skip
    """Return the command to type about a finding.

    path: that the first finding of the code is about; job: the job file, JOB in the command where none was named.
    """
    name, file = shlex.quote(store), "JOB" if job is None else shlex.quote(job)
    if code is Code.UNREFERENCED_FILE:
        return f"abs gc {name}"
    if code in (Code.ABANDONED_UPLOAD, Code.ABANDONED_TRANSACTION):
        return f"abs gc {name} --job {file}"
    if code in (Code.UNREFERENCED_SINK_PART, Code.SINK_PART_PENDING):
        return f"abs run {file} --store {name} --resume"
    if epoch is not None and epoch.verdict is Status.IN_PROGRESS:
        return f"abs inspect {name} --watch"
    newest = report.latest_restorable
    if code is Code.SINK_PART_MISSING and newest is None:
        return f"abs run {file} --store {name} --from-epoch 0"  # the store is whole: it is the output that is not
    if (path is not None and path.startswith(BOOKS)) or (newest is None and epoch is None):
        return f"abs rebuild {name} --job {file}"
    if newest is None:
        return f"abs plan-recovery {name} --strategy repair --out plan.json"
    return f"abs plan-recovery {name}@{newest} --out plan.json"
