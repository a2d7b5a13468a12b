"""A world that can be copied and compared cheaply: tasks and the coordinator are numbers in a table, and a step that
one of them has made before is looked up.

The same machines make the steps; a local step is only ever made once, however many interleavings contain it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from abscli.protocol.causal import Knowledge
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import CoordinatorAction, CoordinatorEvent, TaskEvent
from abscli.protocol.kept import KeptFrames
from abscli.protocol.policy import Policy
from abscli.sim.disk import Disk, Snapshot
from abscli.sim.local.world import LocalWorld
from abscli.sim.model import Model
from abscli.sim.task import Effect, Part, SimulatedTask
from abscli.sim.world import Limits, World
from formats.ids import ChannelId, TaskId

M = TypeVar("M", SimulatedTask, Coordinator)

_PLAIN = (int, str, bytes, tuple, frozenset, TaskId, ChannelId, Part)
_SHARED = (int, str, bytes, tuple, frozenset, TaskId, ChannelId, Model)


def frozen(value: Any) -> Any:
    """A hashable picture of plain data and of objects made of it; equal for equal content."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return frozenset([(key, frozen(item)) for key, item in value.items()])
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, Model | Snapshot | Knowledge):
        return value.key
    return (type(value).__name__, *(frozen(item) for item in _fields(value).values()))


def cloned(value: Any) -> Any:
    """A copy that shares nothing that changes."""
    if isinstance(value, dict):
        copy = type(value)()
        dict.update(copy, {key: cloned(item) for key, item in value.items()})  # a Counter's own would count
        return copy
    if isinstance(value, list):
        return [cloned(item) for item in value]
    if isinstance(value, set | bytearray):
        return type(value)(value)
    if value is None or isinstance(value, _SHARED):
        return value
    twin = object.__new__(type(value))
    for name, item in _fields(value).items():
        object.__setattr__(twin, name, cloned(item))
    return twin


def _fields(value: Any) -> dict[str, Any]:
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {name: getattr(value, name) for name in type(value).__slots__}


class Table:
    """Every machine and disk that some world is in, by number, and every step that was made."""

    def __init__(self) -> None:
        self.machines: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[tuple[int, Any], tuple[int, Any]] = {}
        self._disks: dict[Any, Disk] = {}
        self._saves: dict[tuple[Any, ...], tuple[Disk, Disk]] = {}

    def number(self, machine: SimulatedTask | Coordinator | Knowledge | KeptFrames) -> int:
        """The number of a machine in this state."""
        key = frozen(machine)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.machines)
            self.machines.append(machine)
        return number

    def step(self, number: int, event: Any, make: Callable[[Any], Any]) -> tuple[int, Any]:
        """The machine after a step, and its answer. make: the step itself, on a copy."""
        key = (number, event)
        step = self._steps.get(key)
        if step is None:
            machine = cloned(self.machines[number])
            answer = make(machine)
            step = self._steps[key] = (self.number(machine), answer)
        return step

    def saved(self, disk: Disk, change: str, *arguments: Any) -> Disk:
        """The disk after a change: one object for equal content, so that its address tells disks apart."""
        key = (id(disk), change, *arguments)
        pair = self._saves.get(key)
        if pair is None:
            after = getattr(disk, change)(*arguments)
            # The disk before is kept too: were it collected, another one could get its address, and its entries here.
            pair = self._saves[key] = (disk, self._disks.setdefault(frozen(after), after))
        return pair[1]


class InternedWorld(World):
    """A world over a table that it shares with its copies."""

    changing: tuple[str, ...] = ("tasks", "channels", "notices", "mail", "history")
    """Dictionaries that each copy has its own of."""

    def __init__(self, model: Model, policy: Policy, limits: Limits, table: Table) -> None:
        self.table = table
        super().__init__(model, policy, limits)

    def stand_in(self, machine: SimulatedTask | Coordinator) -> Any:
        return self.table.number(machine)

    def simulated(self, task: TaskId) -> SimulatedTask:
        simulated: SimulatedTask = self.table.machines[self.tasks[task]]
        return simulated

    @property
    def coordinator_now(self) -> Coordinator:
        coordinator: Coordinator = self.table.machines[self.coordinator]
        return coordinator

    def _handle(self, task: TaskId, event: TaskEvent) -> list[Effect]:
        effects: list[Effect]
        self.tasks[task], effects = self.table.step(self.tasks[task], event, lambda simulated: simulated.handle(event))
        return effects

    def _read(self, task: TaskId, count: int) -> list[Effect]:
        effects: list[Effect]
        self.tasks[task], effects = self.table.step(self.tasks[task], count, lambda simulated: simulated.read(count))
        return effects

    def _answer(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction]
        self.coordinator, actions = self.table.step(
            self.coordinator, event, lambda coordinator: coordinator.on(event)
        )
        return actions

    def save(self, change: str, *arguments: Any) -> None:
        self.disk = self.table.saved(self.disk, change, *arguments)

    def copy(self) -> Self:
        """A world that goes its own way."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in self.changing:
            setattr(twin, name, dict(getattr(self, name)))
        return twin

    def left_by_crash(self) -> tuple[Any, ...]:
        """Equal for worlds that a crash of everything makes equal."""
        disk = self.table.saved(self.disk, "next_life")
        for task in self.model.tasks:
            if task in self.model.sinks:
                disk = self.table.saved(disk, "settles", task)
        acks = tuple(mail for messages in self.mail.values() for mail in messages if mail[0] == "ack")
        return self.model.key, id(disk), self.stale, acks, self.hopeless, self.ticks

    def key(self) -> tuple[Any, ...]:
        """Equal for worlds in which the same can happen."""
        base = self.disk.base
        return (
            self.model.key,
            *self.tasks.values(),
            self.coordinator,
            id(self.disk),
            tuple(self.channels.values()),
            tuple(self.notices.values()),
            tuple(self.mail.values()),
            self.writes,
            self.manifests,
            self.stored,
            self.dead,
            self.stale,
            self.hopeless,
            (self.ticks, self.crashes, self.losses, self.lost_acks, self.timeouts, self.rescales),
            (self.finished, self.went_back),
            tuple(
                records[base.received(channel) if base else 0 :]
                for channel, records in self.history.items()
            ),
        )


class InternedLocalWorld(InternedWorld, LocalWorld):
    """The same of workers that keep schedules; what a task's states were follows from its steps."""

    changing = (
        *InternedWorld.changing, "knowledge", "kept", "carried", "cuts", "based", "again", "floors", "came", "passed",
        "states",
    )  # fmt: skip

    def keeper(self, keeper: Knowledge | KeptFrames) -> Any:
        return self.table.number(keeper)

    def known(self, worker: int) -> Knowledge:
        knowledge: Knowledge = self.table.machines[self.knowledge[worker]]
        return knowledge

    def frames(self, worker: int) -> KeptFrames:
        frames: KeptFrames = self.table.machines[self.kept[worker]]
        return frames

    def _change(self, keepers: dict[int, Any], worker: int, change: str, *arguments: Any) -> Any:
        keepers[worker], answer = self.table.step(
            keepers[worker], (change, *arguments), lambda keeper: getattr(keeper, change)(*arguments)
        )
        return answer

    def key(self) -> tuple[Any, ...]:
        return (
            *super().key(),
            *self.knowledge.values(),
            *self.kept.values(),
            *map(tuple, self.carried.values()),
            frozenset(self.cuts.items()),
            tuple(self.based.items()),
            frozenset((task, replay.at) for task, replay in self.again.items()),
            frozenset(self.floors.items()),
            frozenset(self.came.items()),
            frozenset(self.passed.items()),
            (self.gone, self.back, self.fresh),
            frozenset(self.reports.items()),
        )
