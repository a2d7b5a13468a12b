"""`abs inspect` of one epoch, for people: operators, tasks, channels and positions."""

from __future__ import annotations

from collections.abc import Sequence

from abscli.planner.repeats import may_repeat
from abscli.protocol.policy import Policy
from abscli.text.columns import UNKNOWN, clean, columns, marked, moment, not_shown, number, seconds, size, some, wrapped
from abscli.text.facts import facts
from abscli.text.inspect_page import EpochPage, Times, slowest_tasks, slowest_times
from formats.ids import edge_name
from formats.view import Position, TaskFacts, total

ROWS = 40
"""Rows of channels and positions that a table shows; json has them all."""
WIDE = 120
"""Columns from which on tables have more of them."""
TIMES = ("ALIGNING", "COPYING", "WRITING")
"""Columns of `Times`."""
SPARE = ("COPYING", "ALIGNING", "TASKS", "FILES", "CHANNELS", "WRITING", "STATE ROWS")
"""Columns that a narrow terminal does without."""


def epoch_text(
    page: EpochPage, *, width: int = 80, ascii: bool = False, own: Sequence[str] | None = None
) -> str:
    """One epoch: heading, operators, tasks where few are asked for, channels, positions, what the system itself says.

    own: that in words, of which there may be none; None: the raw facts as they are.
    """
    sections = [
        _heading(page, width, ascii),
        _operators(page, width),
        _tasks(page, width) if page.narrow else [],
        _channels(page, width) if page.narrow else _edges(page, width),
        [] if page.narrow else _logged(page, width),
        _repeats(page, width),
        _positions(page, width),
        _own(page, width, own),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _own(page: EpochPage, width: int, own: Sequence[str] | None) -> Sequence[str]:
    if not page.raw or page.narrow or own == []:
        return []
    return [f"As {page.store.format.capitalize()} says it", *(facts(page.raw, width) if own is None else own)]


def _heading(page: EpochPage, width: int, ascii: bool) -> list[str]:
    facts = page.detail.facts
    lines = wrapped(f"Epoch {facts.epoch} of {page.store.path}, job {page.store.job or UNKNOWN}", width)
    summary = [
        f"parent {UNKNOWN if facts.parent is None else facts.parent}",
        f"attempt {UNKNOWN if facts.attempt is None else facts.attempt}",
        f"policy {page.detail.policy or UNKNOWN}"
        + (" (records may repeat)" if page.detail.policy == Policy.AT_LEAST_ONCE else ""),
        f"{number(facts.acked)} of {number(facts.expected)} tasks",
        f"{size(facts.bytes)} written",
        f"triggered {moment(facts.triggered)} UTC",
    ]
    if facts.duration is not None:
        summary.append(f"took {seconds(facts.duration)}")
    lines += wrapped(", ".join(summary), width, "  ", f"{marked(facts.status, ascii)}: ")
    if facts.missing:
        lines += wrapped(some(list(map(str, facts.missing)), ROWS), width, "  ", "  missing: ")
    if facts.reason:
        lines += wrapped(facts.reason, width, "  ", "  because: ")
    return lines


def _operators(page: EpochPage, width: int) -> list[str]:
    operators = page.detail.operators
    times = slowest_times(operators)
    rows = [
        (
            op.id if op.name is None else f"{op.id} ({op.name})",
            str(op.parallelism),
            number(op.rows),
            size(op.bytes),
            *((size(op.new_bytes),) if width >= WIDE else ()),
            number(total([task.log_records for task in op.tasks])),
            *map(seconds, of),
        )
        for op, of in zip(operators, times, strict=True)
    ]
    more = ("NEW",) if width >= WIDE else ()
    header = ("OPERATOR", "TASKS", "STATE ROWS", "STATE", *more, "LOGGED", *TIMES)
    lines = columns(header, rows, "lrrr" + "r" * len(more) + "rrrr", width, SPARE)
    lines += not_shown(header, rows, width, SPARE)
    slowest = [
        f"{label.lower()} {longest['task']} {seconds(longest['seconds'])}"
        for label, longest in zip(TIMES, slowest_tasks(operators, times).values(), strict=True)
        if longest is not None
    ]
    note = "times are those of the slowest task"
    return [*lines, *wrapped(f"{note}; slowest of all: {', '.join(slowest)}" if slowest else note, width)]


def _tasks(page: EpochPage, width: int) -> list[str]:
    """A line a task; of a single one its files, too."""
    tasks = [task for op in page.detail.operators for task in op.tasks]
    rows = [
        (str(task.task), str(len(task.files)), size(total([file.bytes for file in task.files])),
         number(task.log_records), *map(seconds, _times(task)))
        for task in tasks[:ROWS]
    ]  # fmt: skip
    header = ("TASK", "FILES", "BYTES", "LOGGED", *TIMES)
    lines = columns(header, rows, "lrrrrrr", width, SPARE) if rows else []
    lines += not_shown(header, rows, width, SPARE)
    for file in tasks[0].files if len(tasks) == 1 else ():
        lines.append(f"  {clean(file.path)}")
        lines.append(f"    {size(file.bytes)}, {number(file.rows)} rows, sha256 {(file.sha256 or UNKNOWN)[:16]}")
    return lines + _left_out(len(tasks))


def _times(task: TaskFacts) -> Times:
    return Times(task.alignment, task.sync, task.async_)


def _edges(page: EpochPage, width: int) -> list[str]:
    """Channels, summed by edge."""
    rows = [
        (
            edge_name(edge.source, edge.target),
            _back(page, (edge.source, edge.target)),
            *(number(value) for value in (edge.channels, edge.sent, edge.received, edge.logged)),
        )
        for edge in page.detail.channels.edges()
    ]
    header = ("EDGE", "", "CHANNELS", "SENT", "RECEIVED", "LOGGED")
    return columns(header, rows, "llrrrr", width, SPARE) + not_shown(header, rows, width, SPARE) if rows else []


def _channels(page: EpochPage, width: int) -> list[str]:
    rows = [
        (str(c.channel), _back(page, c.edge), number(c.sent), number(c.received), number(c.logged))
        for c in page.detail.channels[:ROWS]
    ]
    lines = columns(("CHANNEL", "", "SENT", "RECEIVED", "LOGGED"), rows, "llrrr", width) if rows else []
    return lines + _left_out(len(page.detail.channels))


def _logged(page: EpochPage, width: int) -> list[str]:
    """The channels whose state at the cut is not empty."""
    logged = list(page.detail.channels.logged())
    rows = [(str(c.channel), _back(page, c.edge), number(c.logged)) for c in logged[:ROWS]]
    lines = columns(("CHANNEL STATE", "", "RECORDS"), rows, "llr", width) if rows else []
    return lines + _left_out(len(logged))


def _repeats(page: EpochPage, width: int) -> list[str]:
    """Where an at-least-once epoch holds records that come again."""
    if page.detail.policy != Policy.AT_LEAST_ONCE:
        return []
    repeats = may_repeat(page.detail.policy, page.detail.channels)
    if not repeats:
        how_many = "not known how many" if repeats is None else "none"
        return wrapped(f"at-least-once: {how_many}", width, "  ", "Records that can repeat after a restore, ")
    rows = [(str(repeat.channel), number(repeat.records)) for repeat in repeats[:ROWS]]
    return [*columns(("CAN REPEAT AFTER A RESTORE", "RECORDS"), rows, "lr", width), *_left_out(len(repeats))]


def _positions(page: EpochPage, width: int) -> list[str]:
    """A line a split; a line a task where that would be too many."""
    tasks = [task for op in page.detail.operators for task in op.tasks if task.position]
    count = sum(len(task.position or ()) for task in tasks)
    if count <= ROWS:
        marks = [(task, at.split, _place(at), at.records) for task in tasks for at in task.position or ()]
    else:
        marks = [
            (task, f"({len(at)} split{'s'[: len(at) != 1]})", number(_offsets(at)), total([one.records for one in at]))
            for task in tasks[:ROWS]
            if (at := task.position)
        ]
    rows = [
        (str(task.task), split, place, number(records), "finished" if task.finished else "")
        for task, split, place, records in marks
    ]
    lines = columns(("SOURCE", "SPLIT", "OFFSET", "RECORDS", ""), rows, "llrrl", width) if rows else []
    if count > ROWS:
        lines += wrapped(f"sums over {count:,} splits; -o json has each", width)
    return lines + (_left_out(len(tasks)) if count > ROWS else [])


def _place(at: Position) -> str:
    return number(at.offset) if at.text is None else clean(at.text)


def _offsets(positions: Sequence[Position]) -> int | None:
    return total([at.offset for at in positions])


def _back(page: EpochPage, edge: tuple[str, str]) -> str:
    return "back" if page.back is not None and edge in page.back else ""


def _left_out(count: int) -> list[str]:
    return [f"... and {count - ROWS} more; -o json has them all"] if count > ROWS else []
