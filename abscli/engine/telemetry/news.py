"""Events of a running job that are reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from abscli.engine.losses.decisions import Recovery
from abscli.engine.sources.inputs import LaterInput
from abscli.engine.waits import Wait
from abscli.planner.retimed import Retimed
from abscli.protocol.policy import Policy
from formats.job.model import Topology


@dataclass(frozen=True, slots=True)
class Begun:
    """A job is about to run: this graph, under this policy, which may be that of its last attempt."""

    topology: Topology
    policy: Policy


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch is complete.

    at: Unix time.
    seconds: since its trigger.
    records: that sources read since the last complete one.
    bytes: written for it.
    phases: the longest of all tasks, in seconds: `align` (waiting for barriers), `copy` (of state) and `write`; and
    `publish`, in which the driver published the rows of all sinks.
    by_sink: seconds in which its rows were staged (by the slowest task) and published.
    watermarks: of each operator that has one, in microseconds since 1970 (`formats.watermark`).
    skipped: records that operators have left out since the last complete one, of those that have.
    """

    epoch: int
    at: float
    seconds: float
    records: int
    bytes: int
    phases: Mapping[str, float] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    by_sink: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpochGivenUp:
    """An epoch cannot complete; the job goes on.

    at: Unix time.
    """

    epoch: int
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """A signal came: a last epoch is taken.

    begun: whether all workers are there to take it.
    """

    signal: int
    begun: bool


@dataclass(frozen=True, slots=True)
class StopDelayed:
    """The last epoch that a signal has asked for is not complete yet.

    waits: the steps that it waits for, at least one.
    """

    signal: int
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class AbandonedAtOnce:
    """A second signal ends the process, without a last epoch. signal: the first one."""

    signal: int


@dataclass(frozen=True, slots=True)
class SlotsAwaited:
    """A cluster has not as many slots yet as are wanted.

    slots: that have come.
    seconds: since they have been awaited.
    """

    slots: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkersAwaited:
    """Workers that were started are not connected yet.

    reason: which, and what is missing.
    seconds: since they have been awaited.
    """

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Silent:
    """A worker gives no sign of life, or has heard of none of a peer.

    worker, peer: what they are called, with their hosts.
    paused: whether all sources are paused meanwhile.
    """

    worker: str
    peer: str | None
    seconds: float
    paused: bool = False


@dataclass(frozen=True, slots=True)
class HeardAgain:
    """A silence is over. seconds: its duration."""

    worker: str
    peer: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class OperatorWaits:
    """A source or a sink waits for something outside of the job.

    is_told: whether people are told. If not, they were told of as long a wait a short while ago.
    """

    wait: Wait
    is_told: bool


@dataclass(frozen=True, slots=True)
class OperatorContinues:
    """A source or sink has stopped waiting.

    wait: as it was last, with all of its seconds.
    is_told: whether people were told of the wait.
    """

    wait: Wait
    is_told: bool


@dataclass(frozen=True, slots=True)
class SlowSink:
    """Epochs take longer than the interval between them, mostly because of one sink.

    epoch: the newest.
    epoch_seconds: its time until its rows were published.
    interval: seconds between epochs.
    seconds: in which the sink staged and published the rows of that epoch.
    """

    sink: str
    epoch: int
    epoch_seconds: float
    interval: float
    seconds: float


@dataclass(frozen=True, slots=True)
class WatermarkHeld:
    """An input without rows holds the watermark back, so that results wait although other inputs go on.

    source: an operator.
    splits: its splits without rows, such as files or partitions.
    waiting: operators that wait for the watermark.
    seconds: since the watermark advanced.
    is_told: whether people are told. If not, they were told of this source a short while ago.
    """

    source: str
    splits: tuple[str, ...]
    waiting: tuple[str, ...]
    seconds: float
    is_told: bool


@dataclass(frozen=True, slots=True)
class WatermarkReleased:
    """The input no longer holds the watermark back.

    seconds: how long it did.
    is_told: whether people were told that it did.
    """

    source: str
    seconds: float
    is_told: bool


@dataclass(frozen=True, slots=True)
class Late:
    """Several epochs in a row took longer than they may.

    message: which, and what was slow.
    hint: what to do.
    """

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class OtherCode:
    """The epoch that a job goes on from was made by other code.

    attempt: that made it.
    files: beside the job file, that differ.
    """

    epoch: int
    attempt: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OtherTimes:
    """Operators have other windows, spans or times to live than in the epoch that a job goes on from.

    changes: what, as it was and is.
    """

    epoch: int
    changes: tuple[Retimed, ...]


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """The job has other tasks or channels than the epoch that it goes on from.

    epoch: the first one of the generation.
    moved: operators that have another id, by the one that they had.
    removed: operators that are gone.
    added: operators that begin without state.
    """

    generation: int
    epoch: int
    moved: dict[str, str]
    removed: tuple[str, ...]
    added: tuple[str, ...]



@dataclass(frozen=True, slots=True)
class Recovering:
    """Workers are lost, and tasks are about to restart.

    at: Unix time.
    cause: what was lost.
    tasks: how many restart.
    untouched: how many go on.
    epoch: from which they restart.
    pause: seconds until workers are started in place of those that were lost.
    """

    at: float
    cause: str
    tasks: int
    untouched: int
    epoch: int
    pause: float


@dataclass(frozen=True, slots=True)
class FramesLetGo:
    """A worker had more to keep than it may: until the next complete epoch, a failure rolls back all tasks."""

    worker: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """All that restarted has caught up."""

    recovery: Recovery


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Operators have other numbers of tasks from here on.

    epoch: that says what the new tasks have.
    parent: the epoch that they have it from.
    changes: which operators, and their numbers.
    """

    epoch: int
    parent: int
    changes: str


@dataclass(frozen=True, slots=True)
class StaysWritten:
    """A sink's target has rows that are not of the line on which the job goes on, and nobody can take back.

    target: what it is called. epochs: whose rows, ascending.
    """

    operator: str
    target: str
    epochs: tuple[int, ...]


Changed = OtherCode | OtherTimes | NewGeneration | LaterInput | StaysWritten
News = (
    Begun | EpochDone | EpochGivenUp | Stopping | StopDelayed | AbandonedAtOnce | SlotsAwaited | WorkersAwaited | Late
    | Changed | Recovering | FramesLetGo | Recovered | Rescaled | Silent | HeardAgain | OperatorWaits
    | OperatorContinues | SlowSink | WatermarkHeld | WatermarkReleased
)
