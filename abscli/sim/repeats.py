"""What steps that are taken again have to lead to, in a trace of `abs run --recovery local`: all that those who went on
have of a lost task, it has sent again when it goes on."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.protocol.events import Stop
from abscli.protocol.task import Task
from formats.ids import ChannelId, TaskId


class Repeats:
    """Of one attempt. What the one side had and what the other side sent is told in any order."""

    def __init__(self) -> None:
        self._had: dict[tuple[int, ChannelId], int] = {}
        self._ends: list[tuple[int, TaskId, int, dict[ChannelId, int]]] = []

    def went_on(self, machine: Task, stop: Stop) -> None:
        """A task hears of a stop: what it has of those that restart is what it had before they do."""
        for channel, count in machine.received.items():
            if channel.sender in stop.tasks:
                self._had[stop.attempt, channel] = count

    def ended(self, number: int, machine: Task, attempt: int) -> None:
        """A task that restarted in an attempt has taken its steps again, at this line of the trace."""
        self._ends.append((number, machine.name, attempt, dict(machine.sent)))

    def shortfalls(self) -> Iterator[tuple[int, TaskId, str]]:
        """What a task that took its steps again did not come to: the line at which it went on, and in words."""
        for number, task, attempt, sent in self._ends:
            for channel, count in sent.items():
                had = self._had.get((attempt, channel), 0)
                if had > count:
                    yield number, task, f"{channel.receiver} has {had} records of {channel}, and {count} are sent again"
