"""What `abs inspect` shows: a store as its epochs, an epoch as operators, channels and positions."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from abscli.planner.repeats import may_repeat
from abscli.protocol.policy import Policy
from abscli.render.columns import (
    UNKNOWN,
    clean,
    columns,
    marked,
    moment,
    number,
    seconds,
    size,
    some,
    wrapped,
)
from abscli.render.facts import facts
from formats.open import as_flink
from formats.view import (
    ChannelFacts,
    CheckpointStore,
    EdgeFacts,
    EpochDetail,
    EpochFacts,
    OperatorFacts,
    Status,
    TaskFacts,
)

VERSION = "1.0"
ROWS = 40
"""Rows of channels and positions that a table shows; json has them all."""
MISSING = 12
"""Missing tasks that the list of epochs names."""
WIDE = 120
"""Columns from which on tables have more of them."""

_OPEN = (Status.INCOMPLETE, Status.ABORTED, Status.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class StorePage:
    """A store. latest_complete: newest epoch whose files are all there by presence and size; raw: what the format
    itself says of the whole, None where that is nothing more."""

    path: str
    format: str
    job: str | None
    epochs: tuple[EpochFacts, ...]
    latest_complete: int | None
    raw: dict[str, Any] | None = None

    @classmethod
    def of(cls, store: CheckpointStore) -> StorePage:
        """The page of an open store."""
        epochs = tuple(store.epochs())
        latest = next((e.epoch for e in reversed(epochs) if e.status is Status.COMPLETE), None)
        flink = as_flink(store)
        return cls(store.path, store.format, store.job, epochs, latest, flink.overview() if flink is not None else None)


@dataclass(frozen=True, slots=True)
class EpochPage:
    """One epoch, already narrowed to what was asked for. back: back edges (from, to); None if unknown.

    narrow: whether single tasks and channels are shown, in place of sums over them. raw: what the format itself says
    of the epoch; None where the page has all of it.
    """

    store: StorePage
    detail: EpochDetail
    back: frozenset[tuple[str, str]] | None
    narrow: bool = False
    raw: dict[str, Any] | None = None


# -- for scripts ----------------------------------------------------------------------------------------------


def store_json(page: StorePage) -> dict[str, Any]:
    """`abs.inspect` of a store."""
    return {
        "schema": "abs.inspect",
        "version": VERSION,
        "store": page.path,
        "format": page.format,
        "job": page.job,
        "epochs": [_epoch(epoch) for epoch in page.epochs],
        "latest_complete": page.latest_complete,
        "raw": page.raw,
    }


class _Channel(msgspec.Struct):
    channel: str
    sent: int | None
    received: int | None
    logged: int | None
    back: bool | None


def epoch_json(page: EpochPage) -> dict[str, Any]:
    """`abs.inspect` of an epoch: the same, with that epoch alone, and its operators and channels (as structs)."""
    return {
        **store_json(page.store),
        "epochs": [_epoch(page.detail.facts)],
        "policy": page.detail.policy,
        "repeats": msgspec.to_builtins(may_repeat(page.detail.policy, page.detail.channels)),
        "slowest": _slowest_tasks(page.detail.operators),
        "operators": page.detail.operators,
        "channels": list(_all_channels(page)),
        "raw": page.raw,
    }


def _all_channels(page: EpochPage) -> Iterator[_Channel]:
    known: dict[str, bool | None] = {}  # whether an edge goes back, by the channel's name without its subtasks
    for c in page.detail.channels:
        sender, _, receiver = c.channel.partition("->")
        edge = f"{sender.rpartition('/')[0]}->{receiver.rpartition('/')[0]}"
        if edge not in known:
            known[edge] = _is_back(page, c)
        yield _Channel(c.channel, c.sent, c.received, c.logged, known[edge])


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, and the lists, an item at a time with its type."""
    lists = {"epochs": "epoch", "operators": "operator", "channels": "channel"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, (
        {"type": kind, **msgspec.to_builtins(item)} for key, kind in lists.items() for item in result.get(key, ())
    )


def _epoch(facts: EpochFacts) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(facts)
    expected, acked = result.pop("expected"), result.pop("acked")
    return {**result, "tasks": {"expected": expected, "acked": acked}}


def _ends(channel: ChannelFacts) -> tuple[str, str]:
    """The operators of a channel."""
    sender, _, receiver = channel.channel.partition("->")
    return sender.rpartition("/")[0], receiver.rpartition("/")[0]


def _is_back(page: EpochPage, channel: ChannelFacts) -> bool | None:
    return None if page.back is None else _ends(channel) in page.back


# -- for people -----------------------------------------------------------------------------------------------


def store_text(page: StorePage, *, width: int = 80, ascii: bool = False) -> str:
    """The list of epochs."""
    what = f"{'Store' if page.format == 'abs' else page.format.capitalize() + ' checkpoints'} {page.path}"
    lines = wrapped(f"{what}, job {page.job}" if page.job else what, width)
    if not page.epochs:
        return "\n".join([*lines, "", "No epochs yet."]) + "\n"
    wide = width >= WIDE
    rows = [
        (
            str(epoch.epoch),
            marked(epoch.status, ascii),
            UNKNOWN if epoch.parent is None else str(epoch.parent),
            UNKNOWN if epoch.attempt is None else str(epoch.attempt),
            f"{number(epoch.acked)}/{number(epoch.expected)}",
            size(epoch.bytes),
            *_held(epoch, wide),
            "-" if epoch.status in _OPEN else seconds(epoch.duration),
            moment(epoch.triggered),
        )
        for epoch in page.epochs
    ]
    more = ("STATE", "STATE ROWS", "LOGGED") if wide else ()
    header = ("EPOCH", "STATUS", "PARENT", "ATTEMPT", "ACKED", "NEW", *more, "TOOK", "TRIGGERED (UTC)")
    head, *body = columns(header, rows, f"rlrrrr{'r' * len(more)}rl", width)
    lines += ["", head]
    for epoch, line in zip(page.epochs, body, strict=True):
        lines.append(line)
        if epoch.missing:
            lines += wrapped(some(epoch.missing, MISSING), width, " " * 16, "       missing: ")
        if epoch.reason:
            lines += wrapped(epoch.reason, width, " " * 16, "       because: ")
    lines += _policies(page, width)
    return "\n".join([*lines, "", *_latest(page, width)]) + "\n"


def _held(epoch: EpochFacts, wide: bool) -> tuple[str, ...]:
    """What the epoch refers to in all; unknown of one that is not complete."""
    if not wide:
        return ()
    if epoch.status in _OPEN:
        return ("-", "-", "-")
    return (size(epoch.state_bytes), number(epoch.state_rows), number(epoch.log_records))


def _latest(page: StorePage, width: int) -> list[str]:
    """The newest complete epoch, and why none of the later ones is."""
    newest = "none" if page.latest_complete is None else str(page.latest_complete)
    lines = [f"Latest complete: {newest}"]
    later = [epoch for epoch in page.epochs if epoch.epoch > (page.latest_complete or 0)]
    for epoch in later[:MISSING]:
        lines += wrapped(f"epoch {epoch.epoch} is not: {_why_not(epoch)}", width, "    ", "  ")
    if len(later) > MISSING:
        lines.append(f"  nor are {len(later) - MISSING} more")
    unseen = sum(epoch.present is None and epoch.status is Status.COMPLETE for epoch in page.epochs)
    if page.format == "abs" and unseen:
        said = f"The files of {unseen} {'epoch' if unseen == 1 else 'epochs'} were not looked for, there are so many; "
        lines += wrapped(f"{said}`abs validate --quick` does.", width)
    return lines


def _why_not(epoch: EpochFacts) -> str:
    if epoch.status is Status.DAMAGED:
        return "it is damaged"
    if epoch.status is Status.ABORTED:
        return "it was given up"
    missing = f"{number(len(epoch.missing))} of {number(epoch.expected)} tasks have not acked"
    if epoch.status is Status.IN_PROGRESS:
        return f"it is being taken; {missing}" if epoch.missing else "it is being taken"
    return missing if epoch.missing else "it was never made complete"


def _policies(page: StorePage, width: int) -> list[str]:
    """The epochs that were not taken as usual."""
    lines: list[str] = []
    for policy in (Policy.UNALIGNED, Policy.AT_LEAST_ONCE):
        taken = [str(epoch.epoch) for epoch in page.epochs if epoch.policy == policy]
        if taken:
            more = "" if policy.exactly_once else "; records may repeat after a restore"
            lines += ["", *wrapped(f"epoch{'s'[: len(taken) != 1]} {some(taken, ROWS)}{more}", width, "  ",
                                   f"Policy {policy}: ")]  # fmt: skip
    return lines


def epoch_text(page: EpochPage, *, width: int = 80, ascii: bool = False) -> str:
    """One epoch: heading, operators, tasks where few are asked for, channels, positions."""
    sections = [
        _heading(page, width, ascii),
        _operators(page, width),
        _tasks(page, width) if page.narrow else [],
        _channels(page, width) if page.narrow else _edges(page, width),
        [] if page.narrow else _logged(page, width),
        _repeats(page, width),
        _positions(page, width),
        _own(page, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _own(page: EpochPage, width: int) -> list[str]:
    """What the format says itself, in its own words where it has some."""
    if not page.raw or page.narrow:
        return []
    if page.store.format == "spark" and "provider" in page.raw:
        from abscli.render.spark import batch_lines

        return batch_lines(page.raw, width)
    return [f"As {page.store.format.capitalize()} says it", *facts(page.raw, width)]


def _heading(page: EpochPage, width: int, ascii: bool) -> list[str]:
    facts = page.detail.facts
    lines = wrapped(f"Epoch {facts.epoch} of {page.store.path}, job {page.store.job or UNKNOWN}", width)
    said = [
        f"parent {UNKNOWN if facts.parent is None else facts.parent}",
        f"attempt {UNKNOWN if facts.attempt is None else facts.attempt}",
        f"policy {page.detail.policy or UNKNOWN}"
        + (" (records may repeat)" if page.detail.policy == Policy.AT_LEAST_ONCE else ""),
        f"{number(facts.acked)} of {number(facts.expected)} tasks",
        f"{size(facts.bytes)} written",
        f"triggered {moment(facts.triggered)} UTC",
    ]
    if facts.duration is not None:
        said.append(f"took {seconds(facts.duration)}")
    lines += wrapped(", ".join(said), width, "  ", f"{marked(facts.status, ascii)}: ")
    if facts.missing:
        lines += wrapped(some(facts.missing, ROWS), width, "  ", "  missing: ")
    if facts.reason:
        lines += wrapped(facts.reason, width, "  ", "  because: ")
    return lines


def _operators(page: EpochPage, width: int) -> list[str]:
    rows = [
        (
            op.id if op.name is None else f"{op.id} ({op.name})",
            str(op.parallelism),
            number(op.rows),
            size(op.bytes),
            *((size(op.new_bytes),) if width >= WIDE else ()),
            number(_sum(task.log_records for task in op.tasks)),
            *(seconds(_slowest(op.tasks, which)) for which in (_alignment, _sync, _async)),
        )
        for op in page.detail.operators
    ]
    more = ("NEW",) if width >= WIDE else ()
    header = ("OPERATOR", "TASKS", "STATE ROWS", "STATE", *more, "LOGGED", "ALIGNING", "COPYING", "WRITING")
    lines = columns(header, rows, "lrrr" + "r" * len(more) + "rrrr", width)
    slowest = [
        f"{what} {found['task']} {seconds(found['seconds'])}"
        for what, found in zip(("aligning", "copying", "writing"), _slowest_tasks(page.detail.operators).values(),
                               strict=True)
        if found is not None
    ]  # fmt: skip
    said = "times are those of the slowest task"
    return [*lines, *wrapped(f"{said}; slowest of all: {', '.join(slowest)}" if slowest else said, width)]


def _tasks(page: EpochPage, width: int) -> list[str]:
    lines: list[str] = []
    for task in (task for op in page.detail.operators for task in op.tasks):
        said = f"task {task.task}: {number(task.log_records)} records logged"
        times = ((_alignment, "aligning"), (_sync, "copying"), (_async, "writing"))
        said += "".join(f", {what} {seconds(which(task))}" for which, what in times)
        lines += wrapped(said, width, "  ")
        for file in task.files:
            lines.append(f"  {clean(file.path)}")
            lines.append(f"    {size(file.bytes)}, {number(file.rows)} rows, sha256 {(file.sha256 or UNKNOWN)[:16]}")
    return lines


def _edges(page: EpochPage, width: int) -> list[str]:
    """Channels, summed by edge."""
    edges = page.detail.edges if page.detail.edges is not None else _summed(page.detail.channels)
    rows = [
        (
            f"{edge.source}->{edge.target}",
            "back" if page.back is not None and (edge.source, edge.target) in page.back else "",
            *(number(value) for value in (edge.channels, edge.sent, edge.received, edge.logged)),
        )
        for edge in edges
    ]
    return columns(("EDGE", "", "CHANNELS", "SENT", "RECEIVED", "LOGGED"), rows, "llrrrr", width) if rows else []


def _summed(channels: Iterable[ChannelFacts]) -> list[EdgeFacts]:
    by_edge: dict[tuple[str, str], list[ChannelFacts]] = {}
    for channel in channels:
        by_edge.setdefault(_ends(channel), []).append(channel)
    return [
        EdgeFacts(*ends, len(of), _sum(c.sent for c in of), _sum(c.received for c in of), _sum(c.logged for c in of))
        for ends, of in by_edge.items()
    ]


def _channels(page: EpochPage, width: int) -> list[str]:
    rows = [
        (c.channel, "back" if _is_back(page, c) else "", number(c.sent), number(c.received), number(c.logged))
        for c in page.detail.channels[:ROWS]
    ]
    lines = columns(("CHANNEL", "", "SENT", "RECEIVED", "LOGGED"), rows, "llrrr", width) if rows else []
    return lines + _left_out(len(page.detail.channels))


def _logged(page: EpochPage, width: int) -> list[str]:
    """The channels whose state at the cut is not empty."""
    logged = [channel for channel in page.detail.channels if channel.logged]
    rows = [(c.channel, "back" if _is_back(page, c) else "", number(c.logged)) for c in logged]
    lines = columns(("CHANNEL STATE", "", "RECORDS"), rows[:ROWS], "llr", width) if rows else []
    return lines + _left_out(len(rows))


def _repeats(page: EpochPage, width: int) -> list[str]:
    """Where an at-least-once epoch holds records that come again."""
    if page.detail.policy != Policy.AT_LEAST_ONCE:
        return []
    repeats = may_repeat(page.detail.policy, page.detail.channels)
    if not repeats:
        how_many = "not known how many" if repeats is None else "none"
        return wrapped(f"at-least-once: {how_many}", width, "  ", "Records that can repeat after a restore, ")
    rows = [(repeat.channel, number(repeat.records)) for repeat in repeats[:ROWS]]
    return [*columns(("CAN REPEAT AFTER A RESTORE", "RECORDS"), rows, "lr", width), *_left_out(len(repeats))]


def _positions(page: EpochPage, width: int) -> list[str]:
    rows = [
        (task.task, at.split, number(at.offset), number(at.records), "finished" if task.finished else "")
        for op in page.detail.operators
        for task in op.tasks
        for at in task.position or ()
    ]
    lines = columns(("SOURCE", "SPLIT", "OFFSET", "RECORDS", ""), rows[:ROWS], "llrrl", width) if rows else []
    return lines + _left_out(len(rows))


def _left_out(count: int) -> list[str]:
    return [f"... and {count - ROWS} more; -o json has them all"] if count > ROWS else []


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum([v for v in known if v is not None])


_alignment = operator.attrgetter("alignment")
_sync = operator.attrgetter("sync")
_async = operator.attrgetter("async_")


def _slowest(tasks: Sequence[TaskFacts], which: Callable[[TaskFacts], float | None]) -> float | None:
    values = list(map(which, tasks))
    return max([value for value in values if value is not None], default=None)


def _slowest_tasks(operators: Iterable[OperatorFacts]) -> dict[str, dict[str, Any] | None]:
    """The task that took longest to align, to copy, and to write; None where no task's time is known."""
    result: dict[str, dict[str, Any] | None] = {"alignment": None, "sync": None, "async": None}
    tasks = [op.tasks for op in operators]
    for name, which in (("alignment", _alignment), ("sync", _sync), ("async", _async)):
        known = [(value, i) for i, of in enumerate(tasks) if (value := _slowest(of, which)) is not None]
        if known:
            value, i = max(known, key=lambda pair: (pair[0], -pair[1]))
            task = next(task.task for task in tasks[i] if which(task) == value)
            result[name] = {"task": task, "seconds": value}
    return result


def next_commands(page: StorePage) -> list[str]:
    """What to type next, for the store as it stands."""
    store = shlex.quote(page.path)
    if any(epoch.status is Status.IN_PROGRESS for epoch in page.epochs):
        return [f"abs inspect {store} --watch"]
    if page.latest_complete is None:
        return [f"abs validate {store}"] if page.epochs else []
    if page.format == "flink":
        return [f"abs validate {store}"]
    return [f"abs validate {store}", f"abs plan-recovery {store}@{page.latest_complete} --out plan.json"]
