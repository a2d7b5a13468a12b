"""One operator's entry in a topology file -> a draft: checked on its own, not yet against the graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from formats.job import values as read
from formats.job.errors import Findings
from formats.job.model import Aggregate, Kind, Partition
from formats.job.nodes import Mapping, Node, Scalar, Sequence, shown

KINDS = tuple(kind for kind in Kind if kind is not Kind.OPAQUE)
MARKS = ("from", "parallelism", "max_parallelism", "deterministic", "ordered_output")
ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
FILE_OPTIONS = ("type", "path", "deterministic")
CONNECTORS = {
    (Kind.SOURCE, "text"): FILE_OPTIONS,
    (Kind.SOURCE, "jsonl"): (*FILE_OPTIONS, "schema"),
    (Kind.SINK, "jsonl"): FILE_OPTIONS,
}
"""The options of connectors that this format knows; those of all others are kept as they are."""


class Emit(StrEnum):
    """When a `reduce` emits."""

    EPOCH = "epoch"
    RECORD = "record"
    BATCH = "batch"


class Function(StrEnum):
    """What a named output of a `reduce` computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(slots=True)
class Input:
    """One entry of `from`. The nodes say where its partition and key stand; broken: they do not hold."""

    source: str
    at: Scalar
    partition: Partition | None = None
    partition_at: Node | None = None
    key: tuple[str, ...] | None = None
    key_at: Node | None = None
    replayable: bool = False
    broken: bool = False


@dataclass(slots=True)
class Draft:
    """One operator as read. kind None: not known; key None: broken; parallelism None: broken, here or where the
    default stands; inputs_broken: `from` has entries that could not be read; outputs_broken: so has a
    `reduce`; entry: the operator's mapping."""

    id: str
    at: Scalar
    kind: Kind | None = Kind.OPAQUE
    parallelism: int | None = 1
    parallelism_at: Node | None = None
    max_parallelism: int | None = None
    max_parallelism_at: Node | None = None
    inputs: list[Input] = field(default_factory=list)
    inputs_at: Scalar | None = None
    inputs_broken: bool = False
    function: str | None = None
    key: tuple[str, ...] | None = ()
    aggregates: tuple[Aggregate, ...] = ()
    outputs_broken: bool = False
    emit: Emit | None = None
    connector: dict[str, Any] | None = None
    deterministic: bool = True
    ordered_output: bool = False
    entry: Node | None = None

    def place(self, keys: tuple[str, ...]) -> Node:
        """Where the value under these keys stands, as far down as they lead; an input by its operator's id."""
        if keys[:1] == ("from",):
            named = [given.at for given in self.inputs if given.source in keys[1:]]
            return named[0] if named else self.inputs_at or self.at
        place: Node = self.at
        node = self.entry
        for key in keys:
            if not isinstance(node, Mapping) or key not in node.pairs:
                break
            at, node = node.pairs[key]
            place = at if isinstance(node, Mapping) else node
        return place


def read_operator(
    key: Scalar, node: Node, parallelism: int | None, max_parallelism: int | None, findings: Findings
) -> Draft:
    """The draft of one operator; parallelism, max_parallelism: the file's defaults, None if they are broken."""
    if not isinstance(key.value, str):
        word = ID.fullmatch(key.text)
        hint: str | None = f'quote it: "{key.text}", or choose another id' if word else "choose another id"
        findings.add(key, f"an operator's id must be a string, not {read.describe(key)}", hint)
    elif not ID.fullmatch(key.text):
        hint = "a letter, then letters, digits, '_', '.' or '-'"
        findings.add(key, f"{shown(key.text)} is no operator id", hint)
    draft = Draft(key.text, key, parallelism=parallelism, max_parallelism=max_parallelism)
    where = f"operator {_clip(key.text)}"
    if not isinstance(node, Mapping):
        hint = "write {} for an opaque operator without inputs" if getattr(node, "value", "") is None else None
        findings.add(node, f"{where} must be a mapping, not {read.describe(node)}", hint)
        draft.kind, draft.inputs_broken = None, True
        return draft
    draft.entry = node
    read.only(node, (*MARKS, *KINDS), where, findings)
    for mark, (at, value) in node.pairs.items():
        if mark in _MARKS:
            _MARKS[mark](draft, at, value, where, findings)
    _read_kind(draft, node, where, findings)
    return draft


def _clip(id: str) -> str:
    return id if len(id) <= 60 and ID.fullmatch(id) else shown(id)


def _parallelism(draft: Draft, at: Scalar, node: Node, where: str, findings: Findings) -> None:
    draft.parallelism = read.positive(node, f"{where}: parallelism", findings)
    draft.parallelism_at = node


def _max_parallelism(draft: Draft, at: Scalar, node: Node, where: str, findings: Findings) -> None:
    draft.max_parallelism = read.positive(node, f"{where}: max_parallelism", findings)
    draft.max_parallelism_at = node


def _deterministic(draft: Draft, at: Scalar, node: Node, where: str, findings: Findings) -> None:
    draft.deterministic = read.boolean(node, f"{where}: deterministic", findings) is not False


def _ordered_output(draft: Draft, at: Scalar, node: Node, where: str, findings: Findings) -> None:
    draft.ordered_output = read.boolean(node, f"{where}: ordered_output", findings) is True


def _from(draft: Draft, at: Scalar, node: Node, where: str, findings: Findings) -> None:
    draft.inputs_at = at
    if isinstance(node, Mapping):
        for name, options in node.pairs.values():
            _input(draft, name, options, where, findings)
    elif isinstance(node, Sequence):
        seen: set[str] = set()
        for item in node.items:
            if isinstance(item, Scalar) and item.text in seen:
                findings.add(item, f"{where}: input {shown(item.text)} stands twice in from", "name it once")
                continue
            if isinstance(item, Scalar):
                seen.add(item.text)
            _input(draft, item, None, where, findings)
    else:
        _input(draft, node, None, where, findings)
    if not draft.inputs and not draft.inputs_broken:
        findings.add(node, f"{where}: from names no operator", "leave from out for a source")
        draft.inputs_broken = True


def _input(draft: Draft, at: Node, options: Node | None, where: str, findings: Findings) -> None:
    source = read.string(at, f"{where}: an input", findings)
    if source is None or not isinstance(at, Scalar):
        draft.inputs_broken = True
        return
    entry = Input(source, at)
    draft.inputs.append(entry)
    if options is None or (isinstance(options, Scalar) and options.value is None):
        return
    what = f"{where}: input {_clip(source)}"
    node = read.mapping(options, what, findings)
    if node is None:
        entry.broken = True
        return
    read.only(node, ("partition", "key", "replayable"), what, findings)
    for name, (_, value) in node.pairs.items():
        if name == "partition":
            entry.partition_at = value
            entry.partition = read.member(value, f"{what}: partition", Partition, findings)
            entry.broken |= entry.partition is None
        elif name == "key":
            entry.key_at = value
            entry.key = read.columns(value, f"{what}: key", findings)
            entry.broken |= entry.key is None
        elif name == "replayable":
            entry.replayable = read.boolean(value, f"{what}: replayable", findings) is True


def _read_kind(draft: Draft, node: Mapping, where: str, findings: Findings) -> None:
    found = [kind for kind in node.pairs if kind in KINDS]
    for extra in found[1:]:
        message = f"{where}: both {found[0]} and {extra}; an operator does one thing"
        findings.add(node.pairs[extra][0], message, "split it into two operators")
    if found:
        kind = draft.kind = Kind(found[0])
        _KINDS[kind](draft, node.pairs[found[0]][1], f"{where}: {kind}", findings)


def _connector(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    options = read.mapping(node, what, findings)
    if options is None:
        return
    if "type" not in options.pairs:
        findings.add(options, f"{what} has no type", "text, jsonl or another connector's name")
        return
    kind = read.string(options.pairs["type"][1], f"{what}: type", findings)
    assert draft.kind is not None
    known = CONNECTORS.get((draft.kind, kind or ""))
    if known:
        read.only(options, known, f"{what} {kind}", findings)
        if "path" not in options.pairs:
            findings.add(options, f"{what} {kind} has no path")
    for name, (_, value) in options.pairs.items():
        if known and name == "path":
            read.string(value, f"{what}: path", findings)
        elif known and name == "deterministic":
            read.boolean(value, f"{what}: deterministic", findings)
        elif known and name == "schema":
            _schema(value, f"{what}: schema", findings)
    rest = Findings("") if known else findings  # what was checked by name needs no second finding
    draft.connector = {n: read.plain(v, f"{what}: {_clip(n)}", rest) for n, (_, v) in options.pairs.items()}


def _schema(node: Node, what: str, findings: Findings) -> None:
    columns = read.mapping(node, what, findings)
    if columns is None:
        return
    if not columns.pairs:
        findings.add(node, f"{what} names no column", "leave it out to take the columns from the first file")
    for key, value in columns.pairs.values():
        read.string(key, f"{what}: a column", findings)
        read.string(value, f"{what}: the type of {shown(key.text)}", findings)


def _function(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    draft.function = read.function(node, what, findings)


def _process(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    if isinstance(node, Mapping) or draft.kind is Kind.JOIN:
        _keyed_function(draft, node, what, findings)
    else:
        _function(draft, node, what, findings)


def _keyed_function(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    options = read.mapping(node, what, findings)
    if options is None:
        draft.key = None
        return
    read.only(options, ("key", "function"), what, findings)
    if "function" in options.pairs:
        draft.function = read.function(options.pairs["function"][1], f"{what}: function", findings)
    else:
        findings.add(options, f"{what} has no function")
    if "key" in options.pairs:
        draft.key = read.columns(options.pairs["key"][1], f"{what}: key", findings)
    elif draft.kind is Kind.JOIN:
        findings.add(options, f"{what} has no key", "key: [column, ...]")
        draft.key = None


def _distinct(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    draft.key = read.columns(node, what, findings)


def _union(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    empty = isinstance(node, Scalar) and (node.value is None or node.value is True)
    if not empty and not (isinstance(node, Mapping) and not node.pairs):
        findings.add(node, f"{what} takes no options, not {read.describe(node)}", "write {}; its inputs stand in from")


def _reduce(draft: Draft, node: Node, what: str, findings: Findings) -> None:
    draft.emit = Emit.EPOCH
    draft.key = None
    options = read.mapping(node, what, findings)
    if options is None:
        return
    outputs = []
    for name, (at, value) in options.pairs.items():
        if name == "key":
            draft.key = read.columns(value, f"{what}: key", findings)
        elif name == "emit":
            draft.emit = read.member(value, f"{what}: emit", Emit, findings) or Emit.EPOCH
        elif read.string(at, f"{what}: an output", findings) is not None:
            outputs.append(_aggregate(at, value, f"{what}: output {_clip(name)}", findings))
    if "key" not in options.pairs:
        findings.add(options, f"{what} has no key", "key: [column, ...]")
    if not any(name not in ("key", "emit") for name in options.pairs):
        findings.add(options, f"{what} has no output", 'for example n: {count: "*"}')
    draft.aggregates = tuple(output for output in outputs if output is not None)
    draft.outputs_broken = None in outputs
    for output in draft.aggregates:
        if output.name in (draft.key or ()):
            at = options.pairs[output.name][0]
            findings.add(at, f"{what}: output {_clip(output.name)} has the name of a key column", "rename the output")


def _aggregate(at: Scalar, node: Node, what: str, findings: Findings) -> Aggregate | None:
    options = read.mapping(node, what, findings)
    if options is None:
        return None
    if len(options.pairs) != 1:
        message = f"{what} must have one of {', '.join(Function)}, not {len(options.pairs)} entries"
        findings.add(options, message, f'for example {at.text}: {{count: "*"}}')
        return None
    ((key, value),) = options.pairs.values()
    name = read.member(key, f"{what}: its function", Function, findings)
    column = read.string(value, f"{what}: its column", findings)
    if name is None or column is None:
        return None
    if name is Function.COUNT and column != "*":
        findings.add(value, f'{what}: count takes "*", not {shown(column)}', "it counts rows")
        return None
    return Aggregate(at.text, name.value, column)


_MARKS: dict[str, Callable[[Draft, Scalar, Node, str, Findings], None]] = {
    "from": _from,
    "parallelism": _parallelism,
    "max_parallelism": _max_parallelism,
    "deterministic": _deterministic,
    "ordered_output": _ordered_output,
}
_KINDS: dict[Kind, Callable[[Draft, Node, str, Findings], None]] = {
    Kind.SOURCE: _connector,
    Kind.SINK: _connector,
    Kind.MAP: _function,
    Kind.FILTER: _function,
    Kind.FLAT_MAP: _function,
    Kind.PROCESS: _process,
    Kind.JOIN: _keyed_function,
    Kind.DISTINCT: _distinct,
    Kind.UNION: _union,
    Kind.REDUCE: _reduce,
}
