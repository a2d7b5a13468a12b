"""Rows of one state that satisfy a condition, from any store."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.errors import UnknownTask
from formats.query.predicate import And, Compare, Or, Predicate, check_columns, parse_predicate
from formats.view import CheckpointStore, StateFacts

if TYPE_CHECKING:
    import pyarrow as pa

HIDDEN = frozenset({"__key_group", "__nth", "__subtask"})
"""Columns that are made up here. Those of a query may begin with `__` too, as Spark's `__event_time` does."""


class Selection(NamedTuple):
    """What to read.

    columns: None for all but the format's own.
    where: None for every row.
    """

    columns: tuple[str, ...] | None = None
    where: Predicate | None = None


def find_state(states: Sequence[StateFacts], operator: str, name: str | None) -> StateFacts:
    """The one state that is meant; UnknownTask, naming those that there are, if none or several are."""
    mine = [state for state in states if state.operator == operator]
    if not mine:
        having = ", ".join(dict.fromkeys(state.operator for state in states))
        raise UnknownTask(f"no state of an operator {operator!r}", hint=f"there is state of {having or 'no operator'}")
    if name is not None:
        mine = [state for state in mine if state.name == name]
    if len(mine) != 1:
        names = ", ".join(state.name or "?" for state in states if state.operator == operator)
        message = f"{operator!r} has no state {name!r}" if name is not None else f"{operator!r} has several states"
        raise UnknownTask(message, hint=f"--state names one of {names}" if names != "?" else "its state has no name")
    return mine[0]


def only_operator(states: Sequence[StateFacts]) -> str:
    """The one operator that has state; UnknownTask, naming those that have, if none or several do."""
    owners = list(dict.fromkeys(state.operator for state in states))
    if len(owners) != 1:
        raise UnknownTask("several operators have state" if owners else "no operator has state",
                          hint=f"name one of {', '.join(owners)}" if owners else None)  # fmt: skip
    return owners[0]


def selection_of(
    state: StateFacts, keys: Sequence[str], conditions: Sequence[str], columns: Sequence[str] | None
) -> Selection:
    """What people write, for one state: all conditions hold, and one of the keys. BadPredicate, UnknownTask."""
    terms: list[Predicate] = [parse_predicate(text) for text in conditions]
    if (of_key := key_predicate(keys, state.key)) is not None:
        terms.append(of_key)
    where = And(tuple(terms)) if len(terms) > 1 else terms[0] if terms else None
    return Selection(None if columns is None else tuple(columns), where)


def rows(store: CheckpointStore, epoch: int, state: StateFacts, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The rows, a batch at a time, with the columns in the order that was asked for; BadPredicate for unknown ones."""
    batches = store.select(epoch, state.operator, state.name, columns=selection.columns, where=selection.where)
    for batch in batches:
        if selection.columns is None:
            yield batch.select([name for name in batch.schema.names if name not in HIDDEN])
        else:
            yield batch.select(list(selection.columns))


def schema_of(store: CheckpointStore, epoch: int, state: StateFacts, selection: Selection) -> pa.Schema:
    """The columns that `rows` yields, also where there are no rows; reads at most one batch."""
    import pyarrow as pa

    whole = store.state_schema(epoch, state.operator, state.name)
    if selection.columns is None:
        return pa.schema([field for field in whole if field.name not in HIDDEN])
    added = [pa.field(name, pa.int32()) for name in store.places if name not in whole.names]
    whole = pa.schema([*whole, *added])
    return pa.schema([whole.field(name) for name in check_columns(selection.columns, whole)])


def with_places(
    store: CheckpointStore, epoch: int, state: StateFacts, columns: Sequence[str] | None
) -> list[str]:
    """The columns that were asked for (None: all), behind those that say where each row lies."""

    shown = columns or schema_of(store, epoch, state, Selection()).names
    whole: pa.Schema = store.state_schema(epoch, state.operator, state.name)
    places = [*store.places, *(name for name in whole.names if name == "__key_group")]
    return [*dict.fromkeys(places), *(name for name in shown if name not in places)]


def key_predicate(texts: Sequence[str], key: Sequence[str]) -> Predicate | None:
    """What `--key` means: `value` of a single key column, `a=1,b=x` of several; given again, another column of the
    same key or, where that has been said, another key. None if there is none; UnknownTask if it does not fit."""
    keys: list[dict[str, str]] = []
    for text in texts:
        condition = _key(text, key)
        if keys and not keys[-1].keys() & condition.keys():
            keys[-1].update(condition)
        else:
            keys.append(condition)
    each = [And(tuple(Compare(column, "=", value) for column, value in one.items())) for one in keys]
    return Or(tuple(each)) if len(each) > 1 else each[0] if each else None


def _key(text: str, key: Sequence[str]) -> dict[str, str]:
    import re

    names = "|".join(re.escape(name) for name in key)
    if not key:
        raise UnknownTask("this state has no key", hint="--where takes conditions on its columns")
    pieces = re.split(rf",(?=(?:{names})=)", text)
    if all(re.match(rf"(?:{names})=", piece) for piece in pieces):
        return dict(piece.split("=", 1) for piece in pieces)
    column, equals, _ = text.partition("=")
    if len(key) == 1 and equals and column.isidentifier():
        raise UnknownTask(f"--key {text!r}: the key has no column {column!r}, it is {key[0]}",
                          hint=f"name it: --key {shlex.quote(f'{key[0]}={text}')}; or use --where")  # fmt: skip
    if len(key) == 1:
        return {key[0]: text}
    example = shlex.quote(f"{key[0]}={text}")
    raise UnknownTask(f"--key {text!r}: the key has the columns {', '.join(key)}",
                      hint=f"--key {example}, or more of them with commas: {key[0]}=...,{key[1]}=...")  # fmt: skip
