"""The report of a store, or of one of its epochs, from what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from abscli.graph.backedges import back_edges
from abscli.pages.depth import depth_of
from abscli.pages.facts import About, Depth, EpochLine, Graph, Growth, Report, Resume, Times
from abscli.pages.graph import graph_of, marks_of, wrong_edges
from abscli.pages.resume import Maker, Resuming, newest_of, resume_of
from abscli.pages.troubles import notes_of, troubles_of, unchecked_of
from abscli.report.findings import EpochReport, StoreReport
from abscli.report.standing import State, standing
from abscli.text.statistics import TrendPage
from abscli.text.validate import Advice, Notes, Why
from formats.job.model import Topology
from formats.statistics import StateStatistics
from formats.view import EpochDetail, EpochFacts

EPOCHS = 1_000
"""Epochs that a report lists, the newest."""
MISSING = 20
"""Missing tasks of an epoch that are named."""
POINTS = 120
"""Points of a curve."""
GROWN = 30
"""Operators whose growth is drawn, the largest."""

READ_ALL = "Every file was read and verified against its checksum."
UNREAD = "No file was read (--verify reads them)."
QUICK = "Presence and sizes of files were checked; no file was read (--verify reads them)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was read of a store.

    path: the absolute path or the URI. maker: of the report.
    epochs: all of them, ascending; empty where the store cannot be read.
    report, why, notes: what a check says.
    times: of the epochs that are listed, where the time went.
    detail: the epoch in depth; topology: its job graph; later: the newest epoch after it that has positions of sources.
    output: the effect on sinks of resuming from it, a sentence each.
    statistics: of its states, None where there are none to be had; statistics_note: why.
    next: commands.
    unread: why something else could not be read, a line each.
    """

    path: str
    format: str
    job: str | None
    named: int | None
    quick: bool
    report: StoreReport
    advice: Advice
    maker: Maker
    why: Why = field(default_factory=dict)
    notes: Notes = field(default_factory=dict)
    epochs: Sequence[EpochFacts] = ()
    times: Mapping[int, Times | None] = field(default_factory=dict)
    tags: Mapping[int, Sequence[str]] = field(default_factory=dict)
    recoveries: Sequence[str] = ()
    detail: EpochDetail | None = None
    topology: Topology | None = None
    later: EpochDetail | None = None
    output: Sequence[str] = ()
    statistics: Sequence[StateStatistics] | None = None
    statistics_note: str | None = None
    growth: TrendPage | None = None
    next: Sequence[str] = ()
    unread: Sequence[str] = ()


def store_report(gathered: Gathered) -> Report:
    """The report of a store, or of the epoch that was named."""
    report, named = gathered.report, gathered.named
    state, headline = standing(report, named, unit=gathered.advice.unit, quick=gathered.quick)
    checked = {one.epoch: one for one in report.epochs}
    shown = [facts for facts in gathered.epochs if named in (None, facts.epoch)]
    lines = [_epoch(facts, checked.get(facts.epoch), gathered) for facts in shown[-EPOCHS:]]
    depth = None
    if gathered.detail is not None:
        back = None if gathered.topology is None else back_edges(gathered.topology)
        depth = depth_of(gathered.detail, back, gathered.statistics, gathered.statistics_note)
    troubles = troubles_of(report, gathered.path, gathered.advice, gathered.format)
    newest = newest_of(report, named, gathered.maker.now)
    resume = _resume(gathered)
    moments = [*(time for line in lines for time in (line.triggered, line.modified))]
    moments += [] if newest is None else [newest.time]
    # What to do about the worst comes before what is typed on an ordinary day.
    first = [trouble.command for trouble in troubles if trouble.command is not None and not trouble.harmless]
    return Report(
        made=gathered.maker.made(moments),
        unit=gathered.advice.unit,
        about=About.STORE if named is None else About.EPOCH,
        store=gathered.path,
        format=gathered.format,
        job=gathered.job,
        epoch=named,
        state=state,
        summary=headline,
        checked=UNREAD if state is State.UNVERIFIED else QUICK if gathered.quick else READ_ALL,
        next=tuple(dict.fromkeys([*first[:1], *gathered.next])),
        problems=troubles,
        unchecked=unchecked_of(report, gathered.why, quick=gathered.quick),
        notes=(*gathered.unread, *notes_of(gathered.notes, gathered.advice.unit)),
        epochs=tuple(lines),
        epochs_count=len(shown),
        latest_restorable=report.latest_restorable,
        newest=newest,
        resume=resume,
        recoveries=tuple(gathered.recoveries),
        graph=None if depth is None else _graph(gathered, depth, lines),
        depth=depth,
        growth=() if gathered.growth is None else tuple(_growths(gathered.growth)),
    )


def _resume(gathered: Gathered) -> Resume | None:
    """Return the effect of resuming from the epoch in depth; None if it cannot be restored."""
    detail = gathered.detail
    if detail is None or detail.facts.epoch not in gathered.report.restorable:
        return None
    return resume_of(Resuming(
        report=gathered.report, epochs=gathered.epochs, detail=detail, topology=gathered.topology, later=gathered.later,
        output=gathered.output,
    ))  # fmt: skip


def _graph(gathered: Gathered, depth: Depth, lines: Sequence[EpochLine]) -> Graph:
    marks = marks_of(gathered.report, lines, gathered.advice.unit)
    wrong = wrong_edges(gathered.report, gathered.advice.unit)
    return graph_of(gathered.topology, depth.operators, depth.channels, marks, wrong)


def _epoch(facts: EpochFacts, checked: EpochReport | None, gathered: Gathered) -> EpochLine:
    return EpochLine(
        epoch=facts.epoch,
        status=str(facts.status),
        verdict=None if checked is None else str(checked.verdict),
        restorable=None if checked is None else facts.epoch in gathered.report.restorable,
        parent=facts.parent,
        attempt=facts.attempt,
        expected=facts.expected,
        acked=facts.acked,
        missing=tuple(map(str, facts.missing[:MISSING])),
        missing_count=len(facts.missing),
        bytes=facts.bytes,
        state_bytes=facts.state_bytes,
        state_rows=facts.state_rows,
        log_records=facts.log_records,
        triggered=facts.triggered,
        modified=None if checked is None else checked.modified,
        duration=facts.duration,
        policy=facts.policy,
        reason=facts.reason,
        times=gathered.times.get(facts.epoch),
        tags=tuple(gathered.tags.get(facts.epoch, ())),
    )


def _growths(trend: TrendPage) -> Iterator[Growth]:
    for one in (trend.total, *trend.operators[:GROWN]):
        points = one.points
        if len(points) > POINTS:
            step = (len(points) - 1) / (POINTS - 1)
            points = tuple(points[round(i * step)] for i in range(POINTS))
        if one.points:
            yield Growth(
                one.id, one.points[0].bytes, one.points[-1].bytes, one.per_day,
                tuple((point.epoch, point.bytes) for point in points),
            )  # fmt: skip
