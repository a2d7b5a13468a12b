"""What `abs validate` says is to be typed about findings in our own store."""

from __future__ import annotations

import shlex

from abscli.report.findings import Code, EpochReport, StoreReport
from formats.native import layout
from formats.view import Status

BOOKS = (layout.STORE, f"{layout.ATTEMPTS}/", f"{layout.RECOVERIES}/", "topologies/")
"""What the paths of the store's own facts begin with."""


def next_command(
    code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
) -> str:
    """What to type about a finding, to be copied as it is. path: that the first finding of the code is about."""
    name = shlex.quote(store)
    if code in (Code.UNREFERENCED_FILE, Code.UPLOAD_LEFT, Code.TRANSACTION_LEFT):
        return f"abs gc {name}"
    if code in (Code.SINK_PART_UNNAMED, Code.SINK_PART_WAITING):
        return f"abs run JOB --store {name} --resume"
    if epoch is not None and epoch.verdict is Status.IN_PROGRESS:
        return f"abs inspect {name} --watch"
    newest = report.latest_restorable
    if code is Code.SINK_PART_MISSING and newest is None:
        return f"abs run JOB --store {name} --from-epoch 0"  # the store is whole: it is the output that is not
    if newest is None or (path is not None and path.startswith(BOOKS)):
        return f"abs rebuild {name} --job JOB"
    return f"abs plan-recovery {name}@{newest} --out plan.json"
