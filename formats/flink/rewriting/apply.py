"""Changes carried out on a snapshot: the metadata of the copy, its new streams, and what each line has done.

The snapshot is only read. What no line speaks of keeps its handles, byte for byte; of an operator of which keyed state
is changed, all of it is rewritten as canonical savepoints have it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from formats.flink import facts
from formats.flink.channels import has_channels
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, hash_in
from formats.flink.metadata import properties
from formats.flink.metadata.handles import Metadata, OperatorState, RelativeHandle
from formats.flink.rewriting.changes import (
    Change,
    Changes,
    MoveOperator,
    RemoveKey,
    RemoveOperator,
    RemoveSplit,
    RemoveState,
    SetKey,
    SetMaxParallelism,
    SetPosition,
)
from formats.flink.rewriting.operators import Rewriter
from formats.flink.rewriting.prefix import CannotRewrite
from formats.flink.rewriting.resolve import Find, Work, new_id, resolve
from formats.flink.rewriting.sink import Sink
from formats.flink.state.keyed_tables import Types
from formats.ranges import ranges

replace = msgspec.structs.replace

_SHOWN = 3
"""Operators that one message names."""


class Effect(msgspec.Struct, frozen=True):
    """What one line does.

    action: `moved`, `removed` or `set`.
    operator: its uid where that is known, else its hash; as the file names it, if it is gone.
    state, split, key: which of it; of an entry of a map `key` has a column `map_key`.
    before, after: in words; None: nothing.
    rows, bytes: of state that goes or is replaced; None where there is none.
    no_effect: why there is nothing to do; None if there is.
    """

    line: int
    action: str
    operator: str
    state: str | None = None
    split: str | None = None
    key: dict[str, str] | None = None
    before: str | None = None
    after: str | None = None
    rows: int | None = None
    bytes: int | None = None
    no_effect: str | None = None


class Written(msgspec.Struct, frozen=True):
    """A keyed state that was written as canonical savepoints have it.

    operator: as of `Effect`, by its name in the snapshot.
    kind: `value`, `list`, `map`, `reducing`, `aggregating` or `timers`.
    rows: of a map its entries.
    """

    operator: str
    state: str
    kind: str
    rows: int
    bytes: int


class Applied(msgspec.Struct, frozen=True):
    """metadata: of the copy; own: handles of its new streams, which are in no file of the snapshot."""

    metadata: Metadata
    own: frozenset[RelativeHandle]
    effects: tuple[Effect, ...]
    written: tuple[Written, ...]


def apply(
    changes: Changes,
    metadata: Metadata,
    find: Find,
    names: Names,
    streams: Streams,
    sink: Sink,
    *,
    canonical: bool = False,
    types: Types | None = None,
) -> Applied:
    """The snapshot as the changes make it.

    canonical: as a canonical savepoint, of which any state backend starts.
    types: of states that Flink keeps as bytes, or whose class only the job has.

    Raises BadFile for lines that do not fit the snapshot, CannotRewrite with every operator that cannot be
    written so, Damaged, NotFound.
    """
    resolved = resolve(changes, metadata, find)
    rewriter = Rewriter(metadata, streams, sink, canonical=canonical, types=types)
    operators = []
    refused: list[tuple[Work, CannotRewrite]] = []
    for operator in metadata.operators:
        work = resolved.by_id.get(operator.id) or Work(operator)
        if work.remove is None:
            try:
                operators.append(_moved(rewriter.changed(work), work.move))
            except CannotRewrite as error:
                refused.append((work, error))
    _raise(refused, changes.file, names)
    effects = []
    for line in changes.lines:
        if line in resolved.spent:
            effects.append(replace(_about(line, line.operator), no_effect=resolved.spent[line]))
        else:
            effects.append(_effect(rewriter, line, resolved.meant[line], names))
    copy = replace(metadata, operators=tuple(operators))
    # a savepoint has no records in flight: with them the copy stays the checkpoint that it is of
    if canonical and metadata.version >= 4 and not has_channels(copy):
        written = properties.savepoint("CANONICAL")
        copy = replace(copy, properties=written, tail=properties.encode(written), problem=None)
    return Applied(copy, frozenset(rewriter.own), tuple(effects), tuple(_written(rewriter, names)))


def _written(rewriter: Rewriter, names: Names) -> Iterator[Written]:
    for (operator, state), met in rewriter.written.items():
        yield Written(names[operator], state, next(iter(met.kinds)), met.rows, met.bytes)


def _raise(refused: list[tuple[Work, CannotRewrite]], file: str, names: Names) -> None:
    """One error for all operators that cannot be written: each reason once, with its lines and operators."""
    if not refused:
        return
    reasons: dict[str, list[tuple[Work, CannotRewrite]]] = {}
    for work, error in refused:
        reasons.setdefault(error.message, []).append((work, error))
    messages = []
    for reason, alike in reasons.items():
        lines = {
            line for work, error in alike
            for line in ([each.line for each in work.lines] if error.line is None else [error.line])
        }  # fmt: skip
        where = f"{file}, line{'s'[: len(lines) != 1]} {ranges(lines)}, " if lines else ""
        shown = [names[work.operator.id] for work, _ in alike]
        more = f" and {len(shown) - _SHOWN} more operators" if len(shown) > _SHOWN else ""
        messages.append(f"{where}{', '.join(shown[:_SHOWN])}{more}: {reason}")
    first = refused[0][1]
    raise CannotRewrite("; ".join(messages), path=first.path, hint=first.hint)


def _moved(operator: OperatorState, move: MoveOperator | None) -> OperatorState:
    if move is None:
        return operator
    # before Flink 2.0 no uid is stored, and none is made up
    stored = operator.uid is not None or operator.name is not None
    uid = move.to if stored and hash_in(move.to) is None else None
    return replace(operator, id=new_id(move.to), uid=uid)


def _about(line: Change, operator: str) -> Effect:
    """What a line is about."""
    match line:
        case MoveOperator():
            return Effect(line.line, "moved", operator)
        case RemoveOperator():
            return Effect(line.line, "removed", operator)
        case RemoveState():
            return Effect(line.line, "removed", operator, line.state)
        case RemoveSplit():
            return Effect(line.line, "removed", operator, split=line.split)
        case RemoveKey():
            return Effect(line.line, "removed", operator, line.state, key=_columns(line))
        case SetKey():
            return Effect(line.line, "set", operator, line.state, key=_columns(line))
        case SetPosition():
            return Effect(line.line, "set", operator, split=line.split)
        case SetMaxParallelism():
            return Effect(line.line, "set", operator)


def _columns(line: RemoveKey | SetKey) -> dict[str, str]:
    columns = {name or "key": text for name, text in line.key}
    return columns if line.map_key is None else {**columns, "map_key": line.map_key}


def _effect(rewriter: Rewriter, line: Change, operator: OperatorState, names: Names) -> Effect:
    """What a line has done whose operator is there."""
    name = names[operator.id]
    about = _about(line, name)
    match line:
        case MoveOperator():
            after = f"{line.to} ({new_id(line.to)})" if new_id(line.to) != line.to else line.to
            before = f"{name} ({operator.id})" if name != operator.id else name
            return replace(about, before=before, after=after)
        case RemoveOperator():
            size = facts.operator_size(operator)
            return replace(about, before=f"{operator.parallelism} tasks with {size} bytes of state", bytes=size)
        case SetMaxParallelism():
            same = operator.max_parallelism == line.number
            before, after = (f"max parallelism {n}" for n in (operator.max_parallelism, line.number))
            return replace(about, before=before, after=after, no_effect="it has that already" if same else None)
        case _:
            met = rewriter.met.get(line)
            if met is None:
                return replace(about, no_effect=f"the operator has no such {_missing(line)}")
            kind = " and ".join(met.kinds) or None
            return replace(about, before=met.before or kind, after=met.after, rows=met.rows, bytes=met.bytes)


def _missing(line: Change) -> str:
    match line:
        case RemoveState():
            return "state"
        case RemoveSplit():
            return "split"
        case _:
            return "key"

