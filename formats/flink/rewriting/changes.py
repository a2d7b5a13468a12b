"""What a file of changes asks of a snapshot (YAML or JSON), in the spirit of terraform's `moved` and `removed`.

    version: 1
    moved:
      - {from: totals, to: sums}               # an operator has another uid
    removed:
      - audit                                  # an operator with all that it has
      - {operator: sums, state: seen}          # one state of it
      - {operator: sums, state: seen, key: 7}  # one key of a state; without `state`: of every keyed state
      - {operator: orders, split: orders-3}    # one split of a source
    set:
      - {operator: sums, state: total, key: {user: anna, day: 3}, value: 12}
      - {operator: orders, split: orders-0, position: 42}
      - {operator: sums, max_parallelism: 256}

Operators are named by uid, by the hash that Flink prints, or by a name that only one has, and always as the snapshot
has them, before anything moves. Of one key what goes does so before what is set comes, wherever the lines stand: a key
begins anew so. A line whose operator or state is gone already is spent and does nothing, and what has moved already is
meant by its old name, too; so the same file does for the next snapshot as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from formats.bounds import read_user_file
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Spot, read_nodes, shown
from formats.user_file.values import Record, Schema, shape

VERSION: Final = 1
MAX_BYTES: Final = 16 << 20


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one operator.

    operator: as the file names it.
    line, column: where the file says it, from 1.
    """

    operator: str
    line: int = 1
    column: int = 1


class MoveOperator(_Line, frozen=True, kw_only=True):
    """It has another uid, or hash, from now on."""

    to: str


class RemoveOperator(_Line, frozen=True, kw_only=True):
    """It goes, with all that it has: in the job it starts anew, or is not there."""


class RemoveState(_Line, frozen=True, kw_only=True):
    """One of its states goes."""

    state: str


class RemoveSplit(_Line, frozen=True, kw_only=True):
    """A split of a source goes."""

    split: str


class RemoveKey(_Line, frozen=True, kw_only=True):
    """A key goes, with its windows, map entries and timers.

    state: None: from every keyed state.
    key: text by column; the column of a key that was written as one value is ``.
    map_key: of map state: this entry alone.
    """

    state: str | None
    key: tuple[tuple[str, str], ...]
    map_key: str | None = None


class SetKey(_Line, frozen=True, kw_only=True):
    """The value of a key, which may be new.

    value: as JSON, as `abs state -o json` prints it. With a time to live it keeps the last access that it had, unless
        it is given as `{last_access: MILLISECONDS, value: ...}`, as a new one has to be.
    map_key: of map state: the entry.
    """

    state: str
    key: tuple[tuple[str, str], ...]
    value: str
    map_key: str | None = None


class SetPosition(_Line, frozen=True, kw_only=True):
    """Where a source reads on in a split."""

    split: str
    position: int


class SetMaxParallelism(_Line, frozen=True, kw_only=True):
    """How many key groups an operator has."""

    number: int


Change: TypeAlias = (
    MoveOperator | RemoveOperator | RemoveState | RemoveSplit | RemoveKey | SetKey | SetPosition | SetMaxParallelism
)


class Changes(msgspec.Struct, frozen=True):
    """All of a file, in its order.

    file: as it was named.
    """

    file: str
    lines: tuple[Change, ...]


POSITIONS: Final = {"latest": -1, "earliest": -2, "committed": -3}
"""Words of a position, as `KafkaPartitionSplit` has them."""

_SCALAR: Final[Schema] = {"type": ["string", "number", "boolean"]}


@shape("text", type="string", minLength=1)
def text(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """A name, which may look like a number."""
    if isinstance(node, Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.text
    return read.string.read(node, label, mistakes)


MOVE = Record(
    {"from": text, "to": text},
    {"from": None, "to": None},
    descriptions={
        "from": "An operator of the snapshot: uid, hash, or a name that only one has.",
        "to": "Its new uid; 32 hexadecimal digits are a hash.",
    },
)
@shape(
    "key",
    description="One value, or a value for each column of a key that has several, as `abs state` shows them.",
    anyOf=[_SCALAR, {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR}],
)
def key(node: Node, label: str, mistakes: Mistakes) -> tuple[tuple[str, str], ...] | None:
    """A key by its columns, as text."""
    if isinstance(node, Mapping) and node.pairs:
        columns = tuple((name, _word(value, f"{label}: {name}", mistakes)) for name, (_, value) in node.pairs.items())
        return tuple((name, word) for name, word in columns if word is not None)
    if isinstance(node, Scalar):
        word = _word(node, label, mistakes)
        return None if word is None else (("", word),)
    mistakes.add(node, f"{label} must be one value, or a mapping of columns, not {read.describe(node)}")
    return None


@shape(None, **_SCALAR)
def map_key(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """The key of an entry of a map, as text."""
    return _word(node, label, mistakes)


def _word(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """A value as it is written."""
    if isinstance(node, Scalar) and node.value is not None:
        return node.value if isinstance(node.value, str) else node.text
    mistakes.add(node, f"{label} must be a value, not {read.describe(node)}")
    return None


@shape(None, description="As `abs state -o json` prints it.")
def value(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """A value as JSON."""
    return msgspec.json.encode(read.plain(node, label, mistakes)).decode()


@shape(None, anyOf=[{"type": "integer", "minimum": 0}, {"enum": list(POSITIONS)}])
def position(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """An offset or number; a word for those that Kafka looks up when the job starts."""
    if isinstance(node, Scalar) and node.value in POSITIONS:
        return POSITIONS[str(node.value)]
    number = node.value if isinstance(node, Scalar) else None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
        message = f"{label} must be a whole number from 0 on, or {', '.join(POSITIONS)}, not {read.describe(node)}"
        mistakes.add(node, message)
        return None
    return number


REMOVE = Record(
    {"operator": text, "state": text, "key": key, "map_key": map_key, "split": text},
    {"operator": None},
    descriptions={
        "state": "A state of this operator, keyed or not, by its name.",
        "key": "A key; without a state, of every keyed state of the operator.",
        "map_key": "One entry of the key's map.",
        "split": "A split of this source, as `abs inspect` shows it.",
    },
)
SET = Record(
    {
        "operator": text, "state": text, "key": key, "map_key": map_key, "value": value, "split": text,
        "position": position, "max_parallelism": read.positive,
    },
    {"operator": None},
    descriptions={
        "map_key": "The entry of the key's map.",
        "value": "The value of a key in a state; with a time to live also {last_access: MILLISECONDS, value: ...}.",
        "position": "The number or offset that is read next in a split.",
        "max_parallelism": "Key groups of the operator.",
    },
)  # fmt: skip

KEYS: Schema = {
    "version": {"const": VERSION},
    "moved": {
        "type": "array",
        "items": MOVE.schema,
        "description": "Operators that have another uid from now on.",
    },
    "removed": {
        "type": "array",
        "items": {"anyOf": [text.reference(), REMOVE.schema]},
        "description": "What goes: an operator with all that it has, one of its states, a key, or a split of a source.",
    },
    "set": {
        "type": "array",
        "items": {
            **SET.schema,
            "oneOf": [{"required": list(names)} for names in (("state", "key", "value"), ("split", "position"),
                                                              ("max_parallelism",))],
        },
        "description": "What has another value: a key in a state, where a split is read on, the number of key groups.",
    },
}
SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "flink-changes.json",
    "title": "A file of changes to a snapshot of Flink",
    "description": "What `abs rewrite SNAPSHOT --changes FILE` writes anew in a copy. Operators are named as the "
    "snapshot has them. What the snapshot has is beyond this schema; a dry run checks it.",
    "type": "object",
    "required": ["version"],
    "properties": KEYS,
    "additionalProperties": False,
    "$defs": {"text": text.schema, "key": key.schema, "positive": read.positive.schema},
}
"""The JSON Schema of a file of changes, from the shapes that read it."""


def read_changes(path: str | os.PathLike[str]) -> Changes:
    """The changes in a file. BadFile with every mistake, UnsupportedVersion, FormatError."""
    name = os.fspath(path)
    data = read_user_file(name, MAX_BYTES, hint="give a file of changes, YAML or JSON")
    return parse_changes(data, name)


def parse_changes(data: bytes, name: str) -> Changes:
    """The changes that the bytes of a file hold; the rest is as of `read_changes`."""
    mistakes = Mistakes(name)
    root = read_nodes(data, mistakes)
    if not isinstance(root, Mapping):
        content = read.describe(root) if root and not (isinstance(root, Scalar) and root.value is None) else "nothing"
        message = f"a file of changes must be a mapping, not {content}"
        mistakes.fatal(root or Spot(1, 1), message, f"begin with version: {VERSION}")
    read.check_version(root, VERSION, "changes", mistakes)
    read.only(root, tuple(KEYS), "changes", mistakes)
    lines: list[Change] = [*_moved(root, mistakes), *_removed(root, mistakes), *_set(root, mistakes)]
    lines.sort(key=lambda line: (line.line, line.column))
    _check_moves(lines, mistakes)
    mistakes.raise_any()
    return Changes(name, tuple(lines))


def _at(node: Node) -> dict[str, int]:
    return {"line": node.line, "column": node.column}


def _moved(root: Mapping, mistakes: Mistakes) -> Iterator[MoveOperator]:
    for item in read.items(root, "moved", "[{from: UID, to: UID}]", mistakes):
        ends = MOVE.read(item, "moved", mistakes, "an entry of moved") or {}
        before, after = ends.get("from"), ends.get("to")
        if before is not None and after is not None:
            yield MoveOperator(operator=before, to=after, **_at(item))


def _removed(root: Mapping, mistakes: Mistakes) -> Iterator[Change]:
    for item in read.items(root, "removed", "[OPERATOR]", mistakes):
        if not isinstance(item, Mapping):
            operator = text.read(item, "removed", mistakes)
            if operator is not None:
                yield RemoveOperator(operator=operator, **_at(item))
            continue
        entry: dict[str, Any] | None = REMOVE.read(item, "removed", mistakes, "an entry of removed")
        if entry is None or None in entry.values():
            continue  # a mistake says so
        at = {"operator": entry.pop("operator"), **_at(item)}
        match sorted(entry):
            case ["state"]:
                yield RemoveState(**at, **entry)
            case ["split"]:
                yield RemoveSplit(**at, **entry)
            case ["key"] | ["key", "state"] | ["key", "map_key", "state"]:
                yield RemoveKey(**at, state=entry.pop("state", None), **entry)
            case [] if "operator" in item.pairs:
                mistakes.add(item, "an entry of removed names an operator alone", "write it without a mapping")
            case names:
                mistakes.add(item, f"an entry of removed has {' and '.join(names)}, which do not go together")


def _set(root: Mapping, mistakes: Mistakes) -> Iterator[Change]:
    for item in read.items(root, "set", "[{operator: UID, max_parallelism: 256}]", mistakes):
        entry: dict[str, Any] | None = SET.read(item, "set", mistakes, "an entry of set")
        if entry is None or None in entry.values():
            continue
        at = {"operator": entry.pop("operator"), **_at(item)}
        match sorted(entry):
            case ["key", "state", "value"] | ["key", "map_key", "state", "value"]:
                yield SetKey(**at, **entry)
            case ["position", "split"]:
                yield SetPosition(**at, **entry)
            case ["max_parallelism"]:
                yield SetMaxParallelism(**at, number=entry["max_parallelism"])
            case names:
                mistakes.add(
                    item, f"an entry of set has {' and '.join(names) or 'an operator alone'}",
                    "it has state, key and value; or split and position; or max_parallelism",
                )  # fmt: skip


def _check_moves(lines: list[Change], mistakes: Mistakes) -> None:
    """A move says what is, whatever was done already: so no name may be the end of one and the beginning of another."""
    moves = [line for line in lines if isinstance(line, MoveOperator)]
    begins: dict[str, MoveOperator] = {}
    ends: dict[str, MoveOperator] = {}
    for move in moves:
        for name, seen, end in ((move.operator, begins, "from"), (move.to, ends, "to")):
            if name in seen:
                mistakes.add(move, f"moved: two lines move {end} {shown(name)}", "remove one")
            seen[name] = move
    for move in moves:
        if move.to in begins and move.to != move.operator:
            also_from(move, mistakes)


def also_from(move: MoveOperator, mistakes: Mistakes) -> None:
    """The mistake of a move that ends where another one begins."""
    message = f"moved: {shown(move.to)} is also moved from, so that it could not be told what was done already"
    mistakes.add(move, message, "two operators exchange their uids in two copies, over a third uid")
