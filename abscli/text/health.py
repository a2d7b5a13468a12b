"""The page of `abs doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from abscli.report.health import Check, Verdict
from abscli.text.columns import wrapped

SIGNS = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.PROBLEM: "✗", Verdict.UNKNOWN: "?"}
SIGNS_IN_ASCII = {Verdict.OK: "+", Verdict.WARNING: "!", Verdict.PROBLEM: "x", Verdict.UNKNOWN: "?"}


def text(checks: Sequence[Check], *, width: int, ascii: bool) -> str:
    """A check a line, what to do below it, and the sum of all."""
    signs = SIGNS_IN_ASCII if ascii else SIGNS
    room = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        word = "" if check.verdict in (Verdict.OK, Verdict.UNKNOWN) else f"{check.verdict}: "
        lead = f"{signs[check.verdict]} {check.name:<{room}}  "
        lines += wrapped(f"{word}{check.message}", width, " " * len(lead), lead)
        if check.hint is not None:
            lines += wrapped(check.hint, width, " " * (len(lead) + 3), " " * len(lead) + "-> ")
    return "\n".join([*lines, "", *wrapped(_sum(checks), width)]) + "\n"


def _sum(checks: Sequence[Check]) -> str:
    count = Counter(check.verdict for check in checks)
    parts = [
        f"{count[verdict]} {noun}{'s'[: count[verdict] != 1]}"
        for verdict, noun in ((Verdict.PROBLEM, "problem"), (Verdict.WARNING, "warning"))
        if count[verdict]
    ]
    if count[Verdict.UNKNOWN]:
        parts.append(f"{count[Verdict.UNKNOWN]} not checked")
    return f"{', '.join(parts)}." if parts else "Everything is as it should be."
