"""Where the copies of the newest complete epoch stand in the schedules of their tasks, as the acks say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from abscli.engine.local.steps import Place
from formats.ids import ChannelId, TaskId
from formats.job.expand import task_ids
from formats.job.model import Topology


class Places:
    """Of an attempt that begins under a number."""

    def __init__(self, topology: Topology, attempt: int) -> None:
        self._topology = topology
        self._acked: dict[int, dict[TaskId, Place]] = defaultdict(dict)
        self._places: dict[TaskId, Place] = {}
        self._sent: dict[int, dict[ChannelId, int]] = defaultdict(dict)
        self._received: dict[int, dict[ChannelId, int]] = defaultdict(dict)
        self._ahead: frozenset[ChannelId] = frozenset()
        self.restart(attempt)

    def restart(self, attempt: int) -> None:
        """Every task starts from the newest complete epoch, with no steps to take again."""
        self._acked.clear()
        self._ahead = frozenset()  # where all start together the counters are the senders'
        self._places = {task: Place(attempt, 0) for task in task_ids(self._topology)}

    def acked(
        self,
        task: TaskId,
        epoch: int,
        place: tuple[int, int],
        sent: Iterable[tuple[ChannelId, int]],
        received: Iterable[tuple[ChannelId, int]],
    ) -> None:
        """A task's part of an open epoch is durable. sent, received: its counters."""
        self._acked[epoch][task] = Place(*place)
        self._sent[epoch].update(sent)
        self._received[epoch].update(received)

    def complete(self, epoch: int) -> None:
        """Every part is, and so is the manifest."""
        self._places = self._acked.pop(epoch, {})
        sent, received = self._sent.pop(epoch, {}), self._received.pop(epoch, {})
        self._ahead = frozenset(channel for channel, count in received.items() if count > sent.get(channel, 0))
        for by_epoch in (self._acked, self._sent, self._received):
            for older in [number for number in by_epoch if number < epoch]:
                del by_epoch[older]

    def of(self, task: TaskId) -> Place:
        """Of its copy of the newest complete epoch."""
        return self._places[task]

    @property
    def ahead(self) -> frozenset[ChannelId]:
        """The channels of which its receiver's copy of the newest complete epoch holds more than its sender's had
        sent."""
        return self._ahead

    def go_back(self, tasks: Iterable[TaskId], attempt: int) -> None:
        """These start from the newest complete epoch, with no steps to take again (L5)."""
        self._places.update(dict.fromkeys(tasks, Place(attempt, 0)))
