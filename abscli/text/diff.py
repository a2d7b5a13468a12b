"""What `abs diff` shows: operators with their keys, positions, logs, the job graphs; and single changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from abscli.diff.epochs import FilesDiff, LogDiff, Mark, OperatorDiff, PositionDiff, TopologyDiff
from abscli.text.columns import UNKNOWN, clean, columns, counted, not_shown, number, size, wrapped
from formats.ids import TaskId
from formats.values import plain
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 40
"""Positions, logs and changes that a table shows; json has them all."""


@dataclass(frozen=True, slots=True)
class End:
    """One side of a comparison."""

    store: str
    format: str
    job: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class DiffPage:
    """A whole comparison.

    left: the epoch that is compared.
    right: the epoch that it is compared with.
    operators: their state.
    positions: of sources, split by split.
    logs: of channels.
    topology: what differs between the graphs.
    files: what each refers to, where the system tells.
    graph: what `topology` is about.
    """

    left: End
    right: End
    operators: Sequence[OperatorDiff]
    positions: Sequence[PositionDiff]
    logs: Sequence[LogDiff]
    topology: Sequence[TopologyDiff]
    files: FilesDiff | None = None
    graph: str = "Job graph"

    @property
    def identical(self) -> bool | None:
        """Whether nothing differs at all; None if something could not be compared and nothing else differs."""
        differs = (
            bool(self.topology)
            or any(p.before != p.after for p in self.positions)
            or any(log.before != log.after or log.same is False for log in self.logs)
            or any(op.change in ("added", "removed", "changed") for op in self.operators)
        )
        if differs:
            return False
        unknown = any(op.change == "unknown" for op in self.operators) or any(
            log.before is None or log.same is None for log in self.logs
        )
        return None if unknown else True


# -- for scripts ----------------------------------------------------------------------------------------------


def header(left: End, right: End) -> dict[str, Any]:
    """What stands once, and is known before anything is compared."""
    return {"schema": "abs.diff", "version": FORMAT_VERSION, "from": _end(left), "to": _end(right)}


def to_json(page: DiffPage, rows: Sequence[Mapping[str, Any]] | None = None, out: str | None = None) -> dict[str, Any]:
    """`abs.diff`. rows: the changes, where they were asked for and are not in a file."""
    return {
        **header(page.left, page.right),
        "identical": page.identical,
        "operators": msgspec.to_builtins(page.operators),
        "positions": plain(page.positions),
        "logs": plain(page.logs),
        "topology": msgspec.to_builtins(page.topology),
        "raw": msgspec.to_builtins(page.files),
        "rows": None if rows is None else list(rows),
        "out": out,
    }


def items(page: DiffPage) -> Iterator[dict[str, Any]]:
    """The lists an item a line, for ndjson, and at the end whether anything differs."""
    lists = {"operator": page.operators, "position": page.positions, "log": page.logs, "topology": page.topology}
    for kind, entries in lists.items():
        for item in entries:
            yield {"type": kind, **plain(item)}
    yield {"type": "result", "identical": page.identical, **_raw(page)}


def _raw(page: DiffPage) -> dict[str, Any]:
    return {} if page.files is None else {"raw": msgspec.to_builtins(page.files)}


def _end(end: End) -> dict[str, Any]:
    return {"store": end.store, "format": end.format, "job": end.job, "epoch": end.epoch}


def row_items(operator: str, state: str | None, table: pa.Table) -> Iterator[dict[str, Any]]:
    """Single changes as JSON has them."""
    for row in table.to_pylist():
        yield {"operator": operator, "state": state, **plain(row)}


# -- for people -----------------------------------------------------------------------------------------------


def text(
    page: DiffPage, rows: Sequence[Mapping[str, Any]] = (), *, width: int = 80, verbose: bool = False
) -> str:
    """Return the comparison: the verdict, then what differs; one line if nothing does.

    rows: the first few changed keys; verbose: list unchanged states, too.
    """
    if page.identical and not verbose:
        return "\n".join(wrapped(f"Identical: {_sides(page)}.", width)) + "\n"
    sections = [
        _heading(page, width),
        _operators(page, width, verbose),
        _rows(rows, width),
        _positions(page, width),
        _logs(page, width),
        _topology(page, width),
        _files(page, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _files(page: DiffPage, width: int) -> list[str]:
    """Files by whether both refer to them, where the system tells."""
    files = page.files
    if files is None:
        return []
    counts = {"shared": files.shared, "new": files.new, "removed": files.removed}
    parts = [f"{number(count.files)} {name} ({size(count.bytes)})" for name, count in counts.items()]
    changes = {"state size": files.state_size, "checkpointed size": files.checkpointed_size}
    sizes = [f"{name} {size(change.before)} -> {size(change.after)}" for name, change in changes.items()]
    return [*wrapped(", ".join(parts), width, "  ", "Files: "), *wrapped(", ".join(sizes), width, "  ", "Sizes: ")]


def _heading(page: DiffPage, width: int) -> list[str]:
    verdicts = {
        True: "Identical: the same state, positions, logs and job graph.",
        False: "They differ.",
        None: "No difference found, but not everything could be compared.",
    }
    lines = [
        line
        for lead, end in (("from ", page.left), ("to   ", page.right))
        for line in wrapped(f"epoch {end.epoch} of {end.store}, job {end.job or UNKNOWN}", width, "     ", lead)
    ]
    return [verdicts[page.identical], "", *lines]


def _sides(page: DiffPage) -> str:
    """Return both sides, in one clause."""
    return f"epoch {page.left.epoch} of {page.left.store} and epoch {page.right.epoch} of {page.right.store}"


def _operators(page: DiffPage, width: int, verbose: bool) -> list[str]:
    rows, notes, alike = [], [], 0
    for op in page.operators:
        for state in op.states:
            name = f"{op.id} {state.state}" if state.state else op.id
            counts = (state.added, state.removed, state.changed, state.unchanged)
            mine = {True: "changed", False: "unchanged", None: "unknown"}[state.differs]
            is_ = mine if op.change in ("changed", "unchanged", "unknown") else op.change
            if is_ == "unchanged" and not verbose:
                alike += 1
            else:
                rows.append((name, is_, *(number(value) for value in counts)))
            if state.note:
                notes += wrapped(f"{name}: {state.note}", width, "  ")
    stateless = [op for op in page.operators if not op.states and op.change in ("added", "removed")]
    rows += [(op.id, op.change, "-", "-", "-", "-") for op in stateless]
    if not rows and not alike:
        return ["Neither has state."]
    same = [f"{counted(alike, 'state')} unchanged (-v lists {'it' if alike == 1 else 'them'})"] if alike else []
    if not rows:
        return [*same, *notes]
    header = ("STATE OF", "IS", "ADDED", "REMOVED", "CHANGED", "UNCHANGED")
    return [*columns(header, rows, "llrrrr", width), *same, *notes]


def _rows(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    lines = []
    for row in rows[:ROWS]:
        mark = {"added": "+", "removed": "-", "changed": "~"}[row["change"]]
        values = " -> ".join(_values(row[side]) for side in ("from", "to") if row[side] is not None)
        lines.append(clean(f"{mark} {row['operator']} {_values(row['key'])}" + (f": {values}" if values else "")))
    if len(rows) > ROWS:
        lines.append("... and more; -o ndjson and --out have them all")
    return lines


def _values(value: Any) -> str:
    if not isinstance(value, Mapping):
        return "-" if value is None else str(value)
    return " ".join(f"{name}={json.dumps(item, ensure_ascii=False)}" for name, item in value.items())


def _positions(page: DiffPage, width: int) -> list[str]:
    """A line a split that moved; a line a task where that would be too many."""
    moved = [at for at in page.positions if at.before != at.after]
    if len(moved) <= ROWS:
        rows = [
            (
                str(at.task), at.split,
                _place(at.before), _place(at.after),
                _signed(at.moved.offset), _signed(at.moved.records),
            )
            for at in moved
        ]  # fmt: skip
    else:
        tasks: dict[TaskId, list[PositionDiff]] = {}
        for at in moved:
            tasks.setdefault(at.task, []).append(at)
        rows = [
            (
                str(task), f"({len(mine)} split{'s'[: len(mine) != 1]})",
                number(_sum(at.before.offset if at.before else 0 for at in mine)),
                number(_sum(at.after.offset if at.after else 0 for at in mine)),
                _signed(_sum(at.moved.offset for at in mine)), _signed(_sum(at.moved.records for at in mine)),
            )
            for task, mine in tasks.items()
        ]  # fmt: skip
    still = len(page.positions) - len(moved)
    header = ("SOURCE", "SPLIT", "FROM", "TO", "MOVED", "RECORDS")
    in_words = any(mark is not None and mark.text is not None for at in moved for mark in (at.before, at.after))
    spare = ("MOVED", "RECORDS") if in_words else ("FROM", "TO")
    lines = columns(header, rows[:ROWS], "llrrrr", width, spare) + not_shown(header, rows[:ROWS], width, spare)
    lines = lines if rows else []
    if len(moved) > ROWS:
        lines += wrapped(f"sums over {len(moved):,} splits; -o json has each", width)
    if len(rows) > ROWS:
        lines.append(f"... and {len(rows) - ROWS} more; -o json has them all")
    if still:
        lines.append(f"{still:,} {'position' if still == 1 else 'positions'} did not move")
    return lines


def _place(mark: Mark | None) -> str:
    if mark is None:
        return "-"
    return number(mark.offset) if mark.text is None else clean(mark.text)


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = list(values)
    return None if None in numbers else sum(value for value in numbers if value is not None)


def _signed(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:+,}"


def _logs(page: DiffPage, width: int) -> list[str]:
    records = {True: "same", False: "differs", None: UNKNOWN}
    rows = [(str(log.channel), number(log.before), number(log.after), records[log.same]) for log in page.logs]
    lines = columns(("LOG OF", "FROM", "TO", "RECORDS"), rows[:ROWS], "lrrl", width) if rows else []
    return [*lines, f"... and {len(rows) - ROWS} more; -o json has them all"] if len(rows) > ROWS else lines


def _topology(page: DiffPage, width: int) -> list[str]:
    if not page.topology:
        return []
    title = f"{page.graph}, and what it means for restoring the first epoch's state into the second's job"
    lines = wrapped(title, width)
    for diff in page.topology:
        both = f"{UNKNOWN if diff.before is None else diff.before} -> {UNKNOWN if diff.after is None else diff.after}"
        change = both if diff.before is not None and diff.after is not None else diff.after or diff.before or ""
        subject = f"{diff.subject}: " if diff.subject else ""
        lines += wrapped(f"{subject}{diff.change.replace('-', ' ')} {change}", width, "    ", "  ")
        lines += wrapped(diff.impact, width, "    ", "    restore: ")
    return lines
