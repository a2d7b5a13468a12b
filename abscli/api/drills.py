"""Drills of stores whose job is not run here: the copy that a restore makes, checked and compared."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any

from abscli.stores.drills import Compared, Drilled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from abscli.api.reports import Report
    from abscli.stores.base import OwnReader
    from abscli.stores.recovery import Watcher
    from abscli.text.diff import DiffPage


def drill_of_copy(
    store: Any, epoch: int | None, opened: Callable[[str], Any], reader: OwnReader | None, watch: Watcher
) -> Drilled:
    """Plans, makes the copy in a scratch folder, checks all of it and compares it with the epoch.

    store: an `abscli.Store`, whose module imports this one. opened: opens a copy. reader: the system's
    own, which is asked, too. Raises NoRecovery, Damaged.
    """
    from formats.scratch import scratch

    folder = tempfile.mkdtemp(prefix="drill-", dir=scratch())
    try:
        return _drill(store, epoch, os.path.join(folder, "copy"), opened, reader, watch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drill(
    store: Any, epoch: int | None, to: str, opened: Callable[[str], Any], reader: OwnReader | None, watch: Watcher
) -> Drilled:
    clock = [time.monotonic()]
    plan = store.plan(epoch, watch=watch)
    assert plan.epoch is not None
    clock.append(time.monotonic())
    store.restore(plan, to, watch=watch)
    clock.append(time.monotonic())
    watch("checking the copy")
    copy = opened(to)
    number = copy.resolve()
    report = copy.validate(number)
    if reader is not None:
        report = report.confirmed(reader)
    clock.append(time.monotonic())
    watch("comparing")
    page = store.comparison(copy, epoch=plan.epoch, to=number).page()
    clock.append(time.monotonic())
    compared = tuple(_compared(page))
    problems = tuple(_problems(report, page))
    title = store.system.words.title
    not_proved = [f"that {title} starts from it, and reads and writes on: {title} is not run here"]
    if reader is None and "deep" in store.system.options:
        not_proved.append(f"that {title}'s own reader reads its state (--deep asks it)")
    names = ("planned", "copied", "checked", "compared")
    seconds = [round(later - earlier, 3) for earlier, later in itertools.pairwise(clock)]
    return Drilled(
        store=store.path,
        system=store.system.name,
        epoch=plan.epoch,
        proved=not problems and all(one.same is not False for one in compared),
        tasks=None,
        rows=None,
        replayed=None,
        seconds=dict(zip(names, seconds, strict=True)),
        compared=compared,
        problems=problems,
        passed_over=_passed_over(store, plan.epoch) if epoch is None else {},
        not_proved=tuple(not_proved),
    )


def _passed_over(store: Any, epoch: int) -> dict[int, str]:
    """Newer epochs that were complete and cannot be restored, and why."""
    newer = [row for row in store.validate().epochs if row.epoch > epoch and row.verdict.value == "damaged"]
    return {row.epoch: row.findings[0].message if row.findings else "it is damaged" for row in newer}


def _compared(page: DiffPage) -> Iterator[Compared]:
    for operator in page.operators:
        for state in operator.states:
            name = f"{operator.id} {state.state}" if state.state else operator.id
            reason = state.note
            if state.differs:
                reason = f"{state.added} keys new, {state.removed} lost, {state.changed} changed"
            yield Compared(name, None if state.differs is None else not state.differs, reason)


def _problems(report: Report, page: DiffPage) -> Iterator[str]:
    for finding in report.findings:
        yield f"of the copy: {finding.code}: {finding.path or ''} {finding.message}"
    for position in (one for one in page.positions if one.before != one.after):
        yield f"{position.task}: source position of {position.split} is another one in the copy"
