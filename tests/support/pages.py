"""What a report is made of, of any size, without a store; and a page taken apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from abscli.pages.depth import slowest
from abscli.pages.resume import Maker
from abscli.pages.store_report import Gathered
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.text.statistics import TrendPage
from abscli.text.validate import Advice
from formats.ids import ChannelId, TaskId
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from formats.statistics import GroupSize, StateStatistics, SubtaskSize
from formats.view import (
    ChannelFacts,
    ChannelTable,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    Status,
    TaskFacts,
)

SOURCE, MIDDLE, SINK = "lines", "counts", "printed"
MAKER = Maker("abs 0.0.0", "2026-01-02T12:00:00.000Z", lambda at: 60)
"""The maker of reports: at noon in UTC, an hour later by local time."""
DAMAGED_EVERY = 97
"""Every so many epochs one is damaged."""


def operators(names: tuple[str, str, str], tasks: int, epoch: int) -> tuple[OperatorFacts, ...]:
    """A source and a sink of one task, and between them the others, with state that grows."""
    source, middle, sink = names

    def task(operator: str, i: int, files: tuple[FileFacts, ...] = (), **facts: object) -> TaskFacts:
        times = 0.001 + i % 7 / 1000, 0.0005, 0.002 + i % 11 / 1000
        return TaskFacts(TaskId(operator, i), files, 0, None, *times, False)

    at = (Position("in/a.txt", 1000 * epoch, 10 * epoch),)
    first = TaskFacts(TaskId(source, 0), (), 0, at, 0.0, 0.0005, 0.001, False)
    parts = tuple(
        task(middle, i, (FileFacts(f"epochs/{epoch}/{i}.parquet", 5_000 + epoch + 40 * (i % 13), 50 + i % 13, None),))
        for i in range(tasks - 2)
    )
    size = sum(part.files[0].bytes or 0 for part in parts)
    return (
        OperatorFacts(source, None, 1, 0, 0, (first,), 0),
        OperatorFacts(middle, None, tasks - 2, size, 50 * tasks, parts, size // 10),
        OperatorFacts(sink, None, 1, 0, 0, (task(sink, 0),), 0),
    )


def gathered(
    epochs: int, tasks: int = 100, *, names: tuple[str, str, str] = (SOURCE, MIDDLE, SINK), job: str = "synthetic",
    path: str = "snapshots", message: str = "has 3 bytes, the manifest says 4", groups: int = 128,
) -> Gathered:  # fmt: skip
    """What is read of a store of so many epochs and tasks; names: of its operators."""
    _, middle, _ = names
    facts, reports, times, grown, detail = [], [], {}, [], None
    for number in range(1, epochs + 1):
        damaged = number % DAMAGED_EVERY == 0
        one = EpochFacts(
            number, Status.DAMAGED if damaged else Status.COMPLETE, number - 1, 1 + number // 300, tasks, tasks, (),
            200_000 + 13 * number, f"2026-01-02T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
            0.2 + number % 50 / 100, message if damaged else None, "aligned", 600_000 + 98 * number, 5_000 + number, 0,
            not damaged,
        )  # fmt: skip
        facts.append(one)
        wrong = (Finding(Code.SIZE_MISMATCH, TaskId(middle, 0), None, f"epochs/{number}/{middle}.parquet", message),)
        verdict = Status.DAMAGED if damaged else Status.COMPLETE
        reports.append(EpochReport(number, verdict, wrong if damaged else (), (Code.DIGEST_MISMATCH,), one.triggered))
        detail = EpochDetail(one, operators(names, tasks, number), channels(names, tasks, number), "aligned")
        if not damaged:
            times[number] = slowest(detail)
            grown.append((number, one.triggered, detail.operators))
    whole = tuple(report.epoch for report in reports if report.whole)
    statistics = StateStatistics(
        middle, None, "keyed", "read", 5_000, 620_000, None,
        tuple(SubtaskSize(i, 50, 6_200) for i in range(tasks - 2)),
        tuple(GroupSize(i, i % max(tasks - 2, 1), 40 + i % 9, 4_800 + 90 * (i % 9)) for i in range(groups)),
        1.2, 1.1, (), (),
    )  # fmt: skip
    return Gathered(
        path=path, format="abs", job=job, named=None, quick=True, maker=MAKER,
        report=StoreReport(tuple(reports), (), (), whole), advice=Advice("Store"), epochs=facts, times=times,
        detail=detail, topology=_topology(names, tasks, job), statistics=(statistics,) if epochs else None,
        growth=TrendPage.over(path, "abs", job, grown) if grown else None, next=[f"abs validate {path}"],
    )  # fmt: skip


def channels(names: tuple[str, str, str], tasks: int, epoch: int) -> ChannelTable:
    """All of them, with as much received as was sent."""
    source, middle, sink = names
    joined = [
        (TaskId(source, 0), TaskId(middle, i)) for i in range(tasks - 2)
    ] + [(TaskId(middle, i), TaskId(sink, 0)) for i in range(tasks - 2)]  # fmt: skip
    return ChannelTable(ChannelFacts(ChannelId(*ends), 10 * epoch, 10 * epoch, 0) for ends in joined)


def _topology(names: tuple[str, str, str], tasks: int, job: str) -> Topology:
    source, middle, sink = names
    return Topology(
        job,
        (Operator(source, Kind.SOURCE, 1, 1024), Operator(middle, Kind.REDUCE, max(tasks - 2, 1), 1024),
         Operator(sink, Kind.SINK, 1, 1024)),
        (Edge(source, middle, Partition.HASH, ("word",)), Edge(middle, sink, Partition.REBALANCE)),
    )  # fmt: skip


@dataclass
class Taken(HTMLParser):
    """A page taken apart: its tags with their attributes, ids, and the texts of its scripts and styles."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: str | None = None

    @classmethod
    def of(cls, page: bytes) -> Taken:
        taken = cls()
        taken.feed(page.decode("utf-8"))
        taken.close()
        return taken

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open = "facts" if ("id", "facts") in attrs else tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is None:
            self.shown.append(data)
        else:
            self.texts.setdefault(self._open, []).append(data)

    @property
    def ids(self) -> list[str]:
        """All anchors."""
        return [value for _, attributes in self.tags if (value := attributes.get("id"))]

    @property
    def text(self) -> str:
        """What stands on the page."""
        return "".join(self.shown)
