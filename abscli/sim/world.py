"""The whole simulated job, and what may go wrong in it: crashes, losses of tasks, timeouts, lost acks.

A crash takes everything and the job starts again from the disk (a full recovery). A loss takes one task and what the
planner says must restart with it; the others go on (a live partial recovery, rule 10).
"""

from __future__ import annotations

from abscli.protocol.events import PeersRestarted, TasksLost, TimedOut
from abscli.sim.job import Job, Step
from abscli.sim.losses import recovery_of
from abscli.sim.rescale import may_rescale, rescaled, with_parallelism
from abscli.sim.task import Counts, Item

WIDTHS = (1, 2, 3)
"""Parallelisms that a rescale tries."""


class World(Job):
    """A job to which all that its limits allow may happen."""

    def possible(self) -> list[Step]:
        """The failures that may still happen now."""
        steps: list[Step] = []
        coordinator = self.coordinator_now
        if self.crashes:
            steps.append(("crash",))
        if self.rescales and self.disk.last:
            widths = {op.id: op.parallelism for op in self.model.topology.operators if may_rescale(self.model, op.id)}
            steps += [("rescale", id, p) for id, width in widths.items() for p in WIDTHS if p != width]
        if self.losses:
            steps += [("lose", task) for task in self.model.tasks if task not in self.dead]
        if self.lost_acks:
            steps += [("lose-ack", task) for task, mail in self.mail.items() if mail and mail[0][0] == "ack"]
        late = coordinator.open_epochs[:1] if self.timeouts else ()
        steps += [("time-out", epoch) for epoch in coordinator.open_epochs if epoch in late or epoch in self.hopeless]
        return steps + [("stale", i) for i in range(len(self.stale))]

    def fail(self, step: Step) -> None:
        """Let a failure happen; ValueError if it is none."""
        match step:
            case ("time-out", epoch):
                self.timeouts -= epoch not in self.hopeless
                self.ask(TimedOut(epoch))
            case ("lose-ack", task):
                self.lost_acks -= 1
                self.hopeless |= {self.mail[task][0][1]}
                self.mail[task] = self.mail[task][1:]
            case ("crash",):
                self.crashes -= 1
                self.crash()
            case ("rescale", operator, parallelism):
                self.rescales -= 1
                self.rescale(operator, parallelism)
            case ("lose", task):
                self.losses -= 1
                self.lose(task)
            case _:
                raise ValueError(f"no step {step}")

    def crash(self) -> None:
        """The coordinator and all tasks die; acks that were on their way may still arrive in the next life."""
        self.stale += tuple(
            (kind, (task, what), attempt)
            for task, messages in self.mail.items()
            for kind, what, attempt in messages
            if kind == "ack"
        )
        self.went_back = True
        self.begin()

    def rescale(self, operator: str, parallelism: int) -> None:
        """The job dies and is restored with another parallelism, where its logs can be taken over."""
        model = with_parallelism(self.model, operator, parallelism)
        base = self.disk.base
        snapshot = rescaled(self.model, model, base) if base else None
        if snapshot is None:
            return
        for task in self.model.tasks:
            if task in self.model.sinks:
                self.save("settles", task)
        self.save("rescaled", snapshot)
        self.model = model
        self.history = {name: snapshot.log(name, c.receiver) for name, c in model.channels.items()}
        self.crash()

    def lose(self, task: str) -> None:
        """A task dies, and with it what the planner says must restart; the coordinator hears of it by and by."""
        lost, replayed = recovery_of(self.model, task)
        self.went_back = True
        self._kill(lost)
        self.mail["detector"] += (("lost", TasksLost(lost, replayed), 0),)

    def _kill(self, tasks: frozenset[str]) -> None:
        self.dead |= tasks
        self.writes = tuple(part for part in self.writes if part.task not in tasks)
        for name in tasks:
            self.notices[name] = ()

    def stop(self, attempt: int, tasks: frozenset[str], floor: int) -> None:
        """Those that restart send nothing any more, also where they still run; the others hear of it."""
        self._kill(tasks)
        base = self.disk.base
        for task in self.model.tasks:
            if task in tasks:
                continue
            replayed = Counts(
                (c.name, base.sent(c.name) if base else 0) for c in self.model.inputs[task] if c.sender in tasks
            )
            self.notices[task] += (PeersRestarted(attempt, floor, replayed),)

    def restart(self, attempt: int, tasks: frozenset[str]) -> None:
        """The lost tasks start from the newest complete epoch, their channels with what belongs on them."""
        base = self.disk.base
        first = self.disk.begun + 1
        self.dead -= tasks
        for task in self.model.tasks:
            if task in tasks:
                self.notices[task] = ()
                self.start(task, attempt, first)
        for name, channel in self.model.channels.items():
            if channel.receiver not in tasks:
                continue
            if channel.sender in tasks:
                self.refill(name)
            else:  # a replayable edge: the survivor's output since the epoch comes from its own log
                known = base.received(name, channel.receiver) if base else 0
                self.channels[name] = tuple(
                    Item(known + 1 + i, record) for i, record in enumerate(self.history[name][known:])
                )
