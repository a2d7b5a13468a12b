"""What `abs report` says, as values: the page is made of them and of nothing else, and they stand in it as JSON.

A fact that a system does not have is None, never zero. Lists that could be long are cut, and say how many there are.
Sizes are bytes, durations seconds, times RFC 3339 in UTC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from abscli.report.runbooks import Runbook
from abscli.report.standing import State
from formats.version import FORMAT_VERSION

SCHEMA: Final = "abs.report"


class About(StrEnum):
    """What a report is of."""

    STORE = "store"
    EPOCH = "epoch"
    VALIDATION = "validation"
    DIFF = "diff"
    PLAN = "plan"


class Made(msgspec.Struct, frozen=True):
    """How the report was made.

    by: the program with its version; at: the moment, to which ages refer.
    utc_offsets: minutes by which local time was ahead of UTC where the report was made: each entry is valid from its
        moment on, the first one also before.
    """

    by: str
    at: str
    utc_offsets: tuple[tuple[str, int], ...]


class TimeSource(StrEnum):
    """The origin of the time of an epoch. TRIGGERED: the store records it; MODIFIED: it is the modification time of the
    file that describes the epoch, which a copy of the file may change."""

    TRIGGERED = "triggered"
    MODIFIED = "modified"


class Newest(msgspec.Struct, frozen=True):
    """The newest restorable epoch, or the epoch of the report if that can be restored.

    time, source: None if no time is known; age: seconds from that time to the moment of the report, None if the time is
    not known or later than that.
    """

    epoch: int
    time: str | None
    source: TimeSource | None
    age: float | None


class SplitRewind(msgspec.Struct, frozen=True):
    """A split that is read again. reached: the newest position known, None if there is none; resumes_at: the position
    in the epoch, None for the beginning. Both in the unit of the source, such as bytes of a file or Kafka offsets."""

    task: str
    split: str
    reached: int | None
    resumes_at: int | None


class Resume(msgspec.Struct, frozen=True):
    """The effect of resuming from an epoch.

    rolled_back: newer epochs, as ranges, whose results are computed again; empty if there are none.
    seconds: from the epoch to the newest of these, None if not known.
    records: that sources read again up to the newest known positions, None if not known.
    in_flight: records that the epoch holds on its channels, and that are processed again.
    repeats: records that are in state already and arrive again (an at-least-once epoch), None if not known.
    splits: the first of `splits_count` that are read again.
    output: the effect on sinks, a sentence each.
    """

    epoch: int
    rolled_back: str
    seconds: float | None
    records: int | None
    in_flight: int | None
    repeats: int | None
    splits: tuple[SplitRewind, ...]
    splits_count: int
    output: tuple[str, ...]


class Example(msgspec.Struct, frozen=True):
    """One finding. epoch: None for one of the store itself; where: the task or the channel."""

    epoch: int | None
    where: str | None
    path: str | None
    message: str


class Trouble(msgspec.Struct, frozen=True):
    """All findings of one code.

    harmless: they take nothing from an epoch.
    epochs: ranges such as `1,3-9`, empty where it is the store itself.
    meaning: what follows from it; command: what to type about it, None where nothing is known.
    examples: the first few, of the newest epoch first.
    runbook: the page of the guide about it.
    """

    code: str
    harmless: bool
    count: int
    epochs: str
    meaning: str | None
    command: str | None
    examples: tuple[Example, ...]
    runbook: Runbook


class Unchecked(msgspec.Struct, frozen=True):
    """What was not checked. epochs: ranges, empty for all of them; reason: None where none was given."""

    code: str
    epochs: str
    reason: str | None


class Times(msgspec.Struct, frozen=True):
    """Where the time of an epoch went, by the task that took longest.

    other: of the epoch's duration what is none of these: the barrier on its way, and the commit. No system keeps the
    two apart.
    """

    task: str
    alignment: float | None
    sync: float | None
    async_: float | None = msgspec.field(name="async", default=None)
    other: float | None = None


class EpochLine(msgspec.Struct, frozen=True):
    """One epoch. status: by what is there; verdict: what the check says, None where it was not checked; missing: tasks
    that have not acked, the first few of `missing_count`; restorable: None where that was not checked; modified: the
    modification time of the file that describes the epoch, if the store does not record `triggered`."""

    epoch: int
    status: str
    verdict: str | None
    restorable: bool | None
    parent: int | None
    attempt: int | None
    expected: int | None
    acked: int | None
    missing: tuple[str, ...]
    missing_count: int
    bytes: int | None
    state_bytes: int | None
    state_rows: int | None
    log_records: int | None
    triggered: str | None
    modified: str | None
    duration: float | None
    policy: str | None
    reason: str | None
    times: Times | None
    tags: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """An operator in the drawing. highlight: why it is lit up, None where it is not; text: the same in words."""

    id: str
    name: str | None
    kind: str | None
    parallelism: int | None
    bytes: int | None
    highlight: str | None = None
    text: str | None = None


class Link(msgspec.Struct, frozen=True):
    """An edge in the drawing. back_edge: it closes a cycle; problem: what is found of it, in words."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    partition: str | None
    back_edge: bool
    logged: int | None = None
    problem: str | None = None


class Graph(msgspec.Struct, frozen=True):
    """The job graph. note: what of it is not known, and why."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    note: str | None = None


class OperatorLine(msgspec.Struct, frozen=True):
    """An operator of the epoch. skew: bytes of its largest task to the median; times: of its slowest task; shown_*:
    what the epoch shows of it outside of the store, as a sink's rows; watermark: of the task that is furthest behind;
    skipped: records that it has left out since the job began."""

    id: str
    name: str | None
    parallelism: int
    bytes: int | None
    new_bytes: int | None
    rows: int | None
    logged: int | None
    skew: float | None
    alignment: float | None
    sync: float | None
    async_: float | None = msgspec.field(name="async", default=None)
    published_rows: int | None = None
    published_bytes: int | None = None
    watermark: str | None = None
    skipped: int | None = None


class TaskLine(msgspec.Struct, frozen=True):
    """A task of the epoch. acked: its part is there."""

    task: str
    acked: bool
    bytes: int | None
    logged: int | None
    alignment: float | None
    sync: float | None
    async_: float | None = msgspec.field(name="async", default=None)
    finished: bool | None = None


class Piece(msgspec.Struct, frozen=True):
    """A key group, or a task, of a state."""

    number: int
    subtask: int
    rows: int | None
    bytes: int | None


class StateLine(msgspec.Struct, frozen=True):
    """One state of the epoch.

    method: `read`, `sampled` or `files`, as of `abs inspect --stats`.
    by: what the pieces are, `key group` or `task`; the largest `len(pieces)` of `pieces_count`.
    largest: the largest key, as text, and its bytes.
    name: what people call the operator.
    """

    operator: str
    state: str | None
    kind: str
    method: str | None
    rows: int | None
    bytes: int | None
    skew_groups: float | None
    skew_tasks: float | None
    by: str | None
    pieces: tuple[Piece, ...]
    pieces_count: int
    largest: tuple[str, int] | None
    unknown: str | None
    name: str | None = None


class ChannelsLine(msgspec.Struct, frozen=True):
    """The channels of an edge, summed. consistent: sent - received = logged on each of them; None where that is not
    known."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    channels: int
    sent: int | None
    received: int | None
    logged: int | None
    back_edge: bool | None
    consistent: bool | None


class UnevenChannel(msgspec.Struct, frozen=True):
    """A channel on which sent - received is not what was logged."""

    channel: str
    sent: int
    received: int
    logged: int


class PositionLine(msgspec.Struct, frozen=True):
    """Where a source stands in one split. text: in its own words, where that is no number."""

    task: str
    split: str
    offset: int | None
    records: int | None
    text: str | None
    finished: bool | None


class Depth(msgspec.Struct, frozen=True):
    """One epoch whole: the one that was named, else the newest complete one. Lists are cut; `*_count` have all."""

    epoch: int
    operators: tuple[OperatorLine, ...]
    tasks: tuple[TaskLine, ...]
    tasks_count: int
    states: tuple[StateLine, ...]
    states_note: str | None
    channels: tuple[ChannelsLine, ...]
    inconsistent_channels: tuple[UnevenChannel, ...]
    inconsistent_channels_count: int | None
    positions: tuple[PositionLine, ...]
    positions_count: int


class Growth(msgspec.Struct, frozen=True):
    """How the state of an operator grew; `id` is empty for all of them. points: epoch and bytes, thinned out."""

    id: str
    first: int | None
    last: int | None
    per_day: float | None
    points: tuple[tuple[int, int | None], ...]


class Table(msgspec.Struct, frozen=True):
    """Facts of a plan or of a comparison, as it names them. rows: the first few of `count`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]
    count: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report.

    made: by which program and when.
    about: what it is of. unit: the word of the system for an epoch.
    store: the absolute path or the URI, None for a plan from a graph alone; of a file as the file names it.
    newest: what can be restored and how old it is; resume: what follows from doing so.
    summary: how it stands, in a sentence. checked: what that rests on.
    next: what to type next, in that order.
    problems: what is wrong, the worst first. notes: what should be known besides.
    epochs: the newest `len(epochs)` of `epochs_count`, ascending; None where the report is of none.
    recoveries: what restarted while attempts ran, a line each.
    text: a page as the command shows it that made what is reported.
    """

    schema: str = SCHEMA
    version: str = FORMAT_VERSION
    made: Made
    about: About
    unit: str = "epoch"
    store: str | None
    format: str
    job: str | None
    epoch: int | None
    state: State
    summary: str
    checked: str | None
    next: tuple[str, ...]
    problems: tuple[Trouble, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()
    epochs: tuple[EpochLine, ...] = ()
    epochs_count: int = 0
    latest_restorable: int | None = None
    newest: Newest | None = None
    resume: Resume | None = None
    recoveries: tuple[str, ...] = ()
    graph: Graph | None = None
    depth: Depth | None = None
    growth: tuple[Growth, ...] = ()
    tables: tuple[Table, ...] = ()
    text: str | None = None
