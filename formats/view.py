"""The one read-only view of a checkpoint store; every command that reads works through it.

Implemented for the native store, Flink and Spark. They differ in what they know: a fact that a format does not
have is `None` (unknown), never zero. In Flink several operators share a file, so a file is listed under each of
them and must be counted once; in Spark batches are epochs and partitions are tasks.

What only some can tell is a method of `CheckpointStore`, too, with an answer for those that cannot: who reads a store
does not ask which format it is.
"""

from __future__ import annotations

import itertools
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import msgspec
import msgspec.structs

from formats.errors import FormatError, NotFound, OtherJob
from formats.ids import AnyChannelId, TaskId

if TYPE_CHECKING:
    import pyarrow as pa

    from formats.job.model import Topology
    from formats.kafka import Place
    from formats.query.predicate import Predicate
    from formats.statistics import StateStatistics


class Status(StrEnum):
    """State of an epoch, derived from what is on disk; `damaged` here means by presence and size."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    IN_PROGRESS = "in-progress"
    ABORTED = "aborted"
    DAMAGED = "damaged"


class FileFacts(msgspec.Struct, frozen=True):
    """One file of a part. path: relative to the store; bytes: its size; rows: of its table; sha256: hex."""

    path: str
    bytes: int | None
    rows: int | None
    sha256: str | None


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a source task has read one split.

    offset: in the connector's unit (bytes for files).
    records: rows.
    text: where it goes on, in the source's own words, where that is no number.
    fingerprint: of what was read, by which it is noticed when that is no longer there.
    event_time: the latest among its rows, in microseconds since 1970, where the job looks for that.
    until: where it ends, in the same unit, of a split that could go on.
    """

    split: str
    offset: int | None
    records: int | None
    text: str | None = None
    fingerprint: str | None = None
    event_time: int | None = None
    until: int | None = None


class TaskFacts(msgspec.Struct, frozen=True):
    """One task's part of an epoch. Durations in seconds; `finished`: a source that has ended; `watermark`: how far
    event time has come (`formats.watermark`); `skipped`: records that it has left out since the job began."""

    task: TaskId
    files: tuple[FileFacts, ...]
    log_records: int | None
    position: tuple[Position, ...] | None
    alignment: float | None
    sync: float | None
    async_: float | None = msgspec.field(name="async", default=None)
    finished: bool | None = None
    watermark: int | None = None
    skipped: int | None = None


class OperatorFacts(msgspec.Struct, frozen=True):
    """One operator of an epoch.

    name: what people call it.
    bytes: of the state that the epoch refers to.
    rows: of the state that the epoch refers to.
    published_rows, published_bytes: what the epoch shows of it outside of the store, as a sink's rows; None where it
        shows nothing.
    """

    id: str
    name: str | None
    parallelism: int
    bytes: int | None
    rows: int | None
    tasks: tuple[TaskFacts, ...]
    new_bytes: int | None = None  # of state that this epoch wrote
    published_rows: int | None = None
    published_bytes: int | None = None


class ChannelFacts(msgspec.Struct, frozen=True):
    """Counters of a channel at the cut: records sent, received, and logged as its state.

    back: whether its edge closes a cycle; None where that is not known, or was not asked for.
    """

    channel: AnyChannelId
    sent: int | None
    received: int | None
    logged: int | None
    back: bool | None = None

    @property
    def edge(self) -> tuple[str, str]:
        """The operators at its ends."""
        return self.channel.edge


class ChannelLine(msgspec.Struct, frozen=True):
    """A channel as it is put out, under its name: see `ChannelFacts`."""

    channel: str
    sent: int | None
    received: int | None
    logged: int | None
    back_edge: bool | None


class Repeat(msgspec.Struct, frozen=True):
    """A channel on which so many records come again after a restore though the receiver's state holds them already:
    only in an at-least-once epoch."""

    channel: AnyChannelId
    records: int


class EpochFacts(msgspec.Struct, frozen=True):
    """One epoch as the store's list shows it.

    duration: seconds.
    bytes: of what the epoch wrote anew.
    state_bytes: of all state that it refers to.
    state_rows: of all state that it refers to.
    log_records: of all logs that it refers to.
    """

    epoch: int
    status: Status
    parent: int | None
    attempt: int | None
    expected: int | None
    acked: int | None
    missing: tuple[TaskId, ...]
    bytes: int | None
    triggered: str | None
    duration: float | None
    reason: str | None = None  # why it is aborted or damaged
    policy: str | None = None
    state_bytes: int | None = None  # of the state that it refers to, in older epochs too
    state_rows: int | None = None
    log_records: int | None = None
    present: bool | None = None  # whether all files are there by size; None: not looked for


class StateFacts(msgspec.Struct, frozen=True):
    """One named state of an operator.

    name: None where an operator has just one and it is not named.
    kind: the format's own word (`keyed`, `list`, `union`, `broadcast`, `timers`, ...).
    key: its key columns.
    opaque: how much of it cannot be decoded, and why, in words; None if all can be.
    """

    operator: str
    name: str | None
    kind: str
    key: tuple[str, ...]
    rows: int | None
    bytes: int | None
    opaque: str | None = None


class EdgeFacts(msgspec.Struct, frozen=True):
    """The channels of one edge, summed; None where one of them is not known."""

    source: str
    target: str
    channels: int
    sent: int | None
    received: int | None
    logged: int | None


class ChannelTable(Sequence[ChannelFacts]):
    """The channels of an epoch, in order. A format that may have a thousand times more of them than of tasks makes them
    when they are looked at, and sums them without."""

    def __init__(self, channels: Iterable[ChannelFacts] = ()) -> None:
        self._channels = tuple(channels)

    def _all(self) -> tuple[ChannelFacts, ...]:
        return self._channels

    def __iter__(self) -> Iterator[ChannelFacts]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> ChannelFacts: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ChannelFacts, ...]: ...
    def __getitem__(self, index: int | slice) -> ChannelFacts | tuple[ChannelFacts, ...]:
        return self._all()[index]

    def lines(self, back: Container[tuple[str, str]] | None) -> Iterable[ChannelLine]:
        """All of them, with whether they go back. back: the back edges, as (source, target); None if not known."""
        for c in self:
            yield ChannelLine(str(c.channel), c.sent, c.received, c.logged, None if back is None else c.edge in back)

    def logged(self) -> Iterator[ChannelFacts]:
        """Those whose state is not empty."""
        return (channel for channel in self if channel.logged)

    def edges(self) -> Iterator[EdgeFacts]:
        """Sums by edge."""
        by_edge: dict[tuple[str, str], list[ChannelFacts]] = {}
        for channel in self:
            by_edge.setdefault(channel.edge, []).append(channel)
        for edge, channels in by_edge.items():
            counters = ([c.sent for c in channels], [c.received for c in channels], [c.logged for c in channels])
            yield EdgeFacts(*edge, len(channels), *map(total, counters))


def total(values: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


class EpochDetail(msgspec.Struct, frozen=True):
    """One epoch whole."""

    facts: EpochFacts
    operators: tuple[OperatorFacts, ...]
    channels: ChannelTable
    policy: str | None = None


class RowPlaces(NamedTuple):
    """Where rows of a state lie.

    columns: that say so.
    subtasks, groups: how many there are.
    of: of a batch, the subtask and the key group (-1: none) of each row, as arrays of numpy.
    """

    columns: frozenset[str]
    subtasks: int
    groups: int
    of: Callable[[pa.RecordBatch], tuple[Any, Any]]


class CheckpointStore(ABC):
    """A store opened for reading. Methods raise the classes of `formats.errors`, and read only what they need."""

    format: str
    """The name of its system, such as `abs`."""

    unit: str = "epoch"
    """What its system calls an epoch."""

    place_column: str | None = None
    """The column of state that says where a row lies, which follows from its key; None where no column does."""

    places: tuple[str, ...] = ()
    """Columns of that kind, of whole numbers, that `select` adds where they are named."""

    # What every format answers

    @property
    @abstractmethod
    def path(self) -> str:
        """Where it is, as the user wrote it."""

    @property
    @abstractmethod
    def job(self) -> str | None:
        """The job's name where the format knows it."""

    @abstractmethod
    def epochs(self) -> list[EpochFacts]:
        """All epochs, ascending."""

    @abstractmethod
    def detail(self, epoch: int) -> EpochDetail:
        """One epoch; NotFound if there is none."""

    @abstractmethod
    def states(self, epoch: int) -> list[StateFacts]:
        """The states that the epoch holds, by operator; NotFound if there is no such epoch."""

    @abstractmethod
    def state(self, epoch: int, operator: str, name: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one state: of keyed state one a live key, by key group (Flink) or partition (Spark).

        name: needed where the operator has several. NotFound if there is no such state.
        """

    @abstractmethod
    def log(self, epoch: int, channel: AnyChannelId) -> Iterator[pa.RecordBatch]:
        """The records that belong on a channel at the cut, in order."""

    # What a format answers if it knows more, or a quicker way

    def epoch_numbers(self) -> list[int]:
        """All epochs, ascending."""
        return [row.epoch for row in self.epochs()]

    def complete_numbers(self) -> list[int]:
        """The epochs that were completed, not verified, ascending."""
        return [row.epoch for row in self.epochs() if row.status in (Status.COMPLETE, Status.DAMAGED)]

    def latest(self) -> int | None:
        """The newest epoch that was completed, not verified."""
        return max(self.complete_numbers(), default=None)

    @property
    def only(self) -> int | None:
        """The epoch that the path alone names, such as one checkpoint of many; None for a whole store."""
        return None

    def operator_id(self, epoch: int, operator: str) -> str:
        """The id of an operator that may be named otherwise, too; UnknownTask if that can be told to be none."""
        return operator

    def topology(self, epoch: int) -> Topology | None:
        """The job graph that the epoch was taken of; None where the format does not keep it."""
        return None

    def counted_states(self, epoch: int, operator: str | None = None) -> list[StateFacts]:
        """As `states`, counted where the format has no counts and there is not too much of them; of one operator at
        least."""
        return self.states(epoch)

    def identified_states(self, epoch: int) -> list[StateFacts]:
        """As `states`, with all columns that tell their rows apart, which may be more than the key."""
        return self.states(epoch)

    def hidden(self, epoch: int, operator: str, name: str | None) -> str | None:
        """Why rows of a state cannot even be told to be there, in words; None if they can."""
        return None

    def select(
        self,
        epoch: int,
        operator: str,
        name: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a state that satisfy a condition (None: all), with at least these columns (None: all).

        A format that knows where rows lie reads only what can hold them.
        """
        from formats.query.predicate import check_columns, filtered

        for batch in self.state(epoch, operator, name):
            check_columns(columns or (), batch.schema)
            yield batch if where is None else filtered(batch, where)

    def state_schema(self, epoch: int, operator: str, name: str | None = None) -> pa.Schema:
        """The columns of a state; none where only rows would tell them and there are no rows."""
        import pyarrow as pa

        return next((batch.schema for batch in self.state(epoch, operator, name)), pa.schema([]))

    def log_digests(self, epoch: int) -> Mapping[AnyChannelId, str | None] | None:
        """Digests of the logs, by channel; None where the format has none."""
        return None

    def overview(self) -> dict[str, Any] | None:
        """What the format itself says of the whole store; None where that is nothing more."""
        return None

    def raw(self, epoch: int, counted: str | None = None) -> dict[str, Any] | None:
        """What the format itself says of the epoch, for people who know it; None where that is nothing more.

        counted: an operator whose state is counted, where the format has no counts.
        """
        return None

    def written(self, epoch: int) -> str | None:
        """When the epoch was taken, RFC 3339; None if that is not known."""
        return next((row.triggered for row in self.epochs() if row.epoch == epoch), None)

    def statistics(self, epoch: int, operator: str | None = None, ttl: float | None = None) -> list[StateStatistics]:
        """Where the bytes of the epoch's state are, in bounded time; of one operator if that is named.

        ttl: seconds that state with a time to live lives. What a format cannot tell is unknown.
        """
        from formats.statistics import READ_UP_TO

        states = [state for state in self.states(epoch) if operator in (None, state.operator)]
        files = _by_task(self.detail(epoch), states)
        if sum(state.bytes or 0 for state in states) > READ_UP_TO:
            return files
        keys = {(state.operator, state.name): state.key for state in states}
        return [self._read_for(epoch, row, keys[row.operator, row.state]) for row in files]

    def kafka(self, epoch: int) -> list[Place]:
        """Where sources of Kafka go on after the epoch, as far as the format says."""
        return []

    def row_places(self, epoch: int, operator: str) -> RowPlaces | None:
        """Where rows of an operator's state lie, by the columns that say so; None where none does."""
        return None

    def _read_for(self, epoch: int, row: StateStatistics, key: Sequence[str]) -> StateStatistics:
        """Statistics of a state of which all rows are read; what its files tell where they cannot be."""
        from formats.query.measured import tally_rows
        from formats.statistics import LIVE, of_state

        if (places := self.row_places(epoch, row.operator)) is None:
            return row
        try:
            tally = tally_rows(self.state(epoch, row.operator, row.state), key, places.of, places.columns)
        except FormatError as error:
            return msgspec.structs.replace(row, unknown=str(error))
        return of_state(
            row.operator, row.state, row.kind, tally, LIVE, subtasks=range(places.subtasks), groups=places.groups,
            at=None, ttl=None,
        )  # fmt: skip

    def resolve(self, epoch: int | str | None) -> int:
        """The number that a reference means: a number as it is, `latest` as the newest complete one, None likewise
        unless the path itself names one; NotFound."""
        if epoch is None:
            epoch = self.only
        if isinstance(epoch, int):
            if epoch not in (numbers := self.epoch_numbers()):
                range_ = f"it has {numbers[0]} to {numbers[-1]}" if numbers else "it has none"
                raise NotFound(f"no epoch {epoch}: {range_}", path=self.path)
            return epoch
        latest = self.latest()
        if latest is None:
            hint = f"`abs inspect {shlex.quote(self.path)}` shows the ones that were begun"
            raise NotFound("no complete epoch", path=self.path, hint=hint)
        self.check_newest(latest)
        return latest

    def rivals(self, newest: int) -> tuple[int, ...]:
        """Return epochs of a lower number that may be newer than the one with the highest; the latest first."""
        return ()

    def check_newest(self, newest: int) -> None:
        """Raise OtherJob if it is not known whether the epoch is the newest, see `rivals`."""
        if others := self.rivals(newest):
            at = {number: self.written(number) for number in (others[0], newest)}
            path = shlex.quote(self.path)
            raise OtherJob(
                f"it is not known which {self.unit} is the newest: {newest} has the highest number, and {others[0]} was"
                f" modified later ({at[others[0]]}; {newest}: {at[newest]}), as if several runs had used one job id",
                path=self.path, hint=f"name the {self.unit}: {path}@{others[0]} or {path}@{newest}",
            )  # fmt: skip


def _by_task(detail: EpochDetail, states: Iterable[StateFacts]) -> list[StateStatistics]:
    """What the files of an epoch tell without being read: rows and bytes by task, of operators with a single state."""
    from formats.statistics import FILES, StateStatistics, SubtaskSize, skew

    by_operator = {owner: list(own) for owner, own in itertools.groupby(states, key=lambda state: state.operator)}
    result = []
    for operator in detail.operators:
        for state in by_operator.get(operator.id, ()):
            alone = len(by_operator[operator.id]) == 1
            tasks = tuple(
                SubtaskSize(
                    task.task.subtask,
                    total([file.rows for file in task.files]),
                    total([file.bytes for file in task.files]),
                )
                for task in operator.tasks
            ) if alone else ()  # fmt: skip
            result.append(
                StateStatistics(
                    operator.id, state.name, state.kind, FILES, state.rows, state.bytes, None, tasks, None, None,
                    skew([one.rows for one in tasks]), None, None,
                    unknown="there is too much to read all rows: single keys and key groups are not known",
                )
            )  # fmt: skip
    return result
