"""What machines see and do, as plain values: one line a step, so that it can be held against the machines afterwards.

Every machine that is made has a life of its own. Its lines are numbered: the first says with what it was made, the
others what it was told and what it answered, the last, where it was not lost, what it had counted. Batches are left
out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, get_args

from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import CoordinatorAction, CoordinatorEvent, TaskAction, TaskEvent
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from formats.ids import ChannelId, TaskId

Plain = dict[str, Any]
Tell = Callable[[Plain], None]
"""Takes a line."""

SCHEMA = "abs.trace"
COORDINATOR = "coordinator"

_task: Callable[[str], TaskId] = functools.lru_cache(maxsize=None)(TaskId.parse)
_channel: Callable[[str], ChannelId] = functools.lru_cache(maxsize=None)(ChannelId.parse)


def _same(value: Any) -> Any:
    return value


def _of_type(*types: type) -> Callable[[Any], Any]:
    """Return a reader that accepts values of these types only, and raises TypeError for others."""

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise TypeError(f"{str(value)[:80]!r} is not of type {types[0].__name__}")
        return value

    return read


_integer, _flag, _text = _of_type(int), _of_type(bool), _of_type(str)
_optional_integer = _of_type(int, type(None))


def _texts(ids: Iterable[object]) -> list[str]:
    return sorted(map(str, ids))


def _counts(counts: Mapping[ChannelId, int]) -> dict[str, int]:
    return {str(channel): count for channel, count in counts.items()}


def _read_counts(counts: Mapping[str, Any]) -> dict[ChannelId, int]:
    return {_channel(name): _integer(count) for name, count in counts.items()}


_WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (_same, _integer),
    "int | None": (_same, _optional_integer),
    "bool": (_same, _flag),
    "str": (_same, _text),
    "TaskId": (str, _task),
    "ChannelId": (str, _channel),
    "tuple[int, ...]": (list, lambda numbers: tuple(map(_integer, numbers))),
    "frozenset[TaskId]": (_texts, lambda names: frozenset(map(_task, names))),
    "frozenset[ChannelId]": (_texts, lambda names: frozenset(map(_channel, names))),
    "Mapping[ChannelId, int]": (_counts, _read_counts),
}
"""To a plain value and back, by the type that a field is declared with."""

OPAQUE = "object"
"""The declared type of what is left out."""

KINDS: dict[str, type] = {
    kind.__name__: kind
    for union in (TaskEvent, TaskAction, CoordinatorEvent, CoordinatorAction)
    for kind in get_args(union)
}


_FIELDS = {
    kind: tuple((f.name, *_WAYS[str(f.type)]) for f in fields(kind) if f.type != OPAQUE) for kind in KINDS.values()
}


def plain(value: Any) -> list[Any]:
    """An event or action: its name, and its fields."""
    kind = type(value)
    given = {name: write(getattr(value, name)) for name, write, _ in _FIELDS[kind]}
    if given.get("watermark", 0) is None:  # as in traces of before there were any
        del given["watermark"]
    return [kind.__name__, given]


def parsed(value: Any) -> Any:
    """The event or action that `plain` made this of; ValueError for anything else."""
    try:
        name, given = value
        kind = KINDS[name]
        return kind(**{field: read(given[field]) for field, _, read in _FIELDS[kind] if field in given})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"is not an event or action: {str(value)[:80]}") from error


class TracedTask(Task):
    """A task whose steps are told. attempt: in which it starts; life: no other machine has it; again: it begins with
    steps that it took before, up to a stop of that attempt or a later one."""

    def __init__(
        self,
        name: TaskId,
        inputs: Iterable[ChannelId],
        outputs: Iterable[ChannelId],
        back: Iterable[ChannelId] = (),
        *,
        tell: Tell,
        life: str,
        attempt: int,
        again: bool = False,
        policy: Policy = Policy.ALIGNED,
        first_epoch: int = 1,
        sent: Mapping[ChannelId, int] | None = None,
        received: Mapping[ChannelId, int] | None = None,
        finished: bool = False,
        watermark: int | None = None,
    ) -> None:
        super().__init__(
            name, inputs, outputs, back, policy=policy, first_epoch=first_epoch, sent=sent, received=received,
            finished=finished, watermark=watermark,
        )  # fmt: skip
        self._line = _numbered(tell, str(name), life)
        self._line(created={
            "inputs": [str(channel) for channel in self.inputs],
            "outputs": [str(channel) for channel in self.outputs],
            "back": _texts(self.back),
            "policy": str(policy),
            "first_epoch": first_epoch,
            "sent": _counts(self.sent),
            "received": _counts(self.received),
            "finished": finished,
            "watermark": watermark,
            "attempt": attempt,
            "replaying": again,
        })  # fmt: skip

    def on(self, event: TaskEvent) -> list[TaskAction]:
        actions = super().on(event)
        self._line(event=plain(event), actions=[plain(action) for action in actions])
        return actions

    def leave(self) -> None:
        """Its life ends as it should."""
        self._line(final_counts={"sent": _counts(self.sent), "received": _counts(self.received)})


class TracedCoordinator(Coordinator):
    """A coordinator whose steps are told."""

    def __init__(self, tasks: Iterable[TaskId], sources: Iterable[TaskId], *, tell: Tell, **options: Any) -> None:
        tasks, sources = tuple(tasks), tuple(sources)
        super().__init__(tasks, sources, **options)
        self._line = _numbered(tell, COORDINATOR, COORDINATOR)
        ended = _texts(options.get("ended", ()))
        self._line(created={**options, "tasks": _texts(tasks), "sources": _texts(sources), "ended": ended})

    def leave(self) -> None:
        """Its life ends as it should."""
        self._line(final_counts={})

    def on(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        actions = super().on(event)
        self._line(event=plain(event), actions=[plain(action) for action in actions])
        return actions


def _numbered(tell: Tell, at: str, life: str) -> Callable[..., None]:
    number = -1

    def line(**content: Any) -> None:
        nonlocal number
        number += 1
        tell({"at": at, "instance": life, "sequence": number, **content})

    return line


def task_of(name: str, made: Plain) -> Task:
    """The task as it was made; ValueError for what none is made with."""
    try:
        return Task(
            _task(name),
            map(_channel, made["inputs"]),
            map(_channel, made["outputs"]),
            map(_channel, made["back"]),
            policy=Policy(made["policy"]),
            first_epoch=_integer(made["first_epoch"]),
            sent=_read_counts(made["sent"]),
            received=_read_counts(made["received"]),
            finished=_flag(made["finished"]),
            watermark=_optional_integer(made.get("watermark")),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"is not a task: {error}") from error


def coordinator_of(made: Plain) -> Coordinator:
    """The coordinator as it was made; ValueError for what none is made with."""
    try:
        given = dict(made)
        tasks, sources, ended = (map(_task, given.pop(name)) for name in ("tasks", "sources", "ended"))
        numbers = {name: _text(value) if name == "until" else _integer(value) for name, value in given.items()}
        return Coordinator(tasks, sources, ended=ended, **numbers)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"is not a coordinator: {error}") from error
