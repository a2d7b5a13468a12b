"""The age of the newest restorable epoch, and the effect of resuming from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abscli.pages.facts import Made, Newest, Resume, SplitRewind, TimeSource
from abscli.planner.plan import plan_full, rewinds, sources_of
from abscli.planner.ranges import Ranges
from abscli.planner.repeats import total
from abscli.report.findings import EpochReport, StoreReport
from formats.job.model import Topology
from formats.native.plan import Rewind
from formats.timestamps import unix_time
from formats.view import EpochDetail, EpochFacts, Status

SPLITS = 50
"""Splits of sources that a report lists."""
SPANS = 40
"""Ranges of epochs that a sentence names."""


class Maker(NamedTuple):
    """The program that makes a report.

    by: its name and version; now: the moment, RFC 3339 in UTC.
    utc_offset: minutes by which local time is ahead of UTC at a moment, given in seconds since 1970.
    """

    by: str
    now: str
    utc_offset: Callable[[float], int]

    def made(self, moments: Iterable[str | None]) -> Made:
        """Return the facts about the making of a report. moments: all times in it, of which None is unknown."""
        changes: list[tuple[str, int]] = []
        known = {moment: at for moment in (*moments, self.now) if (at := unix_time(moment)) is not None and moment}
        for moment in sorted(known, key=known.__getitem__):
            offset = self.utc_offset(known[moment])
            if not changes or changes[-1][1] != offset:
                changes.append((moment, offset))
        return Made(self.by, self.now, tuple(changes))


def newest_of(report: StoreReport, epoch: int | None, now: str) -> Newest | None:
    """Return the epoch that can be restored, with its age. epoch: the subject of the report, None for a store."""
    number = report.latest_restorable if epoch is None else epoch if epoch in report.restorable else None
    found = next((one for one in report.epochs if one.epoch == number), None)
    if found is None:
        return None
    time, source = _time_of(found)
    then, at = unix_time(time), unix_time(now)
    if then is None or at is None:
        return Newest(found.epoch, None, None, None)
    if found.undated is not None and found.triggered is None:
        return Newest(found.epoch, time, source, None)
    return Newest(found.epoch, time, source, round(at - then, 3) if at >= then else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resuming:
    """An epoch from which a job could resume, and what is known of later epochs.

    report: on the store or on the epoch; epochs: all of the store.
    detail: the epoch, which can be restored; topology: its job graph, if it is known.
    later: the newest epoch after it of which source positions are known.
    output: the effect on sinks, a sentence each.
    """

    report: StoreReport
    epochs: Sequence[EpochFacts]
    detail: EpochDetail
    topology: Topology | None
    later: EpochDetail | None
    output: Sequence[str]


def newer_than(epoch: int, report: StoreReport, epochs: Sequence[EpochFacts]) -> dict[int, Status]:
    """Return the epochs after `epoch`: the verdict of each, and the status by presence and sizes where none was made.

    report: on the store or on one epoch; epochs: all of the store.
    """
    status = {one.epoch: one.status for one in epochs} | {one.epoch: one.verdict for one in report.epochs}
    return {number: status[number] for number in sorted(status) if number > epoch}


def resume_of(resuming: Resuming) -> Resume:
    """Return the effect of resuming from an epoch."""
    report, detail, later = resuming.report, resuming.detail, resuming.later
    epoch = detail.facts.epoch
    own = next((one for one in report.epochs if one.epoch == epoch), None)
    newer = newer_than(epoch, report, resuming.epochs)
    times = {one.epoch: one.triggered for one in resuming.epochs}
    times |= {one.epoch: _time_of(one)[0] for one in report.epochs}
    began = unix_time(times.get(epoch))
    last = max((at for one in newer if (at := unix_time(times.get(one))) is not None), default=None)
    if resuming.topology is not None and detail.facts.status is Status.COMPLETE:
        plan = plan_full(resuming.topology, detail, topology_sha256="", later=later)
        rows, records = list(plan.rewind), plan.cost.source_records
        in_flight = plan.cost.log_records
    else:
        rows, records, in_flight = list(rewinds(sources_of(detail, later))), None, detail.facts.log_records
    again = [row for row in rows if _is_read_again(row)]
    return Resume(
        epoch=epoch,
        rolled_back=Ranges.of(list(newer)).brief(SPANS) if newer else "",
        seconds=None if last is None or began is None or last < began else round(last - began, 3),
        records=records,
        in_flight=in_flight,
        repeats=None if own is None or own.repeats is None else total(own.repeats),
        splits=tuple(SplitRewind(row.task, row.split, row.from_, row.to) for row in again[:SPLITS]),
        splits_count=len(again),
        output=tuple(resuming.output),
    )


def _time_of(epoch: EpochReport) -> tuple[str | None, TimeSource | None]:
    if epoch.triggered is not None:
        return epoch.triggered, TimeSource.TRIGGERED
    return epoch.modified, None if epoch.modified is None else TimeSource.MODIFIED


def _is_read_again(row: Rewind) -> bool:
    """Tell whether a source is known to have read further than the epoch."""
    return row.from_ is not None and (row.to is None or row.from_ > row.to)
