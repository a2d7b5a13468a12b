"""What a plan says of a store of abs: which tasks restart, which logs come first, how far sources go back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, field

from formats.plan import Body, Count, Sha256, Skipped

Subtasks = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]*)(-[1-9][0-9]*)?(,[1-9][0-9]*(-[1-9][0-9]*)?)*\Z")]
"""`0-3,7`: its grammar; that it ascends is checked where it is read as a set (`abscli.planner.ranges`)."""

Task = Annotated[str, Meta(pattern=r"^[\s\S]+/(0|[1-9][0-9]*)\Z")]


class PlanKind(StrEnum):
    """recover: the job is down, all tasks roll back; partial: a running job restarts a part; repair: mend an epoch."""

    RECOVER = "recover"
    PARTIAL = "partial"
    REPAIR = "repair"


class RestartRow(msgspec.Struct, frozen=True):
    """Subtasks (`0-3,7`) of an operator that restart for one reason."""

    operator: str
    subtasks: Subtasks
    reason: str


class DedupRow(msgspec.Struct, frozen=True):
    """Every channel of an edge between these senders and receivers drops the records that were seen before."""

    source: str = field(name="from")
    target: str = field(name="to")
    senders: Subtasks
    receivers: Subtasks


class ReplayLog(msgspec.Struct, frozen=True):
    """A channel whose logged records come first."""

    channel: str
    records: Count | None


class RepeatRow(msgspec.Struct, frozen=True):
    """A channel on which so many records come again after a restore though the receiver's state holds them already:
    only in an at-least-once epoch."""

    channel: str
    records: Annotated[int, Meta(ge=0)]


class Rewind(msgspec.Struct, frozen=True):
    """A split of a source task and the offsets it goes back from and to, in the connector's unit.

    from: the furthest known.
    to: that of the epoch, null also for a split that had not been begun.
    """

    task: Task
    split: str
    from_: int | None = field(name="from")
    to: int | None


class Cost(msgspec.Struct, frozen=True):
    """What the recovery reads: bytes of state, records of logs, records that sources read once more."""

    state_bytes: Count | None
    log_records: Count | None
    source_records: Count | None


class NativePlan(Body, frozen=True, kw_only=True):
    """How a job gets back to an epoch; members in the order of the file.

    epoch: the one that the plan makes good again.
    base_epoch: the whole one that tasks go back to, the same except in a repair. Both are null in a plan from a graph.
    repeats: records that come again though restored state holds them (an at-least-once epoch), null if unknown.
    untouched: a number of tasks.
    distrust: of a repair, those of `failed` of whose parts nothing is to be believed.
    parallelism: of the operators that get another one.
    local: of a running job whose workers keep schedules: lost tasks take their steps again.
    newest: complete epoch that the store had when the plan was made; 0 in a plan from a graph.

    Raises ValueError when a plan that is to be carried out names no epoch.
    """

    kind: PlanKind
    job: str
    topology_sha256: Sha256
    epoch: Count | None
    base_epoch: Count | None
    failed: tuple[Task, ...]
    restart: tuple[RestartRow, ...]
    dedup: tuple[DedupRow, ...]
    replay_logs: tuple[ReplayLog, ...]
    repeats: tuple[RepeatRow, ...] | None = None
    rewind: tuple[Rewind, ...]
    untouched: Count
    parallelism: dict[str, Annotated[int, Meta(ge=1, le=2**31 - 1)]]
    cost: Cost
    skipped: tuple[Skipped, ...] = ()
    distrust: tuple[Task, ...] = ()
    local: bool = False
    newest: Count = 0

    def __post_init__(self) -> None:
        if self.needs_store and None in (self.epoch, self.base_epoch):
            raise ValueError(f"a plan of kind {self.kind} must name `epoch` and `base_epoch`")

    @property
    def needs_store(self) -> bool:
        return self.kind is not PlanKind.PARTIAL

    @property
    def goes_back_to(self) -> int | None:
        return self.epoch
