"""A job on the first records of its sources, in one thread, without a store: what each operator puts out.

Every operator is one task here, and nothing is written anywhere. What a reduce owes once an epoch comes after each
round of reading.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pyarrow as pa

from abscli.engine.columns import join_inputs
from abscli.engine.errors import EngineError
from abscli.engine.failures import Failures, taken_by
from abscli.engine.operators.making import make_operator
from abscli.engine.operators.rows import cannot_work, other_columns, without_dictionaries
from abscli.engine.operators.runnable import Runnable, WithLate
from abscli.engine.operators.table_lookup import TableLookup, read_table
from abscli.engine.sources.contract import Source
from abscli.engine.sources.making import make_source
from abscli.graph.timed import waits_for_time
from formats.ids import ChannelId, TaskId
from formats.job.kafka import Start, is_kafka
from formats.job.model import Kind, Operator, Topology
from formats.watermark import END, lowest

ROUND = 100
"""Records that each source reads at first; twice as many in each round."""

MOST_READ = 10_000
"""Records that each source reads at most."""

MOST_ROUNDS = 50
"""Also where sources have nothing to give yet."""

LONGEST = 15.0
"""Seconds for which rows are waited for that are on their way."""

MOST_ROWS = 200_000
"""Rows that operators take at most, where a loop makes ever more of them."""


@dataclass(slots=True)
class Sampled:
    """One operator.

    columns: of what it put out; None: it put out nothing.
    rows: the first of them, as a table; of a sink, those that it would write.
    emitted: how many that were. skipped: records that it left out, and failure: the first of them, as a dead letter.
    error: why it went no further.
    waits: it puts out rows when event time comes to them. watermark: how far that has come.
    """

    operator: str
    kind: Kind
    columns: pa.Schema | None = None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    emitted: int = 0
    skipped: int = 0
    failure: dict[str, object] | None = None
    error: EngineError | None = None
    waits: bool = False
    watermark: int | None = None

    def add(self, rows: pa.RecordBatch, most: int) -> None:
        """More of what it put out. most: rows that are kept."""
        if self.columns is None:
            self.columns = rows.schema
        lacking = most - sum(batch.num_rows for batch in self.batches)
        if lacking > 0 and rows.schema.equals(self.columns):
            self.batches.append(rows.slice(0, lacking))
        self.emitted += rows.num_rows


@dataclass(frozen=True, slots=True)
class Sample:
    """operators: those before others first, as far as there are no loops. records: that sources read. ended: all of
    the input was read, and nothing was left to do."""

    operators: tuple[Sampled, ...]
    records: int
    ended: bool

    @property
    def error(self) -> EngineError | None:
        """The first that an operator met."""
        return next((one.error for one in self.operators if one.error is not None), None)


class _First:
    """Keeps the first dead letter."""

    def __init__(self, sampled: Sampled) -> None:
        self._sampled = sampled

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sampled.failure is None:
            self._sampled.failure = batch.slice(0, 1).to_pylist()[0]


def sample_of(topology: Topology, directory: str, most: int) -> Sample:
    """Up to `most` rows that each operator puts out. directory: of the job file. UsageError for what cannot be run."""
    run = _Run(topology, directory, most)
    try:
        return run.to_the_end()
    finally:
        run.close()


class _Run:
    def __init__(self, topology: Topology, directory: str, most: int) -> None:
        self._most = most
        self._order = _in_order(topology)
        waits = {op.id: waits_for_time(op) not in (None, "ttl") for op in self._order}
        self._sampled = {op.id: Sampled(op.id, op.kind, waits=waits[op.id]) for op in self._order}
        self._outputs = {op.id: [edge for edge in topology.edges if edge.source == op.id] for op in self._order}
        self._queue: deque[tuple[ChannelId, pa.RecordBatch]] = deque()
        self._sent: dict[ChannelId, int] = {}
        self._taken = 0
        self._failures: dict[str, Failures] = {}
        self._readers: dict[str, Source] = {}
        self._operators: dict[str, Runnable] = {}
        joins = join_inputs(topology)
        for op in self._order:
            alone = _from_what_is_there(msgspec.structs.replace(op, parallelism=1))
            task = TaskId(op.id, 0)
            failures = None
            if op.on_error is not msgspec.UNSET:
                failures = self._failures[op.id] = Failures(task, _First(self._sampled[op.id]))
            if op.kind is Kind.SOURCE:
                self._readers[op.id] = make_source(alone, 0, directory, None, None, failures=failures)
            elif op.lookup:
                self._operators[op.id] = TableLookup(alone, task, read_table(op, directory))
            elif op.kind is not Kind.SINK:
                sides = joins.get(op.id)
                self._operators[op.id] = make_operator(alone, task, directory, failures=failures, inputs=sides)

    def close(self) -> None:
        """Let go of the sources' connections and the operators' state."""
        for source in self._readers.values():
            source.close()
        for operator in self._operators.values():
            operator.close()

    def to_the_end(self) -> Sample:
        """Round by round, until there is enough to be seen of each operator, or enough was read."""
        for number in range(MOST_ROUNDS):
            for id, source in self._readers.items():
                self._try(id, partial(self._read, id, source, ROUND << min(number, 20)))
            self._work()
            for op in self._order:
                if op.id in self._operators:
                    self._try(op.id, partial(self._flush, op.id))
                    self._work()
            if self._has_enough():
                break
        for id, failures in self._failures.items():
            self._sampled[id].skipped = failures.count
        ended = not self._queue and all(source.finished for source in self._readers.values())
        records = sum(self._read_by(id) for id in self._readers)
        return Sample(tuple(self._sampled.values()), records, ended and not self._errors)

    @property
    def _errors(self) -> bool:
        return any(one.error is not None for one in self._sampled.values())

    def _has_enough(self) -> bool:
        over = all(
            source.finished or self._read_by(id) >= MOST_READ or self._sampled[id].error is not None
            for id, source in self._readers.items()
        )
        of_each = all(one.emitted >= self._most or one.error is not None for one in self._sampled.values())
        return over or of_each or self._errors or self._taken >= MOST_ROWS

    def _read_by(self, id: str) -> int:
        return sum(at.records or 0 for at in self._readers[id].positions)

    def _read(self, id: str, source: Source, lines: int) -> None:
        if source.finished:
            return
        source.stop_at(lines=min(lines, max(0, MOST_READ - self._read_by(id))))
        with taken_by(self._failures.get(id), 1):
            rows, deadline = source.read(), time.monotonic() + LONGEST
            while rows is not None and not rows.num_rows and _is_late(source) and time.monotonic() < deadline:
                rows = source.read()
        if rows is not None:
            self._emit(id, rows)

    def _work(self) -> None:
        """Take what is on its way."""
        while self._queue and self._taken < MOST_ROWS:
            channel, rows = self._queue.popleft()
            self._taken += rows.num_rows
            id = channel.receiver.operator
            self._try(id, partial(self._process, id, channel, rows), rows.schema)

    def _process(self, id: str, channel: ChannelId, rows: pa.RecordBatch) -> None:
        first = self._sent.get(channel, 0) + 1
        self._sent[channel] = first - 1 + rows.num_rows
        operator, failures = self._operators.get(id), self._failures.get(id)
        if operator is None:
            self._sampled[id].add(rows, self._most)
            return
        with taken_by(failures, 1, str(channel)):
            output = operator.process(rows, first, channel.sender.operator)
        if isinstance(output, WithLate):
            self._send(id, output.late, output.output)
            output = output.rows
        self._emit(id, output)

    def _flush(self, id: str) -> None:
        watermark = lowest(END if source.finished else source.watermark for source in self._readers.values())
        self._sampled[id].watermark = watermark
        with taken_by(self._failures.get(id), 1):
            outputs = list(self._operators[id].flush(watermark))
        for rows in outputs:
            self._emit(id, rows)

    def _emit(self, id: str, rows: pa.RecordBatch | None) -> None:
        if rows is None or not rows.num_rows:
            return
        rows, sampled = without_dictionaries(rows), self._sampled[id]
        if sampled.columns is not None and not rows.schema.equals(sampled.columns):
            raise other_columns(TaskId(id, 0), sampled.columns, rows.schema)
        sampled.add(rows, self._most)
        self._send(id, rows, None)

    def _send(self, id: str, rows: pa.RecordBatch, output: str | None) -> None:
        for edge in self._outputs[id]:
            if (edge.output or None) == output:
                self._queue.append((ChannelId(TaskId(id, 0), TaskId(edge.target, 0)), rows))

    def _try(self, id: str, work: Callable[[], None], columns: pa.Schema | None = None) -> None:
        """Work of an operator, which does nothing any more once it has failed. columns: of its input."""
        if self._sampled[id].error is not None:
            return
        try:
            work()
        except EngineError as error:
            self._sampled[id].error = error
        except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
            self._sampled[id].error = cannot_work(TaskId(id, 0), error, columns or pa.schema([]))


def _is_late(source: Source) -> bool:
    """Whether rows of a source are still on their way."""
    return not source.finished and any(split not in source.waiting for split in source.unread)


def _from_what_is_there(op: Operator) -> Operator:
    """A source of Kafka, from its topic's beginning to its end of now, whatever the job would read."""
    if op.kind is not Kind.SOURCE or not is_kafka(op):
        return op
    options = {**(op.connector or {}), "start": Start.EARLIEST, "follow": False}
    return msgspec.structs.replace(op, connector=options)


def _in_order(topology: Topology) -> list[Operator]:
    """Operators behind those that they read from; of a loop first the one that stands first in the file."""
    left, done = list(topology.operators), list[Operator]()
    before = {op.id: {e.source for e in topology.edges if e.target == op.id} for op in left}
    while left:
        placed = {op.id for op in done}
        ready = [op for op in left if before[op.id] <= placed]
        # In a loop none is: the next is one that has an input by now.
        reached = [op for op in left if before[op.id] & placed]
        chosen = (ready or reached or left)[0]
        done.append(chosen)
        left.remove(chosen)
    return done
