"""What is wrong, gathered by code, and how it stands altogether."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from abscli.pages.facts import Example, Trouble, Unchecked
from abscli.planner.ranges import Ranges
from abscli.report.findings import HARMLESS, Code, Finding, StoreReport
from abscli.report.runbooks import runbook_for
from abscli.report.standing import epochs_named
from abscli.text.validate import MEANING, Advice, Why
from formats.view import Status

EXAMPLES = 12
"""Findings of one code that a page names."""
SPANS = 40
"""Ranges of epochs that a page names."""

UNREAD = "no file was read"
_NEEDS_BYTES = (Code.DIGEST_MISMATCH, Code.ROW_MISMATCH, Code.MISPLACED_KEY)
_OPEN = (Status.INCOMPLETE, Status.ABORTED, Status.IN_PROGRESS)


def troubles_of(report: StoreReport, store: str, advice: Advice, system: str) -> tuple[Trouble, ...]:
    """Group all findings by code: first those of epochs that were complete, then those of epochs that never were, then
    the harmless ones. store: as commands name it; system: the name of its format."""
    by_code: dict[Code, list[tuple[int | None, Finding]]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append((None, finding))
    verdicts = {epoch.epoch: epoch for epoch in report.epochs}
    for epoch in reversed(report.epochs):
        for finding in epoch.findings:
            by_code.setdefault(finding.code, []).append((epoch.epoch, finding))
    rows = []
    for code, entries in by_code.items():
        newest, first = entries[0]
        command = advice.next_command(code, verdicts.get(newest or 0), report, store, path=first.path)
        numbers = [number for number, _ in entries if number is not None]
        opened = all(number is not None and verdicts[number].verdict in _OPEN for number, _ in entries)
        trouble = Trouble(
            code=str(code),
            harmless=code in HARMLESS,
            count=len(entries),
            epochs=Ranges.of(numbers).brief(SPANS) if numbers else "",
            meaning=advice.meanings.get(code, MEANING.get(code)),
            command=command,
            examples=tuple(example(number, finding) for number, finding in entries[:EXAMPLES]),
            runbook=runbook_for(code, system),
        )
        rows.append((code in HARMLESS, opened, -(max(numbers, default=2**62)), trouble))
    return tuple(row[-1] for row in sorted(rows, key=lambda row: row[:-1]))


def example(epoch: int | None, finding: Finding) -> Example:
    """A finding as the page has it."""
    where = finding.channel or finding.task
    return Example(epoch, None if where is None else str(where), finding.path, finding.message)


def unchecked_of(report: StoreReport, why: Why, *, quick: bool) -> tuple[Unchecked, ...]:
    """What was not checked, by code and reason, with the epochs where it was not. quick: no file was read."""
    where: dict[tuple[str, str | None], list[int]] = {}
    for epoch in report.epochs:
        for code in dict.fromkeys((*report.unchecked, *epoch.unchecked)):
            reason = why.get(epoch.epoch, {}).get(code, UNREAD if quick and code in _NEEDS_BYTES else None)
            where.setdefault((str(code), reason), []).append(epoch.epoch)
    for code in report.unchecked:
        if not report.epochs:
            where.setdefault((str(code), None), [])
    return tuple(
        Unchecked(code, "" if len(epochs) == len(report.epochs) else Ranges.of(epochs).brief(SPANS), reason)
        for (code, reason), epochs in sorted(where.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    )


def notes_of(notes: Mapping[int, Sequence[str]], unit: str) -> tuple[str, ...]:
    """Return each note once, with the epochs that have it. unit: the word of the system for an epoch."""
    of: dict[str, list[int]] = {}
    for epoch, texts in notes.items():
        for text in texts:
            of.setdefault(text, []).append(epoch)
    return tuple(f"{epochs_named(numbers, unit)}: {text}" for text, numbers in of.items())
