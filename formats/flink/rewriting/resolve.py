"""Which operator of a snapshot each line of a file of changes means, and which lines have nothing left to do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from formats.errors import UnknownTask
from formats.flink.ids import OperatorHash, hash_in, operator_id
from formats.flink.metadata.handle_codec import MAX_KEY_GROUPS
from formats.flink.metadata.handles import Metadata, OperatorState
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
    also_from,
)
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import shown

Find: TypeAlias = Callable[[str], OperatorState]
"""An operator by what people call it: uid, hash, or a name that only one has; UnknownTask."""

L = TypeVar("L", bound=Change)


@dataclass(slots=True)
class Work:
    """What the lines ask of one operator.

    states: those that go, by name.
    splits: those that go or are set, by id.
    keys: those that go or are set, in the order of the file.
    """

    operator: OperatorState
    move: MoveOperator | None = None
    remove: RemoveOperator | None = None
    states: dict[str, RemoveState] = field(default_factory=dict)
    splits: dict[str, RemoveSplit | SetPosition] = field(default_factory=dict)
    keys: list[RemoveKey | SetKey] = field(default_factory=list)
    max_parallelism: SetMaxParallelism | None = None

    @property
    def lines(self) -> list[Change]:
        """All but the one that removes the whole operator."""
        alone = [line for line in (self.move, self.max_parallelism) if line is not None]
        return [*alone, *self.states.values(), *self.splits.values(), *self.keys]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a file of changes asks of a snapshot.

    by_id: what it asks of each operator, by the operator's hash.
    meant: the operator of each line that asks for something.
    spent: lines that ask for nothing of this snapshot, with the reason.
    """

    by_id: dict[OperatorHash, Work]
    meant: dict[Change, OperatorState]
    spent: dict[Change, str]


def resolve(changes: Changes, metadata: Metadata, find: Find) -> Resolved:
    """What the lines ask of each operator, and which ask for nothing.

    Raises BadFile for lines that contradict each other or the snapshot.
    """
    mistakes = Mistakes(changes.file)
    by_id: dict[OperatorHash, Work] = {}
    moves = _Moves(changes, find)
    meant: dict[Change, OperatorState] = {}
    spent: dict[Change, str] = {}
    for line in changes.lines:
        operator = moves.heir(line) or _find(line, find, mistakes)
        if operator is None:
            _gone(line, moves, spent, mistakes, _names(metadata))
            continue
        if reason := moves.why_spent(line, operator):
            spent[line] = reason
            continue
        meant[line] = operator
        work = by_id.setdefault(operator.id, Work(operator))
        match line:
            case MoveOperator():
                work.move = _first(work.move, line, "moves", mistakes)
            case RemoveOperator():
                work.remove = _first(work.remove, line, "removes", mistakes)
            case RemoveState():
                earlier = work.states.get(line.state)
                work.states[line.state] = _first(earlier, line, f"removes state {line.state!r} of", mistakes)
            case RemoveSplit() | SetPosition():
                earlier_split = work.splits.get(line.split)
                work.splits[line.split] = _first(earlier_split, line, f"has split {line.split!r} of", mistakes)
            case RemoveKey() | SetKey():
                same = [other for other in work.keys if _place(other) == _place(line)]
                work.keys.append(_first(same[0] if same else None, line, "has this key of", mistakes))
            case SetMaxParallelism():
                work.max_parallelism = _first(work.max_parallelism, line, "sets max_parallelism of", mistakes)
    for work in by_id.values():
        _check_states(work, mistakes)
        if work.remove is not None and work.lines:
            message = f"{shown(work.lines[0].operator)} is removed in line {work.remove.line}"
            mistakes.add(work.lines[0], message, "remove one of the two lines")
    _check_ends(metadata, by_id, mistakes)
    mistakes.raise_any()
    return Resolved(by_id, meant, spent)


def _place(line: RemoveKey | SetKey) -> tuple[object, ...]:
    """What may stand in one line only."""
    return line.state, line.key, line.map_key


def new_id(name: str) -> OperatorHash:
    """The hash of an operator that a line names as its new one: by its uid, or the hash itself."""
    return hash_in(name) or operator_id(name)


def _find(line: Change, find: Find, mistakes: Mistakes) -> OperatorState | None:
    """The operator of a line; None where there is none, or several are called so, which is a mistake."""
    operator = _found(line.operator, find)
    if isinstance(operator, UnknownTask):
        mistakes.add(line, operator.message, "write its uid or hash")
        return None
    return operator


class _Moves:
    """The lines that move operators: which of them were carried out before, so that the others mean now what they meant
    then."""

    def __init__(self, changes: Changes, find: Find) -> None:
        self._moves = [line for line in changes.lines if isinstance(line, MoveOperator)]
        self._missing: dict[MoveOperator, str] = {}
        self._done: dict[MoveOperator, OperatorState] = {}
        for move in self._moves:
            if _found(move.operator, find) is not None:
                continue
            try:
                self._done[move] = find(move.to)
            except UnknownTask as error:
                self._missing[move] = error.message

    def heir(self, line: Change) -> OperatorState | None:
        """What an operator became that was moved already, and that a line names as it was; of a line that removes the
        whole operator nothing: that one has gone another way."""
        if isinstance(line, MoveOperator | RemoveOperator):
            return None
        id = new_id(line.operator)
        return next((heir for move, heir in self._done.items() if new_id(move.operator) == id), None)

    def why_spent(self, line: Change, operator: OperatorState) -> str | None:
        """Why a line of an operator that is there asks for nothing; None if it does."""
        if isinstance(line, MoveOperator):
            return "it has that already" if new_id(line.to) == operator.id else None
        if isinstance(line, RemoveOperator):
            # It made room once: what is there now is what moved into its place.
            came = next((move for move, heir in self._done.items() if heir.id == operator.id), None)
            return f"it is what {came.operator} became" if came is not None else None
        return None

    def is_missing(self, move: MoveOperator) -> str | None:
        """Why neither of its ends is in the snapshot; None if one is."""
        return self._missing.get(move)

    def ahead(self, line: Change) -> MoveOperator | None:
        """The move that makes the operator of a line, which is not there yet."""
        id = new_id(line.operator)
        return next((move for move in self._moves if move not in self._done and new_id(move.to) == id), None)


def _found(name: str, find: Find) -> OperatorState | UnknownTask | None:
    """The operator that is called so; the error if several are; None if none is."""
    try:
        return find(name)
    except UnknownTask as error:
        return error if "are called" in error.message else None


def _names(metadata: Metadata) -> list[str]:
    """Return what operators may be called in a line, without hashes."""
    return sorted({name for operator in metadata.operators for name in (operator.uid, operator.name) if name})


def _gone(
    line: Change, moves: _Moves, spent: dict[Change, str], mistakes: Mistakes, names: Collection[str]
) -> None:
    """Handle a line of an operator that the snapshot does not have: it was carried out before, or it is a mistake.

    names: of the operators that it has. If one is nearly the same, the line has a typing error.
    """
    if isinstance(line, MoveOperator):
        if missing := moves.is_missing(line):
            mistakes.add(line, f"moved: neither {shown(line.operator)} nor {shown(line.to)} is there: {missing}")
        else:
            spent[line] = f"the snapshot has {line.to} already"
    elif not isinstance(line, RemoveOperator) and (move := moves.ahead(line)) is not None:
        message = f"{shown(line.operator)} is what {shown(move.operator)} becomes in line {move.line}"
        mistakes.add(line, message, f"write {move.operator}: operators are named as the snapshot has them")
    elif (hint := mistakes.near(line.operator, names)) is not None:
        mistakes.add(line, f"the snapshot has no operator {shown(line.operator)}", hint)
    elif isinstance(line, RemoveOperator | RemoveState | RemoveSplit | RemoveKey):
        spent[line] = "the snapshot has no such operator"
    else:
        mistakes.add(line, f"the snapshot has no operator {shown(line.operator)}", "abs inspect lists them")


def _first(earlier: L | None, line: L, verb: str, mistakes: Mistakes) -> L:
    """The line, which is a mistake where an earlier one says something of the same."""
    if earlier is not None:
        mistakes.add(line, f"a second line {verb} {shown(line.operator)}", "remove one")
    return line


def _check_states(work: Work, mistakes: Mistakes) -> None:
    for line in work.keys:
        if line.state is not None and line.state in work.states:
            message = f"state {shown(line.state)} is removed in line {work.states[line.state].line}"
            mistakes.add(line, message, "remove one of the two lines")
    most, operator = work.max_parallelism, work.operator
    if most is not None and not operator.parallelism <= most.number <= MAX_KEY_GROUPS:
        message = f"max_parallelism {most.number}: {shown(most.operator)} has {operator.parallelism} tasks"
        mistakes.add(most, message, f"at least as many, at most {MAX_KEY_GROUPS}")


def _check_ends(metadata: Metadata, by_id: dict[OperatorHash, Work], mistakes: Mistakes) -> None:
    """A moved operator must not take the place of one that stays, nor two of them the same."""
    taken: dict[OperatorHash, str] = {}
    for operator in metadata.operators:
        work = by_id.get(operator.id)
        if work is None or (work.move is None and work.remove is None):
            taken[operator.id] = operator.uid or operator.id
    for work in by_id.values():
        if work.move is None or work.remove is not None:
            continue
        end = new_id(work.move.to)
        if end in taken:
            message = f"moved: {shown(work.move.to)} is an operator of the snapshot, which stays"
            mistakes.add(work.move, message, f"remove {taken[end]}, or move it first, in a copy of its own")
        elif end in by_id and by_id[end].move is not None:
            also_from(work.move, mistakes)
        taken[end] = work.move.to
