"""What `abs inspect --stats` and `--trend` show: where the bytes of an epoch are, and how they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from abscli.text.columns import UNKNOWN, columns, moment, not_shown, number, size, wrapped
from formats.statistics import FILES, PARTITIONS, SAMPLED, Large, StateStatistics
from formats.timestamps import unix_time
from formats.version import FORMAT_VERSION
from formats.view import CheckpointStore, OperatorFacts, Status

SHOWN = 3
"""Key groups, keys and values of a state that are named; json has more."""
UNEVEN = 2.0
"""Times the median from which on the largest key groups are named."""
SPARE = ("KIND", "BY TASK", "LARGEST VALUE", "LARGEST KEY")
"""Columns that a narrow terminal does without."""
FEW = 10
"""Rows a key group below which it is chance that they are uneven."""
CELL = 32
"""Characters of a key in the lines of a state."""


@dataclass(frozen=True, slots=True)
class StatisticsPage:
    """Statistics of an epoch. taken: when it was, RFC 3339, None if that is not known; ttl: in seconds, as asked."""

    path: str
    format: str
    job: str | None
    epoch: int
    taken: str | None
    ttl: float | None
    states: Sequence[StateStatistics]


def text(page: StatisticsPage, *, width: int = 80) -> str:
    """A line a state, the largest first, then what is special of each."""
    lines = wrapped(f"Epoch {page.epoch} of {page.path}: where the bytes are", width)
    if not page.states:
        return "\n".join([*lines, "", "No state."]) + "\n"
    states = sorted(page.states, key=lambda state: -(state.bytes or 0))
    rows = [
        (
            state.operator,
            state.state or "-",
            state.kind,
            _about(state, number(state.rows)),
            _about(state, size(state.bytes)),
            _times(state.skew_groups),
            _times(state.skew_subtasks),
            size(state.largest_keys[0].bytes) if state.largest_keys else "-" if state.largest_keys == () else UNKNOWN,
            size(state.largest_values[0].bytes) if state.largest_values else (
                "-" if state.largest_values == () else UNKNOWN
            ),
        )
        for state in states
    ]  # fmt: skip
    header = ("OPERATOR", "STATE", "KIND", "ROWS", "BYTES", "SKEW", "BY TASK", "LARGEST KEY", "LARGEST VALUE")
    lines += ["", *columns(header, rows, "lllrrrrrr", width, SPARE), *not_shown(header, rows, width, SPARE)]
    for state in states:
        if more := list(_details(state, page.ttl, width)):
            lines += ["", *wrapped(f"{state.operator} {state.state or ''}".rstrip(), width), *more]
    return "\n".join([*lines, "", *_legend(page.states, width)]) + "\n"


def _details(state: StateStatistics, ttl: float | None, width: int) -> Iterator[str]:
    """What is uneven, large, old or due of a state."""
    if (state.skew_groups or 0.0) >= UNEVEN and state.groups and (state.rows or 0) >= FEW * len(state.groups):
        top = sorted(state.groups, key=lambda group: -(group.rows or 0))[:SHOWN]
        parts = [
            f"{group.group} (task {group.subtask}) {number(group.rows)} rows, {size(group.bytes)}" for group in top
        ]
        yield from wrapped("; ".join(parts), width, "    ", "  key groups: ")
    if _outlier(state.largest_keys, state):
        yield from wrapped("; ".join(map(_large, (state.largest_keys or ())[:SHOWN])), width, "    ", "  keys: ")
    if _outlier(state.largest_values, state):
        yield from wrapped("; ".join(map(_large, (state.largest_values or ())[:SHOWN])), width, "    ", "  values: ")
    if state.ttl is not None:
        ages = f"last access {_at(state.ttl.oldest)} to {_at(state.ttl.newest)}, median {_at(state.ttl.median)}"
        expired = "the time to live is not stored: --ttl tells which share is expired" if ttl is None else (
            f"expired {100 * state.ttl.expired:.1f} %" if state.ttl.expired is not None else "expired: not known"
        )  # fmt: skip
        yield from wrapped(f"{ages}; {expired}", width, "    ", "  ttl: ")
    if state.timers is not None:
        span = f"due {_at(state.timers.first)} to {_at(state.timers.last)}, median {_at(state.timers.median)}"
        by = ", ".join(f"{due.when} {number(due.timers)}" for due in state.timers.by or () if due.timers)
        yield from wrapped(f"{span}{'; ' * bool(by)}{by}", width, "    ", "  timers: ")
    if state.expiry is not None:
        share = "expired: not known" if state.expiry.expired is None else f"expired {100 * state.expiry.expired:.1f} %"
        span = f"expires {_at(state.expiry.first)} to {_at(state.expiry.last)}, median {_at(state.expiry.median)}"
        by = ", ".join(f"{one.when} {number(one.rows)}" for one in (state.expiry.by or ())[1:] if one.rows)
        yield from wrapped(f"{span}; {share}{'; ' * bool(by)}{by}", width, "    ", "  ttl: ")
    if state.sample is not None:
        sample = state.sample
        amount = f"{number(sample.read)} of about {number(sample.of)} {sample.units}, {size(sample.bytes)}"
        yield from wrapped(amount, width, "    ", "  sampled: ")
    if state.unknown is not None and state.method != FILES:
        yield from wrapped(state.unknown, width, "    ", "  not known: ")


def _outlier(large: Sequence[Large] | None, state: StateStatistics) -> bool:
    """Whether the largest is many times the mean, so that it is worth a line."""
    return bool(large and state.rows and state.bytes and large[0].bytes > 10 * state.bytes / state.rows)


def _large(one: Large) -> str:
    name = one.key if len(one.key) <= CELL else one.key[: CELL - 1] + "…"
    rows = f", {number(one.rows)} rows" if one.rows > 1 else ""
    group = "" if one.group is None else f", key group {one.group}"
    return f"{name} {size(one.bytes)}{rows}{group}"


def _legend(states: Sequence[StateStatistics], width: int) -> list[str]:
    lines = []
    if any(state.skew_groups is not None for state in states):
        lines += wrapped("SKEW: rows of the largest key group to the median; BY TASK likewise.", width)
    sampled = [state.sample.units if state.sample is not None else None for state in states if state.method == SAMPLED]
    if PARTITIONS in sampled:
        what = "~ estimated: some partitions were read, the others go by what their files say and by their bytes."
        lines += wrapped(what, width)
    if any(units != PARTITIONS for units in sampled):
        what = "~ estimated from a sample: RocksDB counts versions of keys, so that what is not compacted counts twice."
        lines += wrapped(what, width)
    if any(state.method == FILES for state in states):
        what = "By files, not read: a key that was changed may count several times; keys and key groups are unknown."
        lines += wrapped(what, width)
    return lines


def _about(state: StateStatistics, shown: str) -> str:
    return f"~{shown}" if state.method == SAMPLED and shown != UNKNOWN else shown


def _times(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}x"


def _at(milliseconds: int) -> str:
    """A time; those that no calendar has, such as that of the last window, as a number."""
    try:
        return moment(datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat())
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def to_json(page: StatisticsPage) -> dict[str, Any]:
    """`abs.statistics`."""
    return {
        "schema": "abs.statistics",
        "version": FORMAT_VERSION,
        "store": page.path,
        "format": page.format,
        "job": page.job,
        "epoch": page.epoch,
        "as_of": page.taken,
        "ttl": page.ttl,
        "states": msgspec.to_builtins(page.states),
    }


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a state, or an operator of a trend, a line."""
    lists = {"states": "state", "operators": "operator"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, ({"type": kind, **item} for key, kind in lists.items() for item in result.get(key, ()))


# -- trend ------------------------------------------------------------------------------------------------


class Point(msgspec.Struct, frozen=True):
    """An operator in an epoch. written: RFC 3339; bytes, rows: of its state; None where that is not known."""

    epoch: int
    written: str | None
    bytes: int | None
    rows: int | None


class Growth(msgspec.Struct, frozen=True):
    """How the state of an operator grew. per_day: bytes a day from the first to the last; None if not known."""

    id: str
    points: tuple[Point, ...]
    per_day: float | None


@dataclass(frozen=True, slots=True)
class TrendPage:
    """All complete epochs of a store. operators: the largest first, the sum of all at the end."""

    path: str
    format: str
    job: str | None
    operators: tuple[Growth, ...]
    total: Growth

    @classmethod
    def of(cls, store: CheckpointStore) -> TrendPage:
        """The trend over the epochs of an open store that are complete."""
        complete = [epoch.epoch for epoch in store.epochs() if epoch.status is Status.COMPLETE]
        epochs = ((number, store.written(number), store.detail(number).operators) for number in complete)
        return cls.over(store.path, store.format, store.job, epochs)

    @classmethod
    def over(
        cls, path: str, format: str, job: str | None, epochs: Iterable[tuple[int, str | None, Sequence[OperatorFacts]]]
    ) -> TrendPage:
        """The trend over complete epochs, ascending: number, when it was written, operators."""
        by_operator: dict[str, list[Point]] = {}
        totals = []
        for epoch, written, operators in epochs:
            for operator in operators:
                point = Point(epoch, written, operator.bytes, operator.rows)
                by_operator.setdefault(operator.id, []).append(point)
            sums = [[op.bytes for op in operators], [op.rows for op in operators]]
            totals.append(Point(epoch, written, *map(_sum, sums)))
        grown = [Growth(name, tuple(points), _per_day(points)) for name, points in by_operator.items()]
        grown = [one for one in grown if any(point.bytes for point in one.points)]
        grown.sort(key=lambda one: -(one.points[-1].bytes or 0))
        return cls(path, format, job, tuple(grown), Growth("", tuple(totals), _per_day(totals)))


def _sum(values: Sequence[int | None]) -> int | None:
    return None if not values or all(value is None for value in values) else sum(value or 0 for value in values)


def _per_day(points: Sequence[Point]) -> float | None:
    dated = [
        (at, point.bytes) for point in points
        if point.bytes is not None and (at := unix_time(point.written)) is not None
    ]  # fmt: skip
    if len(dated) < 2:
        return None
    (began, first), (ended, last) = dated[0], dated[-1]
    days = (ended - began) / 86400
    return round((last - first) / days, 3) if days > 0 else None


def trend_text(page: TrendPage, *, width: int = 80) -> str:
    """A line an epoch with the sum, then a line an operator: first, last, growth."""
    lines = wrapped(f"{page.path}: {len(page.total.points)} complete epochs, by the bytes of their state", width)
    if not page.total.points:
        return "\n".join([*lines, "", "No complete epochs yet."]) + "\n"
    rows = [(str(p.epoch), moment(p.written), size(p.bytes), number(p.rows)) for p in page.total.points]
    header = ("EPOCH", "WRITTEN (UTC)", "STATE", "ROWS")
    lines += ["", *columns(header, rows, "rlrr", width)]
    grown = [
        (one.id or "all", size(one.points[0].bytes), size(one.points[-1].bytes), _change(one), _rate(one.per_day))
        for one in (*page.operators, page.total)
    ]
    first, last = page.total.points[0].epoch, page.total.points[-1].epoch
    titles = ("OPERATOR", f"EPOCH {first}", f"EPOCH {last}", "GREW", "A DAY")
    lines += ["", *columns(titles, grown, "lrrrr", width, spare=(titles[1],))]
    return "\n".join(lines) + "\n"


def _change(one: Growth) -> str:
    first, last = one.points[0].bytes, one.points[-1].bytes
    if first is None or last is None or not first:
        return UNKNOWN
    return f"{100 * (last - first) / first:+.1f} %"


def _rate(per_day: float | None) -> str:
    if per_day is None:
        return UNKNOWN
    return f"{'-' * (per_day < 0) or '+'}{size(round(abs(per_day)))}"


def trend_json(page: TrendPage) -> dict[str, Any]:
    """`abs.trend`."""
    return {
        "schema": "abs.trend",
        "version": FORMAT_VERSION,
        "store": page.path,
        "format": page.format,
        "job": page.job,
        "operators": msgspec.to_builtins(page.operators),
        "total": {"points": msgspec.to_builtins(page.total.points), "per_day": page.total.per_day},
    }
