"""What `abs validate` says of findings in a checkpoint of Spark's, and what to type about them."""

from __future__ import annotations

import shlex

from abscli.report.findings import Code, EpochReport, StoreReport
from abscli.text.validate import look_at
from formats.view import Status

MEANING = {
    Code.MISSING_FILE: "Spark does not start from a batch that needs it",
    Code.ROW_MISMATCH: "what it holds is not what was written: Spark may read other values without an error",
    Code.MISPLACED_KEY: "Spark does not look for keys there: the query goes on with other results, without an error",
    Code.MANIFEST_UNREADABLE: "what the batch was to read, or that it is done, is not known",
    Code.POSITION_REGRESSED: "its topic was recreated, or the state has input twice, or the offsets were changed",
}
"""What findings mean for a query, where that is not what they mean elsewhere."""


def next_command(
    code: Code, epoch: EpochReport | None, report: StoreReport, store: str, path: str | None = None
) -> str:
    """What to type about a finding, to be copied as it is."""
    if code in (Code.UNREFERENCED_FILE, Code.INPUT_RECREATED):
        return look_at(code, epoch, report, store)
    name = shlex.quote(store)
    if epoch is not None and epoch.verdict is Status.IN_PROGRESS:
        return f"abs inspect {name} --watch"
    # What lies in the wrong place may be put back, and a newer batch gone to than is exact as it is.
    newest = None if code is Code.MISPLACED_KEY else report.latest_restorable
    return f"abs plan-recovery {name}{'' if newest is None else f'@{newest}'} --out plan.json"
