"""What a job file says of operators since the last run: `moved` and `removed`, as in terraform.

    moved: [{from: counts, to: tally}]
    removed: [audit]

A line speaks of an id that the file no longer has, so that it does nothing where the epoch has no such operator either:
lines that are spent may stay. That is why an id of the file can be neither moved nor removed, and why two operators
cannot exchange theirs in one step: whether that had been done already could not be told from the epoch.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from formats.job.identifiers import ID, ID_SCHEMA
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, shown
from formats.user_file.values import Record, Schema, shape


class Move(msgspec.Struct, frozen=True):
    """An operator that has another id now."""

    before: str = msgspec.field(name="from")
    after: str = msgspec.field(name="to")


class Changes(msgspec.Struct, frozen=True):
    """What became of operators; a file that was read has no id in two of its lines, and no move that leads nowhere."""

    moved: tuple[Move, ...] = ()
    removed: tuple[str, ...] = ()

    def heir(self, operator: str) -> str | None:
        """The id under which an operator goes on, over as many moves as there are; None: it was removed."""
        after = {move.before: move.after for move in self.moved}
        while operator in after:
            operator = after[operator]
        return None if operator in self.removed else operator


NO_CHANGES = Changes()


@shape(None, **ID_SCHEMA)
def operator_id(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """The id of an operator, of this file or of an older one."""
    text = read.string.read(node, label, mistakes)
    if text is not None and not ID.fullmatch(text):
        mistakes.add(node, f"{label}: {shown(text)} is not an operator id")
        return None
    return text


MOVE = Record({"from": operator_id, "to": operator_id}, {"from": None, "to": None})
KEYS: Schema = {
    "moved": {
        "type": "array",
        "items": MOVE.schema,
        "description": "Operators that have another id than in older epochs: their state goes to the new one.",
    },
    "removed": {
        "type": "array",
        "items": ID_SCHEMA,
        "uniqueItems": True,
        "description": "Operators of older epochs that are gone: their state is dropped on purpose.",
    },
}


def read_changes(root: Mapping, operators: Collection[str], mistakes: Mistakes) -> Changes:
    """The lines of a file whose operators have these ids; mistakes for those that contradict it or each other."""
    moved: dict[str, tuple[str, Node]] = {}
    removed: dict[str, None] = {}
    for item in read.items(root, "moved", "[{from: ID, to: ID}]", mistakes):
        ends = MOVE.read(item, "moved", mistakes, "an entry of moved") or {}
        before, after = ends.get("from"), ends.get("to")
        if before is None or after is None:
            continue
        if before in moved:
            mistakes.add(item, f"moved: {before} moves twice, to {moved[before][0]} and to {after}", "remove one")
        elif before in operators:
            mistakes.add(
                item, f"moved: {before} is an operator of this file, so it has not moved",
                "remove the line, or give the operator another id; two operators exchange their ids in two runs, over "
                "a third id",
            )  # fmt: skip
        else:
            moved[before] = after, item
    for item in read.items(root, "removed", "[ID]", mistakes):
        id = operator_id.read(item, "removed", mistakes)
        if id is None:
            continue
        if id in removed:
            mistakes.add(item, f"removed: {id} stands twice", "remove one")
        elif id in moved:
            mistakes.add(item, f"removed: {id} is also moved, to {moved[id][0]}", "remove one of the two lines")
        elif id in operators:
            mistakes.add(item, f"removed: {id} is an operator of this file", "remove the line, or the operator")
        else:
            removed[id] = None
    for before, (after, item) in moved.items():
        _check_end(before, after, item, {id: to for id, (to, _) in moved.items()}, {*operators, *removed}, mistakes)
    return Changes(tuple(Move(before, after) for before, (after, _) in moved.items()), tuple(removed))


def _check_end(
    before: str, after: str, item: Node, moves: dict[str, str], ends: Collection[str], mistakes: Mistakes
) -> None:
    """A mistake for a move that leads to no operator."""
    passed = {before}
    while after in moves and after not in passed:
        passed.add(after)
        after = moves[after]
    if after in passed:
        mistakes.add(item, f"moved: {before} moves in a circle", "end it at an operator of this file")
    elif after not in ends:
        hint = mistakes.near(after, ends) or "end it at an operator of this file"
        mistakes.add(item, f"moved: {before} moves to {after}, which is not an operator of this file", hint)
