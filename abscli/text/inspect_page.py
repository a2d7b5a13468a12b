"""What `abs inspect` has to show: a store, or one of its epochs; and the form of both for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from abscli.planner.repeats import may_repeat
from formats.view import ChannelFacts, CheckpointStore, EpochDetail, EpochFacts, OperatorFacts, Status

VERSION = "1.0"


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
        return cls(store.path, store.format, store.job, epochs, latest, store.overview())


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


def epoch_json(page: EpochPage) -> dict[str, Any]:
    """`abs.inspect` of an epoch: the same, with that epoch alone, and its operators and channels (as structs)."""
    return {
        **store_json(page.store),
        "epochs": [_epoch(page.detail.facts)],
        "policy": page.detail.policy,
        "repeats": msgspec.to_builtins(may_repeat(page.detail.policy, page.detail.channels)),
        "slowest": slowest_tasks(page.detail.operators, slowest_times(page.detail.operators)),
        "operators": page.detail.operators,
        "channels": _channels(page),
        "raw": page.raw,
    }


def _channels(page: EpochPage) -> Sequence[ChannelFacts]:
    """All of them, with whether they go back where that is known."""
    channels = page.detail.channels
    if page.back is None:
        return tuple(channels)
    return channels.marked(page.back)


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
    for name, which, of in zip(("alignment", "sync", "async"), _WHICH, zip(*times, strict=True), strict=True):
        measured = [(value, -i) for i, value in enumerate(of) if value is not None]
        value, i = max(measured, default=(None, 0))
        slowest = next((task.task for task in operators[-i].tasks if which(task) == value), None) if measured else None
        result[name] = None if slowest is None else {"task": slowest, "seconds": value}
    return result


_WHICH = tuple(attrgetter(name) for name in Times._fields)
