"""The state of two epochs, operator by operator and state by state: counted, and streamed where changes are wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from abscli.diff.any_order import Incomparable, compare_any
from abscli.diff.epochs import OperatorDiff, StateDiff
from abscli.diff.rows import Compared, Counts, change_schema, shown, values_of
from formats.select import HIDDEN
from formats.view import CheckpointStore, StateFacts

Sink = Callable[[str, str | None, pa.Table], None]
"""Told the changes: operator, name of the state, a table with `change`, `key`, `from`, `to`."""

Progress = Callable[[int], None]
"""Told how many keys have been compared so far."""


class Side(NamedTuple):
    """One of the two epochs."""

    store: CheckpointStore
    epoch: int


class RowsComparer(Protocol):
    """A quicker way to compare one state than by reading all its rows, where both sides are of one system; None where
    there is none. rows: whether the changes themselves are wanted."""

    def __call__(self, left: Side, right: Side, pair: Pair, *, rows: bool) -> Iterator[Compared] | None: ...


class Pair(NamedTuple):
    """One state on both sides; None where it is not there."""

    operator: str
    left: StateFacts | None
    right: StateFacts | None

    @property
    def either(self) -> StateFacts:
        """The right one if there is one."""
        state = self.right or self.left
        assert state is not None
        return state


def pairs(left: Side, right: Side, only: str | None = None) -> list[Pair]:
    """States of both sides by operator and name. only: an operator."""
    before, after = (
        {(s.operator, s.name): s for s in side.store.identified_states(side.epoch) if only in (None, s.operator)}
        for side in (left, right)
    )
    return [Pair(key[0], before.get(key), after.get(key)) for key in dict.fromkeys([*after, *before])]


def _hidden(side: Side, state: StateFacts | None) -> str | None:
    """Why rows of a state cannot even be told to be there; None if they can."""
    return None if state is None else side.store.hidden(side.epoch, state.operator, state.name)


def diff_operators(
    left: Side,
    right: Side,
    operators: tuple[Sequence[str], Sequence[str]],
    *,
    only: str | None = None,
    sink: Sink | None = None,
    progress: Progress = lambda done: None,
    quicker: RowsComparer | None = None,
) -> list[OperatorDiff]:
    """Every operator of either side, those that have no state among them. operators: their ids on each side."""
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        progress(done)

    by_operator: dict[str, list[StateDiff]] = {}
    for pair in pairs(left, right, only):
        by_operator.setdefault(pair.operator, []).append(diff_state(left, right, pair, sink, more, quicker))
    ids = [id for id in dict.fromkeys([*operators[1], *operators[0], *by_operator]) if only in (None, id)]
    return [_operator(id, by_operator.get(id, []), id in operators[0], id in operators[1]) for id in ids]


def _operator(id: str, states: list[StateDiff], before: bool, after: bool) -> OperatorDiff:
    differs = [state.differs for state in states]
    change = "unknown" if None in differs else "unchanged"
    change = "changed" if True in differs else change
    change = "added" if after and not before else "removed" if before and not after else change

    def total(values: list[int | None]) -> int | None:
        return None if None in values else sum(v for v in values if v is not None)

    return OperatorDiff(
        id=id,
        change=change,
        added=total([s.added for s in states]),
        removed=total([s.removed for s in states]),
        changed=total([s.changed for s in states]),
        unchanged=total([s.unchanged for s in states]),
        states=tuple(states),
    )


def diff_state(
    left: Side, right: Side, pair: Pair, sink: Sink | None, more: Progress, quicker: RowsComparer | None = None
) -> StateDiff:
    """One state. What stands in the way of a comparison is its note."""
    either = pair.either
    base = StateDiff(either.name, either.kind, either.key)
    if pair.left and pair.right and pair.left.key != pair.right.key:
        was, now = (", ".join(s.key) or "none" for s in (pair.left, pair.right))
        return _with(base, None, f"not compared: the key was {was} and is {now}")
    if hidden := _hidden(left, pair.left) or _hidden(right, pair.right):
        return _with(base, None, f"not compared: {hidden}")
    schemas = [_schema(side, state) for side, state in ((left, pair.left), (right, pair.right))]
    note = None
    if schemas[0] is not None and schemas[1] is not None:
        reason, note = _comparable(schemas[0], schemas[1], either.key)
        if reason is not None:
            return _with(base, None, f"not compared: {reason}")
    opaque = [s.opaque for s in (pair.left, pair.right) if s is not None and s.opaque]
    notes = [text for text in (note, *dict.fromkeys(opaque)) if text]
    counts = Counts()
    with contextlib.closing(_compared(left, right, pair, quicker, rows=sink is not None)) as results:
        try:
            for result in results:
                counts = counts.plus(result.counts)
                more(sum(result.counts))
                if sink is not None and result.rows is not None and result.rows.num_rows:
                    sink(pair.operator, either.name, result.rows)
        except Incomparable as error:
            return _with(base, None, f"not compared: {error}")
    return _with(base, counts, "; ".join(notes) or None)


def _with(base: StateDiff, counts: Counts | None, note: str | None) -> StateDiff:
    added, removed, changed, unchanged = counts if counts is not None else (None, None, None, None)
    return StateDiff(base.state, base.kind, base.key, added, removed, changed, unchanged, note)


def _compared(
    left: Side, right: Side, pair: Pair, quicker: RowsComparer | None, *, rows: bool
) -> Generator[Compared, None, None]:
    if quicker is not None and (results := quicker(left, right, pair, rows=rows)) is not None:
        yield from results
        return
    batches = [_rows(side, state) if state else iter(()) for side, state in ((left, pair.left), (right, pair.right))]
    yield from (job() for job in compare_any(batches[0], batches[1], pair.either.key, rows=rows))


def _schema(side: Side, state: StateFacts | None) -> pa.Schema | None:
    """The columns of a state; None if it is not there or has no rows to tell."""
    if state is None:
        return None
    schema = side.store.state_schema(side.epoch, state.operator, state.name)
    return pa.schema([field for field in schema if field.name != side.store.place_column]) if len(schema) else None


def _rows(side: Side, state: StateFacts) -> Iterator[pa.RecordBatch]:
    """The rows without where they lie, which follows from the key and is no change of the state."""
    column = side.store.place_column
    for batch in side.store.state(side.epoch, state.operator, state.name):
        yield batch.drop_columns([column]) if column in batch.schema.names else batch


def _comparable(left: pa.Schema, right: pa.Schema, key: Sequence[str]) -> tuple[str | None, str | None]:
    """Why two states cannot be compared, and which columns are left out of a comparison."""
    names = [name for name in (key or right.names) if name not in HIDDEN]
    for name in names:
        if name not in left.names or name not in right.names:
            return f"column {name} is on one side alone", None
        if left.field(name).type != right.field(name).type:
            return f"key column {name} was {left.field(name).type} and is {right.field(name).type}", None
    if not key and set(left.names) != set(right.names):
        return "the columns differ", None
    one_sided = sorted(set(values_of(left, key)) ^ set(values_of(right, key)))
    return None, f"not compared, on one side alone: {', '.join(one_sided)}" if one_sided else None


def rows_schema(left: Side, right: Side, only: str | None = None) -> pa.Schema | None:
    """The columns of all changes, where all states have the same ones; None where they do not."""
    changes = []
    for pair in pairs(left, right, only):
        schemas = [_schema(side, state) for side, state in ((left, pair.left), (right, pair.right))]
        present = [schema for schema in schemas if schema is not None]
        if present:
            key = pair.either.key or tuple(present[-1].names)
            changes.append(change_schema(present[0], present[-1], shown(key)))
    return changes[0] if changes and all(schema.equals(changes[0]) for schema in changes) else None
