"""Losses and restarts at work: who is silent or gone is lost, what that takes with it stops and starts again, and those
who are there are told when all are. What restarts is decided in `recovering`, in which order in `protocol`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from abscli.engine.channels.messages import (
    Again,
    Differed,
    Failed,
    Go,
    Patience,
    Start,
    StopTasks,
    TasksStopped,
    Throttle,
    Unheard,
)
from abscli.engine.errors import EngineError, EngineStopped, JobFailed, UsageError
from abscli.engine.journal import Journal
from abscli.engine.local.ledger import Pieces
from abscli.engine.local.places import Places
from abscli.engine.losses.absence import Endpoint, explain, restoring, waiting_for
from abscli.engine.losses.crew import Crew
from abscli.engine.losses.decisions import (
    Loss,
    Restarting,
    Restarts,
    Scope,
    Subtasks,
    Unrecovered,
    all_tasks,
    alone,
    by_operator,
    count_of,
    everything,
    merged,
    of_worker,
    reads_in_vain,
    restarting,
    texts,
)
from abscli.engine.losses.silence import Apart, Complaints, Pair, Stalls, unresponsive
from abscli.engine.telemetry.news import HeardAgain, News, Recovered, Recovering, Silent, WorkersAwaited
from abscli.engine.telemetry.wait_reports import FIRST_SECONDS, next_report
from abscli.planner.placement import subtasks_of
from abscli.planner.ranges import Ranges
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import CoordinatorEvent, ProtocolError, Restart, Stop, Stopped, TasksLost
from formats.ids import ChannelId, TaskId
from formats.job.model import Topology

RENDEZVOUS_SECONDS = 60.0
REPLACEMENT_SECONDS = 25.0
"""For workers that are started in place of lost ones."""

GATHER_SECONDS = 0.05
"""Workers of one host are lost together, and are heard of one after the other."""


@dataclass(slots=True)
class Restarted:
    """Tasks that are about to start, from the coordinator's word on until every worker is ready.

    again: whether they take again the steps that they took since that epoch.
    told: whether the workers have heard of it; until all are there, they have not.
    told_at: when they did, by the clock of `time.monotonic`.
    ready: the workers that are.
    """

    attempt: int
    subtasks: dict[str, Ranges]
    epoch: int
    floor: int
    again: bool = False
    told: bool = False
    told_at: float = 0.0
    ready: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ties:
    """Connects the handling of losses with the rest of a coordinator.

    do: tell the machine, and do what it says.
    records: that a worker had said it has read; None where it has said nothing.
    epochs: completed so far.
    abandon: end the job with this error.
    failed: a launch (worker, launch, error) has ended; called from other threads.
    driver: where the coordinator listens, as workers reach it.
    """

    do: Callable[[CoordinatorEvent], None]
    records: Callable[[int], int | None]
    epochs: Callable[[], int]
    abandon: Callable[[EngineError], None]
    failed: Callable[[int, int, EngineError], None]
    on_news: Callable[[News], None]
    driver: Endpoint


class Losses:
    """The crew of an attempt as it shrinks and grows. scope: what restarts; restarts: how often that may be; patience:
    for workers that are not heard of.

    running: from the moment when all were ready for the first time.
    pauses_sources: whether sources have to pause, because a worker is unresponsive or has failed and all of them would
    read the same records again.
    """

    def __init__(
        self, coordinator: Coordinator, journal: Journal, topology: Topology, crew: Crew, ties: Ties, *, scope: Scope,
        restarts: int, patience: Patience,
    ) -> None:  # fmt: skip
        self.running = False
        self.pauses_sources = False
        self._unresponsive: frozenset[int] = frozenset()
        self._coordinator = coordinator
        self._journal = journal
        self._topology = topology
        self._crew = crew
        self._ties = ties
        self._scope = scope
        self._restarts = Restarts(restarts)
        self._starting: Restarted | None = Restarted(
            coordinator.attempt, everything(topology), coordinator.last_complete, coordinator.next_number
        )
        self._floor = coordinator.next_number
        self._restarted_in: dict[TaskId, int] = {}
        self._held: list[msgspec.Struct] = []
        self._losses: dict[int, Loss] = {}
        self._gathered_at = float("inf")
        self._launch_at: dict[int, float] = {}
        self._awaited_since = time.monotonic()
        self._report_at = FIRST_SECONDS
        self._unrecovered: Unrecovered | None = None
        self._recoveries = 0
        self.places = Places(topology, coordinator.attempt)
        self._again = False
        self._all_restart = False
        self._lost: Subtasks = {}
        self._back: frozenset[TaskId] = frozenset()
        self._reports: dict[int, bytes] = {}
        self._unreported: set[int] = set()
        self._repeating: set[int] = set()
        self._pieces = Pieces(topology)
        self._patience = patience
        self._complaints = Complaints(patience)
        self._stalls = Stalls()
        self._apart: set[frozenset[str]] = set()

    @property
    def settled(self) -> bool:
        """Tell whether all workers have connected, and no recovery is running."""
        return self._unrecovered is None and not self._losses and self._crew.complete

    @property
    def is_starting(self) -> bool:
        """Tell whether tasks are about to start, and not all workers are ready."""
        return self._starting is not None

    # -- time ---------------------------------------------------------------------------------------------

    @property
    def moments(self) -> Iterable[float]:
        """Return the times at which something is due without a message."""
        return [self._gathered_at, *self._launch_at.values()]

    def begin(self) -> None:
        """Launch all workers for the first time."""
        self._awaited_since = time.monotonic()
        for number in range(self._crew.size):
            self._crew.launch(number, self._ties.failed)

    def end_recovery(self) -> None:
        """Report the end of a recovery, when all that was lost has caught up."""
        if self._unrecovered is None or self._starting is not None or self._repeating or self._coordinator.recovering:
            return
        done, self._unrecovered = self._unrecovered, None
        self._apart.clear()
        recovery = done.ended(self._topology, time.monotonic())
        self._journal.recovered(recovery)
        self._ties.on_news(Recovered(recovery))

    def keep_crew(self) -> None:
        """Mark unresponsive workers as failed, start replacements, and give up on replacements that do not connect."""
        now = time.monotonic()
        self._look_for_silence(now)
        if now >= self._gathered_at:
            self._recover()
        for number in [number for number, at in self._launch_at.items() if now >= at]:
            del self._launch_at[number]
            self._awaited_since = now
            self._crew.launch(number, self._ties.failed)
        if not self._crew.complete and not self._launch_at:
            self._await_crew(now)
        elif self._starting is not None and self._starting.told:
            self._await_tasks(self._starting, now)

    def _await_crew(self, now: float) -> None:
        """Report what is awaited; EngineStopped after too many seconds."""
        waited = now - self._awaited_since
        allowed = RENDEZVOUS_SECONDS if self._unrecovered is None else REPLACEMENT_SECONDS
        is_due = self._is_report_due(waited)
        if waited < allowed and not is_due:
            return
        losses = self._unrecovered.by_worker if self._unrecovered is not None else {}
        absent = [self._crew.absent_worker(number, losses.get(number)) for number in self._crew.absent]
        if waited < allowed:
            self._ties.on_news(WorkersAwaited(waiting_for(absent, self._ties.driver), waited))
            return
        message, hint = explain(absent, self._ties.driver, self._crew.endpoints, allowed)
        raise EngineStopped(message, hint=self._journal.hint(hint))

    def _is_report_due(self, waited: float) -> bool:
        """Decide whether to report a wait of so many seconds: after 5 s, and then rarely."""
        if waited < self._report_at:
            if waited < FIRST_SECONDS:  # a new wait
                self._report_at = FIRST_SECONDS
            return False
        self._report_at = next_report(waited)
        return True

    def _await_tasks(self, starting: Restarted, now: float) -> None:
        """Report workers that are connected and have not restored their tasks."""
        waited = now - starting.told_at
        if self._is_report_due(waited):
            titles = [self._crew.title(number) for number in range(self._crew.size) if number not in starting.ready]
            self._ties.on_news(WorkersAwaited(restoring(titles), waited))

    def unheard(self, message: Unheard) -> None:
        """A worker hears nothing of another one."""
        number = message.worker.worker
        if self._crew.is_incarnation(number, message.worker.incarnation) and self._crew.is_at(
            message.peer, message.address
        ):
            self._complaints.heard(number, message.peer, message.seconds, time.monotonic())

    def _look_for_silence(self, now: float) -> None:
        patience, silences = self._patience, self._crew.silences()
        pairs = self._complaints.standing(now, silences)
        standing: dict[int | Pair, float] = dict([*silences.items(), *pairs.items()])
        self._pause_sources(unresponsive(standing, patience.pause) | self._losses.keys())
        for key in self._stalls.begun(standing, patience.stall):
            self._ties.on_news(Silent(*self._named(key), standing[key], paused=self.pauses_sources))
        for key, seconds in self._stalls.ended(standing, patience.stall).items():
            self._ties.on_news(HeardAgain(*self._named(key), seconds))
        for number, seconds in silences.items():
            if seconds > patience.lost:
                self._silent(number, f"sent no heartbeat for {seconds:.0f} s")
        if (apart := self._complaints.due(now, silences)) is not None:
            self._part(apart)

    def _pause_sources(self, numbers: frozenset[int]) -> None:
        if numbers != self._unresponsive:
            self._unresponsive = numbers
            self.pauses_sources = reads_in_vain(
                self._topology, numbers, self._crew.size, self._scope, self._coordinator.last_complete
            )

    def _named(self, key: int | Pair) -> tuple[str, str | None]:
        if isinstance(key, int):
            return self._crew.title(key), None
        return self._crew.title(key[0]), self._crew.title(key[1])

    def _silent(self, number: int, cause: str) -> None:
        # It may go on at any moment: what it would say is not listened to any more, but its place is needed.
        self._crew.kill(number)
        self.lost(number, cause, is_unresponsive=True)

    def _part(self, apart: Apart) -> None:
        """Two workers that do not reach each other, of which one has to go; where it would be so again, the job."""
        lost, other = self._crew.title(apart.lost), self._crew.title(apart.other)
        hosts = frozenset({self._crew.machine(apart.lost), self._crew.machine(apart.other)})
        cause = f"and {other} have not received anything from each other for {apart.seconds:.0f} s"
        if not self.running or hosts in self._apart:
            again = ", also after one was started again" if self.running else ""
            self._ties.abandon(
                EngineStopped(
                    f"{lost} {cause}{again}",
                    hint=self._journal.hint(f"repair the network between {' and '.join(sorted(hosts))}"),
                )
            )
            return
        self._apart.add(hosts)
        self._silent(apart.lost, cause)

    # -- what is lost -------------------------------------------------------------------------------------

    def lost(
        self, worker: int, cause: str = "was lost", error: EngineError | None = None, *, is_unresponsive: bool = False
    ) -> None:
        """A worker counts no more. error: what the job ends with where its tasks may not be started again."""
        title = self._crew.title(worker)
        was_there = self._crew.is_there(worker)
        self._crew.dismiss(worker)
        self._unreported.discard(worker)
        self._repeating.discard(worker)
        self._complaints.forget(worker)
        self._stalls.forget(worker)
        if not was_there:
            return
        if error is None:
            cause = f"{title} {cause}"
        self._lose(worker, Loss(cause, error or EngineStopped(cause, hint=self._journal.hint()), is_unresponsive))

    def worker_failed(self, failed: Failed) -> None:
        """A worker has said why it cannot go on."""
        kind: type[EngineError] = {6: EngineStopped, 7: JobFailed, 2: UsageError}.get(failed.code, EngineError)
        error = kind(failed.message, hint=self._next(failed.code, failed.hint))
        error.exit_code = failed.code
        if failed.detail:
            error.add_note(failed.detail)
        passing = failed.raised_at is not None and not self._restarts.raised_again(
            failed.raised_at, self._ties.epochs()
        )
        if self._restarts.most and (failed.lost or passing):
            self.lost(failed.worker, failed.message, error)
        else:
            self._ties.abandon(error)

    def launch_failed(self, worker: int, launch: int, error: EngineError) -> None:
        """Note that a launched worker has ended without a reason."""
        if not self._crew.is_newest(worker, launch):
            return
        if self._crew.is_there(worker):
            self.lost(worker, error.message, error)
        elif worker in self._losses or worker in self._launch_at:
            return  # its connection has said so already
        elif launch == 0:
            self._ties.abandon(error)  # one that never came is no loss: the job could not be started
        else:
            self._lose(worker, Loss(error.message, error))

    def _lose(self, worker: int, loss: Loss) -> None:
        self._losses.setdefault(worker, loss)  # what was heard of first is the cause
        self._awaited_since = time.monotonic()
        self._gathered_at = min(self._gathered_at, self._awaited_since + GATHER_SECONDS)

    def _next(self, code: int, hint: str | None) -> str | None:
        """Return the hint for the failure of a worker. hint: its own, if the job can resume after a fix."""
        if code == JobFailed.exit_code:
            return self._journal.hint(hint or "fix the function or the input")
        if code == EngineStopped.exit_code:
            return self._journal.hint(hint)
        return hint if hint or code == UsageError.exit_code else self._journal.hint()

    def _recover(self) -> None:
        """Restart what the losses of the last moment take with them (C7); raises what the job ends with otherwise."""
        losses, self._losses, self._gathered_at = self._losses, {}, float("inf")
        now = time.monotonic()
        pause = self._restarts.pause(self._ties.epochs())
        if pause is None:
            raise self._restarts.exhausted(losses)
        if self._unrecovered is None:
            self._recoveries += 1
            self._unrecovered = Unrecovered(self._recoveries, time.time(), now)
        for number in losses:
            if (records := self._ties.records(number)) is not None:
                self._unrecovered.dropped.setdefault(number, records)
            if not self._crew.is_there(number):
                self._launch_at[number] = now + pause
        epoch = self._coordinator.last_complete
        scope = self._scope if self.running else Scope.FULL
        causes = [loss.cause for loss in losses.values()]
        # What had been about to start, too: it is half made.
        half_made: Subtasks = self._starting.subtasks if self._starting is not None else {}
        self._lost = merged(self._lost, subtasks_of(self._topology, losses, self._crew.size))
        restart: Restarting | str = "everything was about to restart"
        if scope is Scope.LOCAL and not self._all_restart:
            restart = alone(self._topology, self._lost, epoch, self.places.ahead)
        self._again = isinstance(restart, Restarting)
        if isinstance(restart, str):
            if scope is Scope.LOCAL:
                causes.append(f"everything restarts, since {restart}")
                scope = Scope.FULL
            restart = restarting(self._topology, losses, self._crew.size, scope, epoch)
        self._back = restart.back
        subtasks = merged(restart.subtasks, half_made)
        self._unrecovered.goes_back(losses, causes, subtasks, epoch)
        self._unrecovered.by_worker.update(losses)
        self._begin(subtasks, restart.replayed, "; ".join(causes), epoch, pause)

    def _begin(
        self, subtasks: Subtasks, replayed: frozenset[ChannelId], cause: str, epoch: int, pause: float
    ) -> None:
        self._all_restart |= not self._again
        total, count = count_of(everything(self._topology)), count_of(subtasks)
        self._ties.on_news(Recovering(time.time(), cause, count, total - count, epoch, pause))
        self._ties.do(TasksLost(all_tasks(subtasks), replayed))

    def _widen(self, reason: str) -> None:
        """The lost tasks cannot go on as they were: everything restarts."""
        if not self._again:
            return
        self._again = False
        now, epoch = time.monotonic(), self._coordinator.last_complete
        if self._unrecovered is None:
            self._recoveries += 1
            self._unrecovered = Unrecovered(self._recoveries, time.time(), now)
        cause = f"everything restarts, since {reason}"
        self._unrecovered.goes_back((), [cause], everything(self._topology), epoch)
        self._begin(everything(self._topology), frozenset(), cause, epoch, 0.0)

    def repeated(self, worker: int) -> None:
        """The tasks of a worker that took steps again have taken them."""
        self._repeating.discard(worker)

    def differed(self, message: Differed) -> None:
        """A task that took its steps again did something else than before."""
        if message.attempt == self._coordinator.attempt:
            self._widen(message.message)

    # -- what stops and starts again ----------------------------------------------------------------------

    def stop(self, action: Stop) -> None:
        """Stop the tasks that restart, where they still run."""
        self._held.clear()  # what was held back is of epochs below the floor
        self._floor = action.floor
        subtasks = texts(by_operator(action.tasks, self._topology))
        self._reports.clear()
        # Also who has nothing that goes on: it may be the last to know what others had taken.
        self._unreported = set(self._crew.connections) if self._again else set()
        if not self._again:
            self._repeating.clear()
            self.places.restart(action.attempt)
        self._crew.tell(StopTasks(action.attempt, subtasks, action.floor, action.epoch, self._again))

    def stopped(self, answer: TasksStopped) -> None:
        """Note that a worker has stopped its tasks."""
        worker, attempt, dropped = answer.worker, answer.attempt, answer.dropped
        if attempt != self._coordinator.attempt:
            return
        if answer.holes:
            others = f" and {len(answer.holes) - 1} more channels" if len(answer.holes) > 1 else ""
            self._widen(f"worker {worker} had more to keep for {answer.holes[0]}{others} than --backup-buffer allows")
            return
        try:
            self._pieces.check(answer.schedules)
        except ProtocolError as error:
            self.lost(worker, f"sent schedules that cannot be parsed: {error}")
            return
        self._reports[worker] = answer.schedules
        self._unreported.discard(worker)
        if self._unrecovered is not None:
            self._unrecovered.dropped[worker] = max(dropped, self._unrecovered.dropped.get(worker, 0))
            self._unrecovered.kept[worker] = answer.kept
        for id, subtasks in subtasks_of(self._topology, [worker], self._crew.size).items():
            for subtask in subtasks:
                self._ties.do(Stopped(TaskId(id, subtask), attempt))

    def restart(self, action: Restart) -> None:
        """Start the stopped tasks when all workers have connected."""
        self._restarted_in.update(dict.fromkeys(action.tasks, action.attempt))
        subtasks = by_operator(action.tasks, self._topology)
        self._starting = Restarted(action.attempt, subtasks, action.epoch, self._floor, self._again)

    def start_if_all_are_there(self, *, throttled: bool) -> None:
        """Tell everybody to start what is to start; only once, and not before the last has come."""
        starting = self._starting
        if starting is None or starting.told or self._losses or self._unreported or not self._crew.complete:
            return
        if starting.again:
            # The epoch may have become complete since the loss.
            chosen = alone(self._topology, self._lost, starting.epoch, self.places.ahead)
            if isinstance(chosen, str):
                self._widen(chosen)
                return
            self.places.go_back(chosen.back, starting.attempt)
        try:
            schedules = self._pieces.longest(self._reports.values()) if starting.again else b""
        except ProtocolError as error:
            self._widen(f"workers report schedules that contradict each other: {error}")
            return
        starting.told, starting.told_at = True, time.monotonic()
        addresses = self._crew.addresses
        if starting.again and self._unrecovered is not None:
            places = {task: self.places.of(task) for task in all_tasks(starting.subtasks) - self._back}
            self._unrecovered.again(len(schedules), self._pieces.steps_behind(schedules, places))
        for number in range(self._crew.size):
            subtasks = of_worker(starting.subtasks, number, self._topology, self._crew.size)
            again = None
            if starting.again:
                own = sorted(all_tasks(subtasks))
                self._repeating |= {number} if own else set()
                again = Again(
                    texts(starting.subtasks),
                    tuple((task, *self.places.of(task)) for task in own if task not in self._back),
                    schedules if own else b"",
                )  # fmt: skip
            start = Start(starting.attempt, starting.epoch, starting.floor, texts(subtasks), addresses, again)
            self._crew.send(number, start)
        if throttled:
            self._crew.tell(Throttle(True))

    def ready(self, worker: int, attempt: int, restored: int) -> bool:
        """A worker has started its share; whether that counts. restored: records that what has just been started had
        read before."""
        starting = self._starting
        if starting is None or attempt != starting.attempt:
            return False
        starting.ready.add(worker)
        if self._unrecovered is not None:
            self._unrecovered.restored[worker] = restored
        return True

    def go_if_all_are_ready(self) -> None:
        """Let everybody go, and tell what was held back."""
        if self._starting is None or len(self._starting.ready) < self._crew.size:
            return
        self._starting = None
        self._all_restart = False
        self._lost = {}
        self.running = True
        self._crew.tell(Go())
        held, self._held = self._held, []
        for message in held:
            self.tell(message)

    def tell(self, message: msgspec.Struct) -> None:
        """To all workers; while tasks start, when they have: they would meet it half made."""
        if self._starting is not None:
            self._held.append(message)
        else:
            self._crew.tell(message)

    def is_of_now(self, task: TaskId, attempt: int) -> bool:
        """Tell whether a task has not been restarted since the attempt that its message names."""
        return attempt >= self._restarted_in.get(task, 0)
