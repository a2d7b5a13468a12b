"""`abs inspect` of a store, for people: its epochs, which of them are whole, and why the others are not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from abscli.protocol.policy import Policy
from abscli.report.standing import epochs_named, undecided
from abscli.text.columns import UNKNOWN, columns, marked, moment, not_shown, number, seconds, size, some, wrapped
from abscli.text.inspect_epoch import ROWS, WIDE
from abscli.text.inspect_page import StorePage
from formats.view import EpochFacts, Status

MISSING = 12
"""Missing tasks that the list of epochs names."""

SPARE = ("ATTEMPT", "PARENT", "TOOK", "NEW", "TRIGGERED (UTC)")
"""Columns that a narrow terminal does without."""

_OPEN = (Status.INCOMPLETE, Status.ABORTED, Status.IN_PROGRESS)


def store_text(
    page: StorePage,
    *,
    heading: str,
    unit: str = "epoch",
    width: int = 80,
    ascii: bool = False,
    remarks: Sequence[str] = (),
) -> str:
    """Return the page of a store: the newest complete epoch, then all.

    heading: what its system calls such a store; remarks: what it adds at the end.
    """
    title = f"{heading} {page.path}"
    lines = wrapped(f"{title}, job {page.job}" if page.job else title, width)
    if not page.epochs:
        return "\n".join([*lines, "", f"There is no {unit} yet."]) + "\n"
    lines = [*newest_lines(page, width, unit), "", *lines]
    wide = width >= WIDE
    rows = [
        (
            str(epoch.epoch),
            marked(epoch.status, ascii),
            UNKNOWN if epoch.parent is None else str(epoch.parent),
            UNKNOWN if epoch.attempt is None else str(epoch.attempt),
            f"{number(epoch.acked)}/{number(epoch.expected)}",
            size(epoch.bytes),
            *_state_columns(epoch, wide),
            "-" if epoch.status in _OPEN else seconds(epoch.duration),
            moment(epoch.triggered),
        )
        for epoch in page.epochs
    ]
    more = ("STATE", "STATE ROWS", "LOGGED") if wide else ()
    header = (unit.upper(), "STATUS", "PARENT", "ATTEMPT", "ACKED", "NEW", *more, "TOOK", "TRIGGERED (UTC)")
    head, *body = columns(header, rows, f"rlrrrr{'r' * len(more)}rl", width, SPARE)
    lines += ["", head]
    for epoch, line in zip(page.epochs, body, strict=True):
        lines.append(line)
        if epoch.missing:
            lines += wrapped(some(list(map(str, epoch.missing)), MISSING), width, " " * 16, "       missing: ")
        if epoch.reason:
            lines += wrapped(epoch.reason, width, " " * 16, "       because: ")
    lines += not_shown(header, rows, width, SPARE)
    lines += _policies(page, width)
    return "\n".join([*lines, *remarks]) + "\n"


def _state_columns(epoch: EpochFacts, wide: bool) -> tuple[str, ...]:
    """What the epoch refers to in all; unknown of one that is not complete."""
    if not wide:
        return ()
    if epoch.status in _OPEN:
        return ("-", "-", "-")
    return (size(epoch.state_bytes), number(epoch.state_rows), number(epoch.log_records))


def newest_lines(page: StorePage, width: int, unit: str = "epoch") -> list[str]:
    """Return what a page begins with: damaged epochs, the newest complete one, and the state of each later one.

    It goes by the presence and sizes of files. unit: what the system calls an epoch.
    """
    damaged = [epoch.epoch for epoch in page.epochs if epoch.status is Status.DAMAGED]
    latest = page.latest_complete
    newest = f"No {unit} is complete." if latest is None else f"Newest complete: {unit} {latest}."
    newest = undecided(page.candidates, unit) if page.candidates else newest
    lines = wrapped(f"DAMAGED: {epochs_named(damaged, unit)}. {newest}" if damaged else newest, width)
    later = [epoch for epoch in page.epochs if epoch.epoch > (latest or max(page.candidates, default=0))]
    for epoch in later[:MISSING]:
        lines += wrapped(f"{unit} {epoch.epoch}: {_open(epoch)}", width, "    ", "  ")
    if len(later) > MISSING:
        lines.append(f"  and {len(later) - MISSING:,} later ones")
    return lines


def _open(epoch: EpochFacts) -> str:
    """Return the state of an epoch that is not complete."""
    word = "in progress" if epoch.status is Status.IN_PROGRESS else str(epoch.status)
    if epoch.status in (Status.DAMAGED, Status.ABORTED) or not epoch.missing:
        return word
    return f"{word}; {number(len(epoch.missing))} of {number(epoch.expected)} tasks have not acked"


def _policies(page: StorePage, width: int) -> list[str]:
    """The epochs that were not taken as usual."""
    lines: list[str] = []
    for policy in (Policy.UNALIGNED, Policy.AT_LEAST_ONCE):
        taken = [str(epoch.epoch) for epoch in page.epochs if epoch.policy == policy]
        if taken:
            more = "" if policy.exactly_once else "; records may repeat after a restore"
            lines += ["", *wrapped(f"epoch{'s'[: len(taken) != 1]} {some(taken, ROWS)}{more}", width, "  ",
                                   f"Policy {policy}: ")]  # fmt: skip
    return lines


def next_commands(page: StorePage, epoch: int | None = None, *, plan: bool = True) -> list[str]:
    """What to type next, for the store as it stands. epoch: the one that was shown, if one was; plan: whether to plan a
    recovery comes next."""
    store = shlex.quote(page.path)
    shown = store if epoch is None else f"{store}@{epoch}"
    if any(epoch.status is Status.IN_PROGRESS for epoch in page.epochs):
        return [f"abs inspect {store} --watch"]
    if page.latest_complete is None:
        return [f"abs validate {shown}"] if page.epochs else []
    if not plan:
        return [f"abs validate {shown}"]
    complete = any(row.epoch == epoch and row.status is Status.COMPLETE for row in page.epochs)
    back = epoch if complete else page.latest_complete
    return [f"abs validate {shown}", f"abs plan-recovery {store}@{back} --out plan.json"]
