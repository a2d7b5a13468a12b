"""The age of the newest restorable epoch, and the effect of resuming from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from abscli.pages.facts import Made, Newest, Resume, SplitRewind, TimeSource
from abscli.planner.plan import plan_full, rewinds, sources_of
from abscli.planner.ranges import Ranges
from abscli.planner.repeats import total
from abscli.report.findings import EpochReport, StoreReport
from formats.job.model import Topology
from formats.native.plan import Rewind
from formats.timestamps import unix_time
from formats.view import EpochDetail, Status

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
    return Newest(found.epoch, time, source, round(at - then, 3) if at >= then else None)


def resume_of(
    report: StoreReport, detail: EpochDetail, later: EpochDetail | None, topology: Topology | None,
    output: Sequence[str],
) -> Resume:  # fmt: skip
    """Return the effect of resuming from the epoch `detail`, which is complete.

    later: the newest epoch after it of which source positions are known; topology: the job graph, if it is known.
    output: the effect on sinks, a sentence each.
    """
    epoch = detail.facts.epoch
    own = next((one for one in report.epochs if one.epoch == epoch), None)
    newer = [one for one in report.epochs if one.epoch > epoch]
    began = None if own is None else unix_time(_time_of(own)[0])
    last = max((at for one in newer if (at := unix_time(_time_of(one)[0])) is not None), default=None)
    if topology is not None and detail.facts.status is Status.COMPLETE:
        plan = plan_full(topology, detail, topology_sha256="", later=later)
        rows, records = list(plan.rewind), plan.cost.source_records
        in_flight = plan.cost.log_records
    else:
        rows, records, in_flight = list(rewinds(sources_of(detail, later))), None, detail.facts.log_records
    again = [row for row in rows if _is_read_again(row)]
    return Resume(
        epoch=epoch,
        rolled_back=Ranges.of([one.epoch for one in newer]).brief(SPANS) if newer else "",
        seconds=None if last is None or began is None or last < began else round(last - began, 3),
        records=records,
        in_flight=in_flight,
        repeats=None if own is None or own.repeats is None else total(own.repeats),
        splits=tuple(SplitRewind(row.task, row.split, row.from_, row.to) for row in again[:SPLITS]),
        splits_count=len(again),
        output=tuple(output),
    )


def _time_of(epoch: EpochReport) -> tuple[str | None, TimeSource | None]:
    if epoch.triggered is not None:
        return epoch.triggered, TimeSource.TRIGGERED
    return epoch.modified, None if epoch.modified is None else TimeSource.MODIFIED


def _is_read_again(row: Rewind) -> bool:
    """Tell whether a source is known to have read further than the epoch."""
    return row.from_ is not None and (row.to is None or row.from_ > row.to)
