"""The machines go through what the tables of transitions say, and through all of it: in small scopes of the simulator,
in runs with failures, and in the golden scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

import pytest

from abscli.protocol import events as e
from abscli.protocol import transitions
from abscli.protocol.committer import Action, Committer, Event
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.policy import Policy
from abscli.protocol.task import Task
from abscli.protocol.transitions import EPOCH, LIFE, PART, SINK, Transition, Whose
from abscli.sim import task as sim_task
from abscli.sim import world as sim_world
from abscli.sim.campaign import Failures, mixture
from abscli.sim.explore import explore
from abscli.sim.scheduler import run
from abscli.sim.world import Limits
from tests.protocol import test_golden
from tests.support.sim.jobs import SHAPES, SMALL, model

SCOPES = [
    (name, policy, limits)
    for name in ("two inputs", "self-loop", "two-task loop")
    for policy in Policy
    for limits in (
        Limits(epochs=2, max_concurrent=2, timeouts=1),
        Limits(epochs=2, max_concurrent=2, losses=2),
    )
]


class Change(NamedTuple):
    """What an event did to one epoch, or to the coordinator."""

    before: StrEnum
    event: type
    whose: Whose
    after: StrEnum
    actions: tuple[type, ...]


Seen = dict[str, set[Change]]


def whose(event: object, epoch: int) -> Whose:
    named = getattr(event, "epoch", None)
    if named is None:
        return Whose.NONE
    return Whose.OWN if named == epoch else Whose.EARLIER if named < epoch else Whose.LATER


def kinds(actions: Iterable[object]) -> tuple[type, ...]:
    """Their types; several of one type in a row are one."""
    return tuple(kind for kind, _ in groupby(map(type, actions)))


def watch(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the machines of the simulator and of the golden scripts note what they go through."""

    class WatchedTask(Task):
        def on(self, event: e.TaskEvent) -> list[e.TaskAction]:
            named = max(getattr(event, "epoch", 0), getattr(event, "floor", 0))
            epochs = range(1, max(self.copied, named, *self._marked, *self._given_up, 0) + 1)
            before = {epoch: self.stage(epoch) for epoch in epochs}
            marked = {epoch: set(channels) for epoch, channels in self._marked.items()}

            def concerns(action: e.TaskAction, epoch: int) -> bool:
                match action:
                    case e.Log():
                        return epoch in action.epochs
                    case e.Block():
                        return whose(event, epoch) is Whose.OWN
                    case e.Unblock(channel):
                        own = whose(event, epoch) is Whose.OWN and getattr(event, "channel", "") == channel
                        return own or channel in marked.get(epoch, ())
                    case e.Process() | e.CaughtUp():
                        return False
                    case _:
                        return action.epoch == epoch

            actions = super().on(event)
            for epoch, stage in before.items():
                own = kinds(action for action in actions if concerns(action, epoch))
                change = Change(stage, type(event), whose(event, epoch), self.stage(epoch), own)
                if own or change.whose is Whose.OWN or change.after is not stage:
                    seen["part"].add(change)
            return actions

    class WatchedCoordinator(Coordinator):
        def on(self, event: e.CoordinatorEvent) -> list[e.CoordinatorAction]:
            phase = self.phase
            before = {epoch: self.stage(epoch) for epoch in range(1, self._next + 1)}
            actions = super().on(event)
            of_epochs = [a for a in actions if isinstance(a, e.Trigger | e.Store | e.Complete | e.Abort)]
            for epoch, stage in before.items():
                own = kinds(action for action in of_epochs if action.epoch == epoch)
                change = Change(stage, type(event), whose(event, epoch), self.stage(epoch), own)
                if own or change.after is not stage or (change.whose is Whose.OWN and phase is not transitions.ENDED):
                    seen["epoch"].add(change)
            others = kinds(action for action in actions if isinstance(action, e.Stop | e.Restart | e.Finish))
            waits = isinstance(event, e.Stopped | e.ChannelCaughtUp | e.TasksLost) and phase not in (
                transitions.RUNNING,
                transitions.ENDED,
            )
            if others or self.phase is not phase or waits:
                seen["life"].add(Change(phase, type(event), Whose.NONE, self.phase, others))
            return actions

    class WatchedCommitter(Committer[Any]):
        def on(self, event: Event[Any]) -> tuple[Committer[Any], tuple[Action[Any], ...]]:
            after, actions = super().on(event)
            seen["sink"].add(Change(self.stage, type(event), Whose.NONE, after.stage, kinds(actions)))
            return after, actions

    monkeypatch.setattr(test_golden, "Committer", WatchedCommitter)
    for place in (sim_task, test_golden):
        monkeypatch.setattr(place, "Task", WatchedTask)
    for place in (sim_world, test_golden):
        monkeypatch.setattr(place, "Coordinator", WatchedCoordinator)


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    changes: Seen = {"part": set(), "epoch": set(), "life": set(), "sink": set()}
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch(changes, monkeypatch)
        for name, policy, limits in SCOPES:
            explore(model(SMALL[name], 1, 1), policy, limits, most=700)
        for shape in SHAPES.values():
            for policy in Policy:
                for seed in range(8):
                    run(model(shape), policy, mixture(seed, Failures.ANY), seed)
        for script in test_golden.SCRIPTS:
            test_golden.play(script.read_text())
        yield changes


TABLES = {"part": PART, "epoch": EPOCH, "life": LIFE, "sink": SINK}


def is_row(row: Transition, change: Change) -> bool:
    return (
        change.before is row.before
        and change.event in row.events
        and change.whose is row.whose
        and change.after is row.after
        and kinds_without(change.actions, row.may) == row.actions
    )


def kinds_without(actions: tuple[type, ...], left_out: tuple[type, ...]) -> tuple[type, ...]:
    return tuple(kind for kind in actions if kind not in left_out)


@pytest.mark.integration
@pytest.mark.parametrize("table", TABLES)
def test_every_transition_seen_is_in_the_table(table: str, seen: Seen) -> None:
    strange = [change for change in seen[table] if not any(is_row(row, change) for row in TABLES[table])]
    assert not strange, "\n".join(map(str, sorted(strange, key=str)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("table", TABLES)
def test_every_transition_of_the_table_is_seen(table: str, seen: Seen) -> None:
    missing = []
    for row in TABLES[table]:
        changes = [change for change in seen[table] if is_row(row, change)]
        missing += [(row, event) for event in row.events if event not in {change.event for change in changes}]
        missing += [(row, kind) for kind in row.may if not any(kind in change.actions for change in changes)]
    assert not missing, "\n".join(f"{kind.__name__} of {row}" for row, kind in missing)


@pytest.mark.parametrize("table", TABLES)
def test_no_transition_stands_twice(table: str) -> None:
    ways = [
        (row.before, event, row.whose, row.after, row.actions) for row in TABLES[table] for event in row.events
    ]
    assert len(set(ways)) == len(ways)
