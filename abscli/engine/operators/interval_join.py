"""The operator that joins two inputs by key and event time.

Rows wait in the state until the watermark says that nothing can match them any more: each pair comes out once, when the
later of its rows comes, and a row without a match when it leaves. Which rows are late follows from the barriers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from abscli.engine.operators.join_columns import MATCHED, JoinColumns, keeps
from abscli.engine.operators.rows import joined, key_columns
from abscli.engine.operators.runnable import EMITTED_ROWS, WithLate
from abscli.engine.operators.sorted_runs import SortedRuns
from abscli.engine.operators.windows import Times, with_times
from abscli.engine.sources.event_times import as_event_times
from abscli.engine.state.contract import State
from abscli.engine.state.key_table import KeyIndex, Slots, same
from abscli.engine.state.keyed_state import REMOVED, KeyedState, Rows
from formats.ids import TaskId
from formats.job.model import JOIN_NUMBER, JOIN_SIDE, Operator, Side
from formats.native.hashing import hash_rows
from formats.native.state.ordering import by_key_group, key_order
from formats.native.state.tables import DUE, KEY_GROUP

Runs = dict[Side, SortedRuns]


class IntervalJoin:
    """inputs: the columns of each side. watermark: what the last barriers brought."""

    def __init__(
        self, operator: Operator, task: TaskId, state: State, inputs: Mapping[Side, pa.Schema],
        failures: Failures | None = None,
    ) -> None:  # fmt: skip
        assert operator.join
        self._failures = failures
        self._operator = operator
        self._join = operator.join
        self._task = task
        self._columns = JoinColumns(operator, inputs)
        self._keeps = {side: keeps(operator.join, side) for side in Side}
        # A row of the left side is matched by others up to `after` its time, one of the right side up to `before` it.
        self._reach = {Side.LEFT: operator.join.after, Side.RIGHT: operator.join.before}
        self._time = dict(zip(Side, operator.join.time, strict=True))
        self._arrived = 0
        self._runs: WeakKeyDictionary[KeyIndex, Runs] = WeakKeyDictionary()
        self.state: State | None = state
        self.watermark: int | None = None
        state.kinds.update(self._columns.state)
        if any(self._keeps.values()):
            state.kinds[MATCHED] = pa.bool_()

    def resume(self, table: pa.Table) -> None:
        """Hear of rows that the state is restored with; JobFailed where they have other columns than the job."""
        expected = [KEY_GROUP, *self._key, *(self.state.kinds if self.state else ()), DUE]
        types = {name: table.schema.field(name).type for name in table.schema.names}
        if list(types) != expected or any(types[name] != kind for name, kind in self._kinds.items()):
            raise JobFailed(
                f"task {self._task}: its state has the columns {', '.join(types)}, but the job expects "
                f"{', '.join(expected)}",
                hint="set the join columns to their previous values; or start from the beginning, with --from-epoch 0 "
                "or with a new store",
            )
        if table.num_rows:
            self._arrived = max(self._arrived, pc.max(table.column(JOIN_NUMBER)).as_py() + 1)

    @property
    def _key(self) -> tuple[str, ...]:
        assert self.state is not None
        return self.state.key

    @property
    def _kinds(self) -> dict[str, pa.DataType]:
        assert self.state is not None
        return {**dict(zip(self._operator.key, self._columns.key.types, strict=True)), **self.state.kinds}

    # -- rows come -----------------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch, first: int, origin: str = "") -> pa.RecordBatch | WithLate | None:
        assert self.state is not None
        side = Side.LEFT if origin == self._join.left else Side.RIGHT
        rows = self._columns.rows(batch, side)
        (batch, numbers, *_), times = with_times(batch, first, self._time[side], self._operator.id, self._failures)
        if len(times) < rows.num_rows:
            rows = self._columns.rows(batch, side)
        is_late = self._is_late(times)
        late = batch.filter(pa.array(is_late))
        keys = key_columns(rows, self._operator.key, self._operator.id)
        has_key = np.logical_and.reduce([key.is_valid().to_numpy(zero_copy_only=False) for key in keys])
        # Null is equal to nothing, as in SQL: such a row has no match, whatever comes.
        alone = np.flatnonzero(~has_key & ~is_late)
        outputs = [Rows(self._alone(rows.take(pa.array(alone)), side), numbers[alone])] if self._keeps[side] else []
        taken = np.flatnonzero(has_key & ~is_late)
        if len(taken):
            some = [key.take(pa.array(taken)) for key in keys]
            some += [pa.repeat(str(side), len(taken)), pa.array(np.arange(self._arrived, self._arrived + len(taken)))]
            self._arrived += len(taken)
            values = rows.take(pa.array(taken)).select([column.name for column in self._columns.sides[side]])
            arrived = pa.record_batch(
                [*some, *values.columns],
                names=[*self._key, *(column.state for column in self._columns.sides[side])],
            )
            for state, of_state in self.state.divided(Rows(arrived, numbers[taken]), some):
                outputs.append(self._take(state, of_state, side))
        output = joined([output for output in outputs if output.batch.num_rows])
        return WithLate(output, late, side.late) if late.num_rows else output

    def _is_late(self, times: Times) -> npt.NDArray[np.bool_]:
        """Of these rows, for which some that would match may have left."""
        if self.watermark is None:
            return np.zeros(len(times), dtype=bool)
        return np.asarray(times < self.watermark - self._join.lateness)

    def _take(self, state: KeyedState, rows: Rows, side: Side) -> Rows:
        """Keep rows of a side, and put out what they match."""
        runs = self._runs_of(state)
        located = state.locate([rows.batch.column(name) for name in self._key], rows.hashes)
        slots = located.slots[located.groups]
        for name, kind in state.kinds.items():
            column = state.column(name, kind)
            if name in rows.batch.schema.names:
                column.put(slots, rows.batch.column(name))
        times = self._times(rows.batch.column(self._time_in_state(side)))
        state.set_due(slots, times + (self._reach[side] + self._join.lateness + 1))
        hashes = hash_rows([rows.batch.column(name) for name in self._operator.key])
        places, others = runs[side.other].within(hashes, *self._interval(times, side), partial(_alive, state))
        equal = same(self._keys(state, slots[places]), self._keys(state, others))
        places, others = places[equal], others[equal]
        runs[side].add(hashes, times, slots, partial(_alive, state))
        if self._keeps[side]:
            state.column(MATCHED, pa.bool_()).put(slots, pa.array(np.isin(np.arange(len(slots)), places)))
        if self._keeps[side.other]:
            self._note_matched(state, others)
        numbers = self._numbers(state, others)
        order = np.lexsort((numbers, places))
        return Rows(self._pairs(state, slots[places[order]], others[order], side), rows.numbers[places[order]])

    def _note_matched(self, state: KeyedState, slots: Slots) -> None:
        matched = state.column(MATCHED, pa.bool_())
        slots = np.unique(slots)
        slots = slots[~matched.take(slots).to_numpy(zero_copy_only=False)]
        matched.put(slots, pa.repeat(True, len(slots)))
        state.touch(slots)

    def _interval(self, times: Times, side: Side) -> tuple[Times, Times]:
        """The times of rows of the other side that match rows of this one, both included."""
        before, after = self._join.before, self._join.after
        return (times - before, times + after) if side is Side.LEFT else (times - after, times + before)

    def _pairs(self, state: KeyedState, own: Slots, others: Slots, side: Side) -> pa.RecordBatch:
        slots = {side: own, side.other: others}
        keys = self._keys(state, own)
        values = [state.column(c.state, c.type).take(slots[of]) for of in Side for c in self._columns.sides[of]]
        return pa.record_batch([*keys, *values], schema=self._columns.output)

    def _alone(self, rows: pa.RecordBatch, side: Side) -> pa.RecordBatch:
        """Rows of a side as they come out without a match."""
        keys = key_columns(rows, self._operator.key, self._operator.id)
        values = [
            rows.column(column.name) if of is side else pa.nulls(rows.num_rows, column.type)
            for of in Side
            for column in self._columns.sides[of]
        ]
        return pa.record_batch([*keys, *values], schema=self._columns.output)

    # -- by key and time -----------------------------------------------------------------------------------

    def _runs_of(self, state: KeyedState) -> Runs:
        """The rows of a state by key and time. They go with its index: another one has other slots."""
        index = state.index
        if index not in self._runs:
            runs = {side: SortedRuns() for side in Side}
            slots = state.live()
            if len(slots):
                keys = dict(zip(self._key, index.keys(slots), strict=True))
                hashes = hash_rows([keys[name] for name in self._operator.key])
                for side in Side:
                    mine = pc.equal(keys[JOIN_SIDE], str(side)).to_numpy(zero_copy_only=False)
                    name = self._time_in_state(side)
                    times = keys[name] if name in keys else state.column(name, state.kinds[name]).take(slots)
                    times = times.filter(pa.array(mine))
                    runs[side].add(hashes[mine], self._times(times), slots[mine], partial(_alive, state))
            self._runs[index] = runs
        return self._runs[index]

    def _keys(self, state: KeyedState, slots: Slots) -> list[pa.Array]:
        return state.index.keys(slots)[: len(self._operator.key)] if len(slots) else self._no_keys

    @property
    def _no_keys(self) -> list[pa.Array]:
        return [pa.array([], kind) for kind in self._columns.key.types]

    def _numbers(self, state: KeyedState, slots: Slots) -> Slots:
        if not len(slots):
            return slots
        numbers: Slots = state.index.keys(slots)[-1].to_numpy()
        return numbers

    def _time_in_state(self, side: Side) -> str:
        """The column with the times of a side's rows: one of the key, or of its values."""
        name = self._time[side]
        return name if name in self._operator.key else f"{side}.{name}"

    def _times(self, column: pa.Array) -> Times:
        times: Times = as_event_times(column).to_numpy()
        return times

    # -- rows leave ----------------------------------------------------------------------------------------

    def flush(self, watermark: int | None) -> Iterator[pa.RecordBatch]:
        assert self.state is not None
        self.watermark = watermark
        if watermark is None:
            return
        for unmatched in self.state.due(watermark, self._leave):
            yield from unmatched.to_batches(max_chunksize=EMITTED_ROWS)

    def _leave(self, state: KeyedState, slots: Slots) -> pa.Table:
        """Remove rows of the state; those that come out without a match, in order of key group, then of key."""
        table = state.table(slots) if MATCHED in state.kinds else None
        state.remove(slots)
        if table is None:
            return self._columns.output.empty_table()
        table = table.filter(pc.equal(table.column(MATCHED), False)).combine_chunks()
        if not table.num_rows:
            return self._columns.output.empty_table()
        order = key_order([table.column(name).chunk(0) for name in self._key])
        order = order[by_key_group(table.column(KEY_GROUP).to_numpy()[order])]
        names = [*self._operator.key, *(c.state for side in Side for c in self._columns.sides[side])]
        return table.take(pa.array(order)).select(names).rename_columns(self._columns.output.names)

    def close(self) -> None:
        if self.state is not None:
            self.state.close()


def _alive(state: KeyedState, slots: Slots) -> npt.NDArray[np.bool_]:
    return np.asarray(state.due_at(slots) != REMOVED)
