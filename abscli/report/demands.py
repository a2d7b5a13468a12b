"""Whether a report meets what was asked of it: what `abs validate` turns into its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from abscli.report.findings import EpochReport, SinkVerdict, StoreReport


def unsatisfied(
    report: StoreReport,
    *,
    epoch: int | None = None,
    strict: bool = False,
    max_age: float | None = None,
    min_epochs: int | None = None,
    now: datetime | None = None,
) -> list[str]:
    """Every demand that does not hold, in words; empty if all do.

    epoch: the one that was asked for, None for the whole store; max_age: seconds since the newest restorable epoch
    was triggered, which is the moment that it would bring back.
    """
    demands = []
    if epoch is not None:
        demands += [f"epoch {r.epoch} is {r.verdict}" for r in report.epochs if not r.whole]
    else:
        demands += [f"epoch {r.epoch} is damaged" for r in report.epochs if r.verdict == "damaged"]
        if not report.restorable:
            demands.append("no epoch can be restored")
    if epoch is not None and not demands:
        demands += [
            f"epoch {r.epoch}: {r.reason}" for r in report.epochs if r.epoch not in report.restorable and r.reason
        ]
    if report.damaged and not demands:
        demands.append("the store's own files are damaged")
    if strict and report.all_findings and not demands:
        count = len(report.all_findings)
        demands.append(f"--strict: {count} finding{'s'[: count != 1]}")
    if strict:
        demands += [
            f"--strict: the target of sink {sink.sink} could not be checked: {sink.reason}"
            for sink in report.sinks
            if sink.verdict is SinkVerdict.UNKNOWN
        ]
    if min_epochs is not None and len(report.restorable) < min_epochs:
        demands.append(f"--min-epochs {min_epochs}: {len(report.restorable)} can be restored")
    if max_age is not None:
        demands += _too_old(report, max_age, now or datetime.now(UTC))
    return demands


def _too_old(report: StoreReport, max_age: float, now: datetime) -> Iterator[str]:
    """The demand for a young restorable epoch, if it is not met. Each epoch that may be the newest must meet it."""
    newest = report.candidates or (() if report.latest_restorable is None else (report.latest_restorable,))
    found = [one for one in report.epochs if one.epoch in newest]
    for one in found:
        if one.triggered is None and one.undated is not None:
            yield f"--max-age {max_age:g} s: the age of {one.epoch} is not known: {one.undated}"
            return
    old = max((_age(one, now) for one in found), default=float("inf"))
    if old > max_age:
        yield f"--max-age {max_age:g} s: the newest that can be restored is {old:.0f} s old"


def _age(one: EpochReport, now: datetime) -> float:
    """Seconds since an epoch was triggered, or its file modified; infinite if its time cannot be read."""
    try:
        return (now - datetime.fromisoformat(one.time or "")).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
