"""What is wrong, gathered by code, and how it stands altogether."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from abscli.pages.facts import Example, State, Trouble, Unchecked
from abscli.planner.ranges import Ranges
from abscli.report.findings import HARMLESS, Code, Finding, StoreReport
from abscli.text.validate import MEANING, Advice, Why
from formats.view import Status

EXAMPLES = 12
"""Findings of one code that a page names."""
SPANS = 40
"""Ranges of epochs that a page names."""

UNREAD = "no file was read"
_NEEDS_BYTES = (Code.DIGEST_MISMATCH, Code.ROW_MISMATCH, Code.MISPLACED_KEY)
_OPEN = (Status.INCOMPLETE, Status.ABORTED, Status.IN_PROGRESS)


def troubles_of(report: StoreReport, store: str, advice: Advice) -> tuple[Trouble, ...]:
    """All findings by their code: what takes something from an epoch that was complete first, then what lacks of those
    that never were, then what is harmless. store: as commands are to name it."""
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


def notes_of(notes: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
    """What should be known of epochs, each text once."""
    of: dict[str, list[int]] = {}
    for epoch, texts in notes.items():
        for text in texts:
            of.setdefault(text, []).append(epoch)
    return tuple(f"epoch{'s'[: len(of[text]) != 1]} {Ranges.of(of[text]).brief(SPANS)}: {text}" for text in of)


def standing(report: StoreReport, epoch: int | None) -> tuple[State, str]:
    """How a store stands, or one epoch of it, in a word and a sentence."""
    if epoch is not None:
        return _of_epoch(report, epoch)
    newest = report.latest_restorable
    broken = Ranges.of(one.epoch for one in report.epochs if one.verdict is Status.DAMAGED)
    of_store = [finding for finding in report.findings if finding.code not in HARMLESS]
    way = "No epoch can be restored" if newest is None else f"Epoch {newest} can be restored"
    if of_store:
        return State.WRONG, f"{way}: the store itself is damaged"
    if broken:
        which = f"epoch{'s'[: broken.count != 1]} {broken.brief(SPANS)} {'is' if broken.count == 1 else 'are'} damaged"
        if newest is not None and all(number < newest for number in broken):
            return State.WRONG, f"{way}; older {which}"
        return State.WRONG, f"{way}: {which}" if newest is None else f"{way}, a newer one cannot: {which}"
    if not report.epochs:
        return State.UNKNOWN, "There are no epochs yet"
    if newest is None and any(one.whole for one in report.epochs):
        return State.UNKNOWN, "Of no epoch is it known that it can be restored"
    if newest is None:
        return State.WRONG, f"{way}: none is complete"
    later = [one for one in report.epochs if one.epoch > newest]
    if taken := [one for one in later if one.verdict is Status.IN_PROGRESS]:
        return State.WELL, f"{way}; epoch {taken[-1].epoch} is being taken"
    if later:
        words = ", ".join(f"{one.epoch} is {one.verdict}" for one in later[:3])
        more = f" and {len(later) - 3} more" if len(later) > 3 else ""
        return State.ATTENTION, f"{way}; of the later ones {words}{more}"
    return State.WELL, f"{way}: it is the newest"


def _of_epoch(report: StoreReport, number: int) -> tuple[State, str]:
    one = next((epoch for epoch in report.epochs if epoch.epoch == number), None)
    if one is None:
        return State.UNKNOWN, f"Epoch {number} was not checked"
    if number in report.restorable:
        return State.WELL, f"Epoch {number} can be restored"
    if one.verdict is Status.COMPLETE:
        return State.UNKNOWN, f"Epoch {number} is complete; that it can be restored is not known"
    state = State.WELL if one.verdict is Status.IN_PROGRESS else State.WRONG
    because = f": {one.reason}" if one.reason else ""
    shown = "is being taken" if one.verdict is Status.IN_PROGRESS else f"is {one.verdict}"
    return state, f"Epoch {number} {shown}{because}"
