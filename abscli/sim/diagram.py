"""What happened at which task, and which message went where: a run as a space-time diagram (Lamport 1978) has it.

`abscli.text` and `abscli.draw` make text and pictures of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COORDINATOR: Final = "coordinator"
KINDS = frozenset({
    "record", "barrier", "copy", "persist", "ack", "log", "block", "unblock",
    "crash", "restore", "replayed", "commit", "trigger", "complete", "abort", "violation", "drop",
})  # fmt: skip
"""What a moment may be."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An event at a task.

    label: it in a few words.
    epoch: the one that it belongs to, if any.
    steps_again: of a restore, how many steps are taken again.
    """

    step: int
    task: str
    label: str
    kind: str
    epoch: int | None = None
    steps_again: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the event of {self.task} at step {self.step} has an unknown kind: {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message on its way.

    sent, received: steps; received None: still in flight, or lost.
    epoch: of a barrier.
    known: its receiver has had it before, and drops it by its number.
    count: of records.
    """

    sender: str
    receiver: str
    sent: int
    received: int | None
    label: str
    epoch: int | None = None
    known: bool = False
    count: int = 1

    def __post_init__(self) -> None:
        if self.received is not None and self.received < self.sent:
            raise ValueError(f"{self.label!r} is received at step {self.received}, but sent only at step {self.sent}")

    @property
    def barrier(self) -> bool:
        """It is a barrier (a marker), not a record."""
        return self.epoch is not None


@dataclass(frozen=True, slots=True)
class Diagram:
    """One run, or its end. Moments and messages name `tasks` or the coordinator; those of one step stand in order.

    groups: of each task the group that it is drawn with, such as its operator; none: each is by itself.
    """

    title: str
    tasks: tuple[str, ...]
    moments: tuple[Moment, ...]
    messages: tuple[Message, ...]
    violation: str | None
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = {*self.tasks, COORDINATOR}
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("a task appears twice in the diagram")
        if self.groups and len(self.groups) != len(self.tasks):
            raise ValueError(f"the diagram has {len(self.tasks)} tasks, but groups for {len(self.groups)} tasks")
        named = [m.task for m in self.moments] + [end for m in self.messages for end in (m.sender, m.receiver)]
        if strangers := sorted(set(named) - names):
            raise ValueError(f"the diagram has no task {strangers[0]}")

    def lines(self) -> tuple[str, ...]:
        """The tasks that have a line of their own: the coordinator first if it has any part in this."""
        ends = {m.task for m in self.moments} | {end for m in self.messages for end in (m.sender, m.receiver)}
        return (COORDINATOR, *self.tasks) if COORDINATOR in ends - set(self.tasks) else self.tasks

    def steps(self) -> list[int]:
        """All steps at which anything happens."""
        sent = {m.step for m in self.moments} | {m.sent for m in self.messages}
        return sorted(sent | {m.received for m in self.messages if m.received is not None})
