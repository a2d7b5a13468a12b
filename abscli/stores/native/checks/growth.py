"""Growth: what a task did between an epoch and its parent adds up, from source positions to committed rows.

Within a generation, for every task of both epochs:

    counters, skipped records and watermarks never decrease
    sources:  records read = records sent, on each edge
    sinks:    records received - records skipped = rows of the parts that the epoch newly names

Positions of sources count the records that were parsed, so a record that the source skipped is not among those read.

Together with conservation (`conservation`), a record that a source has read is then counted on every edge that it
took, and is a row of a part. The last two laws are not applied under at-least-once, where records may repeat, nor is
the first to what was received. The law of sources needs positions with record counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from abscli.report.findings import Code, Finding
from formats.ids import TaskId
from formats.job.model import Edge, Kind, Partition, Topology
from formats.native.facts import PartFacts
from formats.native.sink import epoch_of_part

EXACT_POLICIES = frozenset({"aligned", "unaligned"})


class Totals(NamedTuple):
    """What a task had done by an epoch, since the generation began.

    sent, received: as in `PartFacts`.
    records: that a source has read; None if a position does not count records, and for other tasks.
    """

    sent: Mapping[str, Sequence[int]]
    received: Mapping[str, Sequence[int]]
    records: int | None
    skipped: int
    watermark: int | None


def totals_of(part: PartFacts) -> Totals:
    """Return the totals of one task."""
    return Totals(part.sent, part.received, _records(part), part.skipped, part.watermark)


def _records(part: PartFacts) -> int | None:
    counts = [position.records for position in part.positions or ()]
    return None if part.positions is None or None in counts else sum(count or 0 for count in counts)


def check_growth(
    topology: Topology, parent: int, before: Mapping[TaskId, Totals], parts: Sequence[PartFacts], *, exact: bool
) -> Iterator[Finding]:
    """Compare the parts of an epoch with the totals of its parent, which is of the same generation.

    parent: the number of the parent.
    before: its totals, by task.
    exact: whether both epochs were taken under one of `EXACT_POLICIES`.
    """
    kinds = {op.id: op.kind for op in topology.operators}
    for part in parts:
        then = before.get(part.task)
        if then is None:
            continue
        now = totals_of(part)
        messages = list(_decreases(then, now, exact=exact))
        if exact and not messages:
            if kinds.get(part.operator) is Kind.SOURCE:
                messages += _source([edge for edge in topology.edges if edge.source == part.operator], then, now)
            elif kinds.get(part.operator) is Kind.SINK:
                messages += _sink(parent, part, then, now)
        for message in messages:
            yield Finding(Code.CONSERVATION, part.task, None, None, f"{message} since its parent, epoch {parent}")


def _decreases(then: Totals, now: Totals, *, exact: bool) -> Iterator[str]:
    """Describe each number that is lower than it was. exact: as in `check_growth`."""
    counters = [("sent to", then.sent, now.sent)]
    if exact:  # else a restore sets what was received to what was sent, which can be less: records came twice
        counters.append(("received from", then.received, now.received))
    for title, was, at in counters:
        for neighbour, counts in was.items():
            for index, (low, high) in enumerate(zip(counts, at.get(neighbour, ()), strict=False)):
                if high < low:
                    yield f"records {title} {neighbour} on channel {index} went down from {low} to {high}"
    if now.skipped < then.skipped:
        yield f"skipped records went down from {then.skipped} to {now.skipped}"
    if then.watermark is not None and now.watermark is not None and now.watermark < then.watermark:
        yield f"the watermark went down from {then.watermark} to {now.watermark}"


def _source(edges: Sequence[Edge], then: Totals, now: Totals) -> Iterator[str]:
    """Compare what a source read with what it sent on each edge."""
    if then.records is None or now.records is None:
        return
    read = now.records - then.records
    targets = [edge.target for edge in edges]
    for edge in edges:
        if isinstance(edge.output, str) or targets.count(edge.target) > 1:
            continue  # a side output, or counters that several edges share
        grown = _grown(then.sent.get(edge.target, ()), now.sent.get(edge.target, ()))
        if edge.partition is Partition.BROADCAST:
            if any(count != read for count in grown):
                yield f"{read} records were read, and {', '.join(map(str, grown))} sent to {edge.target}"
        elif sum(grown) != read:
            yield f"{read} records were read, and {sum(grown)} sent to {edge.target}"


def _sink(parent: int, part: PartFacts, then: Totals, now: Totals) -> Iterator[str]:
    """Compare what a sink received with the rows of the parts that it newly names."""
    received = sum(sum(_grown(then.received.get(id, ()), counts)) for id, counts in now.received.items())
    received -= now.skipped - then.skipped
    rows = sum(file.rows for file in part.sink if epoch_of_part(file.name) > parent)
    if rows != received:
        yield f"{received} records were received, and parts with {rows} rows are named"


def _grown(then: Sequence[int], now: Sequence[int]) -> list[int]:
    """Return by how much each counter grew. Counters of channels that are not there are reported by `conservation`."""
    return [after - before for after, before in zip_longest(now, then, fillvalue=0)]
