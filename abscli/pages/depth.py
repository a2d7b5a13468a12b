"""One epoch whole, as a report has it: operators, tasks, states, channels, positions; long lists are cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from abscli.pages.facts import (
    ChannelsLine,
    Depth,
    OperatorLine,
    Piece,
    PositionLine,
    StateLine,
    TaskLine,
    Times,
    UnevenChannel,
)
from abscli.protocol.policy import Policy
from abscli.text.inspect_page import slowest_times
from formats.statistics import StateStatistics, skew
from formats.view import ChannelTable, EpochDetail, OperatorFacts, TaskFacts, total
from formats.watermark import lowest, watermark_text

TASKS = 300
"""Tasks that a report lists: those without a part, then the slowest."""
OPERATORS = 1_000
PIECES = 256
"""Key groups or tasks of a state."""
ALL_PIECES = 2_000
"""Of all states together."""
STATES = 200
POSITIONS = 300
UNEVEN = 50
CHANNELS_READ = 250_000
"""Channels beyond which they are only summed by edge: there may be a thousand times as many as tasks."""


def depth_of(
    detail: EpochDetail, back: frozenset[tuple[str, str]] | None, statistics: Sequence[StateStatistics] | None,
    note: str | None,
) -> Depth:  # fmt: skip
    """All of an epoch. back: its back edges, None if they are not known; statistics: of its states, None where they
    were not to be made, or could not be; note: why."""
    operators = detail.operators[:OPERATORS]
    tasks = list(_tasks(detail))
    channels, uneven, uneven_count = _channels(detail, back)
    positions = list(_positions(detail.operators))
    return Depth(
        epoch=detail.facts.epoch,
        operators=tuple(map(_operator, operators, slowest_times(operators))),
        tasks=tuple(sorted(tasks, key=_rank)[:TASKS]),
        tasks_count=len(tasks),
        states=_states(statistics or (), {one.id: one.name for one in detail.operators}),
        states_note=note,
        channels=channels,
        inconsistent_channels=uneven,
        inconsistent_channels_count=uneven_count,
        positions=tuple(positions[:POSITIONS]),
        positions_count=len(positions),
    )


def slowest(detail: EpochDetail) -> Times | None:
    """Where the time of an epoch went, by its slowest task; None where no task's time is known."""
    most, longest = -1.0, None
    for operator in detail.operators:
        for task in operator.tasks:
            spent = (task.alignment or 0.0) + (task.sync or 0.0) + (task.async_ or 0.0)
            if spent > most and (task.alignment, task.sync, task.async_) != (None, None, None):
                most, longest = spent, task
    if longest is None:
        return None
    duration = detail.facts.duration
    rest = None if duration is None else round(max(duration - most, 0.0), 6)
    return Times(str(longest.task), longest.alignment, longest.sync, longest.async_, rest)


def task_bytes(task: TaskFacts) -> int | None:
    """Of all files of its part."""
    return total([file.bytes for file in task.files])


def _operator(operator: OperatorFacts, times: tuple[float | None, float | None, float | None]) -> OperatorLine:
    logged = total([task.log_records for task in operator.tasks]) if operator.tasks else None
    sizes = [task_bytes(task) for task in operator.tasks]
    return OperatorLine(
        operator.id, operator.name, operator.parallelism, operator.bytes, operator.new_bytes, operator.rows, logged,
        skew(sizes), *times, operator.published_rows, operator.published_bytes, _watermark(operator),
        sum([task.skipped or 0 for task in operator.tasks]) or None,
    )  # fmt: skip


def _watermark(operator: OperatorFacts) -> str | None:
    """How far event time has come in all of its tasks."""
    return watermark_text(lowest(task.watermark for task in operator.tasks)) if operator.tasks else None


def _tasks(detail: EpochDetail) -> Iterable[TaskLine]:
    """Those that have a part, and those that are missing."""
    for operator in detail.operators:
        for task in operator.tasks:
            yield TaskLine(
                str(task.task), True, task_bytes(task), task.log_records, task.alignment, task.sync, task.async_,
                task.finished,
            )  # fmt: skip
    for missing in detail.facts.missing:
        yield TaskLine(str(missing), False, None, None, None, None)


def _rank(task: TaskLine) -> tuple[bool, float, int]:
    """Missing tasks first, then the slowest, then the largest."""
    return task.acked, -((task.alignment or 0.0) + (task.sync or 0.0) + (task.async_ or 0.0)), -(task.bytes or 0)


def _states(statistics: Sequence[StateStatistics], names: Mapping[str, str | None]) -> tuple[StateLine, ...]:
    """names: what people call operators."""
    rows = []
    ordered = sorted(statistics, key=lambda one: (-(one.bytes or 0), one.operator, one.state or ""))[:STATES]
    room = ALL_PIECES
    for one in ordered:
        if one.bytes is None and one.rows is None:
            by, pieces = "task", []
        elif one.groups:
            by, pieces = "key group", [Piece(g.group, g.subtask, g.rows, g.bytes) for g in one.groups]
        else:
            by, pieces = "task", [Piece(t.subtask, t.subtask, t.rows, t.bytes) for t in one.subtasks]
        pieces.sort(key=lambda piece: (-(piece.bytes or piece.rows or 0), piece.number))
        named = pieces[: min(PIECES, room)]
        room -= len(named)
        largest = one.largest_keys[0] if one.largest_keys else None
        rows.append(
            StateLine(
                one.operator, one.state, one.kind, one.method, one.rows, one.bytes, one.skew_groups, one.skew_subtasks,
                by if pieces else None, tuple(named), len(pieces),
                None if largest is None else (largest.key, largest.bytes), one.unknown, names.get(one.operator),
            )
        )  # fmt: skip
    return tuple(rows)


def _channels(
    detail: EpochDetail, back: frozenset[tuple[str, str]] | None
) -> tuple[tuple[ChannelsLine, ...], tuple[UnevenChannel, ...], int | None]:
    """Sums by edge, and single channels that do not keep the law, with how many there are; None: not looked at."""
    table: ChannelTable = detail.channels
    edges = list(table.edges())
    channels = sum(edge.channels for edge in edges)
    uneven: list[UnevenChannel] = []
    wrong: set[tuple[str, str]] = set()
    looked = channels <= CHANNELS_READ
    if looked:
        for channel in table:
            if channel.sent is None or channel.received is None or channel.logged is None:
                continue
            lost = channel.sent - channel.received - channel.logged
            goes_back = back is not None and channel.edge in back
            if lost and not (detail.policy == Policy.AT_LEAST_ONCE and not goes_back and lost < 0):
                wrong.add(channel.edge)
                uneven.append(UnevenChannel(str(channel.channel), channel.sent, channel.received, channel.logged))
    rows = [
        ChannelsLine(
            edge.source, edge.target, edge.channels, edge.sent, edge.received, edge.logged,
            None if back is None else (edge.source, edge.target) in back,
            False if (edge.source, edge.target) in wrong else
            None if not looked or None in (edge.sent, edge.received, edge.logged) else True,
        )
        for edge in edges
    ]  # fmt: skip
    return tuple(rows), tuple(uneven[:UNEVEN]), len(uneven) if looked else None


def _positions(operators: Sequence[OperatorFacts]) -> Iterable[PositionLine]:
    for operator in operators:
        for task in operator.tasks:
            for at in task.position or ():
                yield PositionLine(str(task.task), at.split, at.offset, at.records, at.text, task.finished)


