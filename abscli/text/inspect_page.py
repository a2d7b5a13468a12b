"""What `abs inspect` has to show: a store, or one of its epochs; and the form of both for scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import msgspec.structs

from abscli.planner.repeats import may_repeat
from formats.errors import NotFound, UnknownTask
from formats.ids import TaskId, operator_of
from formats.values import plain
from formats.version import FORMAT_VERSION
from formats.view import (
    ChannelFacts,
    ChannelLine,
    ChannelTable,
    CheckpointStore,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    Status,
    TaskFacts,
)
from formats.watermark import watermark_text


@dataclass(frozen=True, slots=True)
class StorePage:
    """A store.

    latest_complete: newest epoch whose files are all there by presence and size; None if it is not known which.
    candidates: epochs each of which may be that one, the latest first, if their numbers and times disagree.
    raw: what the format itself says of the whole, None where that is nothing more.
    """

    path: str
    format: str
    job: str | None
    epochs: tuple[EpochFacts, ...]
    latest_complete: int | None
    raw: dict[str, Any] | None = None
    candidates: tuple[int, ...] = ()

    @classmethod
    def of(cls, store: CheckpointStore, epochs: Sequence[EpochFacts] | None = None) -> StorePage:
        """The page of an open store. epochs: all of them, ascending, where they have been read."""
        epochs = tuple(store.epochs() if epochs is None else epochs)
        latest = next((e.epoch for e in reversed(epochs) if e.status is Status.COMPLETE), None)
        rivals = () if latest is None else store.rivals(latest)
        candidates = () if latest is None or not rivals else (*rivals, latest)
        return cls(
            store.path, store.format, store.job, epochs, None if candidates else latest, store.overview(), candidates
        )


@dataclass(frozen=True, slots=True)
class EpochPage:
    """One epoch, already narrowed to what was asked for.

    back: back edges (from, to); None if unknown.
    narrow: whether single tasks and channels are shown, in place of sums over them.
    raw: what the format itself says of the epoch; None where the page has all of it.
    """

    store: StorePage
    detail: EpochDetail
    back: frozenset[tuple[str, str]] | None
    narrow: bool = False
    raw: dict[str, Any] | None = None

    @classmethod
    def of(
        cls, store: CheckpointStore, page: StorePage, number: int | str | None, *, operator: str | None = None,
        task: str | None = None,
    ) -> EpochPage:  # fmt: skip
        """The page of an epoch of an open store, the newest complete one if none is named; UnknownTask for what it has
        not. operator, task: what it is narrowed to."""
        from abscli.graph.backedges import back_edges

        epoch = store.resolve(number)
        operator = store.operator_id(epoch, operator) if operator is not None else None
        detail = narrowed(store.detail(epoch), operator, task)
        graph = store.topology(epoch)
        raw = None
        with contextlib.suppress(NotFound):  # as of an epoch that was never completed
            raw = store.raw(epoch, detail.operators[0].id if operator or task else None)
        return cls(page, detail, back_edges(graph) if graph else None, bool(operator or task), raw)


def narrowed(detail: EpochDetail, operator: str | None, task: str | None) -> EpochDetail:
    """What concerns one operator, or one task: itself and its channels."""
    operators = {op.id: op for op in detail.operators}
    wanted = operator_of(task) if task else operator
    if wanted is None:
        return detail
    if wanted not in operators or (operator and operator != wanted):
        raise UnknownTask(
            f"epoch {detail.facts.epoch} has no {f'task {task!r}' if task else f'operator {operator!r}'}"
            + (f" of operator {operator!r}" if task and operator else ""),
            hint=f"operators: {', '.join(list(operators)[:20])}",
        )
    op = operators[wanted]
    one = _task_of(op, task) if task else None
    if one:
        op = msgspec.structs.replace(op, tasks=tuple(part for part in op.tasks if part.task == one))

    def concerns(channel: ChannelFacts) -> bool:
        if one:
            return one in (channel.channel.sender, channel.channel.receiver)
        return wanted in channel.edge

    return msgspec.structs.replace(detail, operators=(op,), channels=ChannelTable(filter(concerns, detail.channels)))


def _task_of(operator: OperatorFacts, name: str) -> TaskId:
    """The task of the operator that is called so; UnknownTask."""
    tasks = [TaskId(operator.id, i) for i in range(operator.parallelism)]
    for task in tasks:
        if str(task) == name:
            return task
    raise UnknownTask(f"no task {name!r}", hint=f"{operator.id} has the tasks {tasks[0]} to {tasks[-1]}")


def store_json(page: StorePage) -> dict[str, Any]:
    """`abs.inspect` of a store."""
    return {
        "schema": "abs.inspect",
        "version": FORMAT_VERSION,
        "store": page.path,
        "format": page.format,
        "job": page.job,
        "epochs": [_epoch(epoch) for epoch in page.epochs],
        "latest_complete": page.latest_complete,
        "candidates": list(page.candidates),
        "raw": page.raw,
    }


def epoch_json(page: EpochPage) -> dict[str, Any]:
    """`abs.inspect` of an epoch: the same, with that epoch alone, and its operators and channels (as structs)."""
    return {
        **store_json(page.store),
        "epochs": [_epoch(page.detail.facts)],
        "policy": page.detail.policy,
        "repeats": plain(may_repeat(page.detail.policy, page.detail.channels)),
        "slowest": slowest_tasks(page.detail.operators, slowest_times(page.detail.operators)),
        "operators": [_operator_line(operator) for operator in page.detail.operators],
        "channels": _channels(page),
        "raw": page.raw,
    }


def _channels(page: EpochPage) -> Sequence[ChannelLine]:
    """All of them, with whether they go back where that is known."""
    return tuple(page.detail.channels.lines(page.back))


class TaskLine(msgspec.Struct, frozen=True):
    """A task as JSON has it, under its name: see `formats.view.TaskFacts`."""

    task: str
    files: tuple[FileFacts, ...]
    log_records: int | None
    position: tuple[Position, ...] | None
    alignment: float | None
    sync: float | None
    async_: float | None = msgspec.field(name="async")
    finished: bool | None
    watermark: str | None
    skipped: int | None


class OperatorLine(msgspec.Struct, frozen=True):
    """An operator as JSON has it: see `formats.view.OperatorFacts`."""

    id: str
    name: str | None
    parallelism: int
    bytes: int | None
    rows: int | None
    tasks: list[TaskLine]
    new_bytes: int | None


def _operator_line(operator: OperatorFacts) -> OperatorLine:
    o = operator
    return OperatorLine(
        o.id, o.name, o.parallelism, o.bytes, o.rows, list(map(_task_line, o.tasks)), o.new_bytes
    )


def _task_line(task: TaskFacts) -> TaskLine:
    t = task
    return TaskLine(
        str(t.task), t.files, t.log_records, t.position, t.alignment, t.sync, t.async_, t.finished,
        watermark_text(t.watermark), t.skipped,
    )


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, and the lists, an item at a time with its type."""
    lists = {"epochs": "epoch", "operators": "operator", "channels": "channel"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, (
        {"type": kind, **msgspec.to_builtins(item)} for key, kind in lists.items() for item in result.get(key, ())
    )


def _epoch(facts: EpochFacts) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(facts, missing=()))
    result["missing"] = list(map(str, facts.missing))
    expected, acked = result.pop("expected"), result.pop("acked")
    return {**result, "tasks": {"expected": expected, "acked": acked}}


class Times(NamedTuple):
    """How long the slowest task of an operator took to align, to copy and to write; None where none is known."""

    alignment: float | None
    sync: float | None
    async_: float | None


def slowest_times(operators: Iterable[OperatorFacts]) -> list[Times]:
    """Of each operator; there may be a hundred thousand tasks, so this is done once a page."""
    return [
        Times(*(max([v for v in map(which, op.tasks) if v is not None], default=None) for which in _WHICH))
        for op in operators
    ]


def slowest_tasks(operators: Sequence[OperatorFacts], times: Sequence[Times]) -> dict[str, dict[str, Any] | None]:
    """The task that took longest to align, to copy, and to write; None where no task's time is known."""
    result: dict[str, dict[str, Any] | None] = {}
    for number, (name, which) in enumerate(zip(("alignment", "sync", "async"), _WHICH, strict=True)):
        measured = [(of[number], -i) for i, of in enumerate(times) if of[number] is not None]
        value, i = max(measured, default=(None, 0))
        slowest = next((task.task for task in operators[-i].tasks if which(task) == value), None) if measured else None
        result[name] = None if slowest is None else {"task": str(slowest), "seconds": value}
    return result


_WHICH = tuple(attrgetter(name) for name in Times._fields)
