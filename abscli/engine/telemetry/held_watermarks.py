"""Name the input that holds the watermark back while other inputs go on: windows then stay open for as long."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from abscli.engine.sources.making import ROW_FILES
from abscli.engine.telemetry.news import WatermarkHeld, WatermarkReleased
from abscli.graph.timed import waits_for_time
from formats.job.event_time import EventTime, event_time_of
from formats.job.following import follows
from formats.job.kafka import is_kafka
from formats.job.model import Kind, Operator, Topology
from formats.native.facts import PartFacts
from formats.watermark import lowest

K = TypeVar("K")

QUIET_SECONDS: Final = 10.0
"""Seconds without rows after which an input is reported to hold back the watermark."""
AGAIN_SECONDS: Final = 600.0
"""Seconds from one report about an input to the next."""


class Split(NamedTuple):
    """A split of a source, such as a file or a partition.

    It stands for all splits of a task if they follow each other in time, or if there are none. Then `name` names the
    task, and is empty if the source has only one.
    """

    source: str
    task: int
    name: str


class Reading(NamedTuple):
    """The position of a split; see `Position`."""

    records: int
    event_time: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A value, and the time since which it is the same."""

    value: object
    since: float


class HeldWatermarks:
    """Find held watermarks of one attempt. clock: seconds, monotonic."""

    def __init__(self, topology: Topology, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sources = sources_by_operator(topology)
        self._suspects = suspects_of(topology)
        self._operators = {op.id: op for op in topology.operators}
        self._splits: dict[Split, Changed] = {}
        self._watermarks: dict[str, Changed] = {}
        self._held: dict[str, tuple[float, bool]] = {}
        self._told: dict[str, float] = {}

    def note(
        self, parts: Iterable[PartFacts], waiting: Collection[str] = ()
    ) -> Iterator[WatermarkHeld | WatermarkReleased]:
        """Take the parts of a complete epoch, and yield what is to be reported.

        waiting: sources that wait for a server: that is reported by itself.
        """
        if not self._suspects:
            return
        now, parts = self._clock(), list(parts)
        self._splits = _since(dict(self._readings(parts)), self._splits, now)
        self._watermarks = _since(dict(self._own_watermarks(parts)), self._watermarks, now)
        held: dict[str, list[tuple[str, float]]] = {}
        holders: dict[str, set[Split]] = {}
        for operator, changed in self._watermarks.items():
            if now - changed.since < QUIET_SECONDS or not _has_rows(parts, operator):
                continue
            for split in self._holders(operator, changed.value):
                if split.source not in waiting:
                    holders.setdefault(split.source, set()).add(split)
                    held.setdefault(split.source, []).append((operator, changed.since))
        yield from self._changes(held, holders, now)

    def _changes(
        self, held: Mapping[str, list[tuple[str, float]]], holders: Mapping[str, set[Split]], now: float
    ) -> Iterator[WatermarkHeld | WatermarkReleased]:
        for source in [source for source in self._held if source not in held]:
            since, is_told = self._held.pop(source)
            yield WatermarkReleased(source, now - since, is_told=is_told)
        for source, waits in held.items():
            if source not in self._held:
                since = min(since for _, since in waits)
                is_told = source not in self._told or now - self._told[source] >= AGAIN_SECONDS
                self._held[source] = since, is_told
                if is_told:
                    self._told[source] = now
                names = tuple(sorted(split.name for split in holders[source] if split.name))
                operators = tuple(dict.fromkeys(operator for operator, _ in waits))
                yield WatermarkHeld(source, names, operators, now - since, is_told=is_told)

    def _readings(self, parts: Iterable[PartFacts]) -> Iterator[tuple[Split, Reading]]:
        sources = set().union(*self._sources.values())
        for part in parts:
            if part.operator not in sources or part.finished:
                continue
            op, number, positions = self._operators[part.operator], part.task.subtask, part.positions or ()
            if _is_ordered(op) or (not positions and not is_kafka(op)):
                times = [at.event_time for at in positions if at.event_time is not None]
                name = f"task {number}" if op.parallelism > 1 else ""
                read = sum(at.records or 0 for at in positions)
                yield Split(op.id, number, name), Reading(read, max(times, default=None))
            else:
                for at in positions:
                    yield Split(op.id, number, at.split), Reading(at.records or 0, at.event_time)

    def _own_watermarks(self, parts: Iterable[PartFacts]) -> Iterator[tuple[str, int | None]]:
        of_each: dict[str, list[int | None]] = {}
        for part in parts:
            if part.operator in self._sources:
                of_each.setdefault(part.operator, []).append(part.watermark)
        yield from ((operator, lowest(watermarks)) for operator, watermarks in of_each.items())

    def _holders(self, operator: str, watermark: object) -> Iterator[Split]:
        """Yield the splits that keep an operator's watermark where it is.

        Such a split has had no rows for a while when another one had some. So there is none if all are idle.
        """
        above = {split: changed for split, changed in self._splits.items() if split.source in self._sources[operator]}
        latest = max((changed.since for changed in above.values()), default=0.0)
        for split, changed in above.items():
            event_time = self._suspects.get(split.source)
            if event_time is None or latest - changed.since < QUIET_SECONDS:
                continue
            assert isinstance(changed.value, Reading)
            if is_lowest(changed.value.event_time, event_time.delay, watermark):
                yield split


def is_lowest(event_time: int | None, delay: int, watermark: object) -> bool:
    """Tell whether a split with this latest event time lets a watermark come no further. Times in microseconds."""
    if event_time is None:
        return True
    return isinstance(watermark, int) and event_time - delay <= watermark


def sources_by_operator(topology: Topology) -> dict[str, frozenset[str]]:
    """Return the sources upstream of each operator that waits for event time."""
    upstream: dict[str, list[str]] = {op.id: [] for op in topology.operators}
    for edge in topology.edges:
        upstream[edge.target].append(edge.source)
    kinds = {op.id: op.kind for op in topology.operators}
    found = {}
    for op in topology.operators:
        if waits_for_time(op) is None:
            continue
        above, stack = {op.id}, [op.id]
        while stack:
            for id in upstream[stack.pop()]:
                if id not in above:
                    above.add(id)
                    stack.append(id)
        found[op.id] = frozenset(id for id in above if kinds[id] is Kind.SOURCE)
    return found


def suspects_of(topology: Topology) -> dict[str, EventTime]:
    """Return the event time of the sources that can hold a watermark back without an end: followed, without `idle`."""
    wanted = set().union(*sources_by_operator(topology).values())
    times = {op.id: event_time_of(op) for op in topology.operators if op.id in wanted and follows(op)}
    return {id: event_time for id, event_time in times.items() if event_time is not None and event_time.idle is None}


def _is_ordered(source: Operator) -> bool:
    """Tell whether the splits of a task follow each other in time: by its options, or since no file of it grows."""
    event_time = event_time_of(source)
    return (event_time is not None and event_time.ordered) or (source.connector or {})["type"] in ROW_FILES


def _has_rows(parts: Iterable[PartFacts], operator: str) -> bool:
    """Tell whether an operator has rows that wait for the watermark."""
    return any(part.rows for part in parts if part.operator == operator)


def _since(values: Mapping[K, object], before: Mapping[K, Changed], now: float) -> dict[K, Changed]:
    """Return since when each value is the same."""
    return {
        key: before[key] if key in before and before[key].value == value else Changed(value, now)
        for key, value in values.items()
    }
