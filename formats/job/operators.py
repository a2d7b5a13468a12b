"""One operator's entry in a topology file -> a draft: checked on its own, not yet against the graph.

What an entry may hold stands in tables of shapes (`MARKS`, `INPUT`, `KINDS`): they read it, and the schema is made of
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from formats.job.event_time import EVENT_TIME, duration
from formats.job.identifiers import ID, ID_SCHEMA, clipped
from formats.job.joins import joined
from formats.job.kinds import KINDS
from formats.job.model import (
    JOIN_NUMBER,
    JOIN_SIDE,
    KEYED,
    LATE_OUTPUTS,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Emit,
    Join,
    Keeping,
    Kind,
    Lookup,
    OnError,
    Partition,
    Ttl,
    Window,
)
from formats.job.on_error import FAILING_SOURCES, may_go_on, on_error
from formats.job.windows import ttl, window
from formats.user_file import values as read
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Sequence, shown
from formats.user_file.values import Record, Schema, Shape, one_of

_IDS: Schema = {"propertyNames": {"pattern": ID_SCHEMA["pattern"]}}


@dataclass(slots=True)
class Input:
    """One entry of `from`.

    at: where the sender is named;
    options: what stands with it;
    broken: its partition or key does not hold.
    """

    source: str
    at: Scalar
    options: Mapping | None = None
    partition: Partition | None = None
    key: tuple[str, ...] | None = None
    replayable: bool = False
    output: str | None = None
    broken: bool = False

    def place(self, option: str) -> Node:
        """Where the value of an option stands, or the sender's name if it is left out."""
        given = self.options.pairs.get(option) if self.options else None
        return given[1] if given else self.at


@dataclass(slots=True)
class Draft:
    """One operator as read; what is not named here is as of `Operator`.

    at: where its id stands;
    entry: its mapping;
    kind: None if it is not known;
    parallelism, max_parallelism: None if broken, here or where the default stands;
    inputs_broken: `from` has entries that could not be read;
    key: None if broken;
    outputs_broken: a `reduce` has outputs that could not be read;
    join_options: what a `join` says, of inputs that may be others; join_broken: it could not be read.
    """

    id: str
    at: Scalar
    entry: Mapping | None = None
    kind: Kind | None = Kind.OPAQUE
    parallelism: int | None = 1
    max_parallelism: int | None = None
    deterministic: bool = True
    ordered_output: bool = False
    on_error: OnError | msgspec.UnsetType = msgspec.UNSET
    inputs: list[Input] = field(default_factory=list)
    inputs_broken: bool = False
    function: str | None = None
    key: tuple[str, ...] | None = ()
    aggregates: tuple[Aggregate, ...] = ()
    outputs_broken: bool = False
    emit: Emit | None = None
    connector: dict[str, Any] | None = None
    window: Window | None = None
    ttl: Ttl | None = None
    join: Join | None = None
    join_options: dict[str, Any] | None = None
    join_broken: bool = False
    lookup: Lookup | None = None
    keeping: Keeping | None = None

    @property
    def inputs_at(self) -> Scalar | None:
        """Where `from` stands, if it does."""
        return self.entry.pairs["from"][0] if self.entry and "from" in self.entry.pairs else None

    def place(self, keys: tuple[str, ...]) -> Node:
        """Where the value under these keys stands, as far down as they lead; an input by its operator's id."""
        if keys[:1] == ("from",):
            named = [given.at for given in self.inputs if given.source in keys[1:]]
            return named[0] if named else self.inputs_at or self.at
        place: Node = self.at
        node: Node | None = self.entry
        for key in keys:
            if not isinstance(node, Mapping) or key not in node.pairs:
                break
            at, node = node.pairs[key]
            place = at if isinstance(node, Mapping) else node
        return place


def read_operator(
    key: Scalar, node: Node, parallelism: int | None, max_parallelism: int | None, mistakes: Mistakes
) -> Draft:
    """The draft of one operator; parallelism, max_parallelism: the file's defaults, None if they are broken."""
    if not isinstance(key.value, str):
        word = ID.fullmatch(key.text)
        hint: str | None = f'quote it: "{key.text}", or choose another id' if word else "choose another id"
        mistakes.add(key, f"an operator's id must be a string, not {read.describe(key)}", hint)
    elif not ID.fullmatch(key.text):
        hint = "a letter, then letters, digits, '_', '.' or '-'"
        mistakes.add(key, f"{shown(key.text)} is not an operator id", hint)
    draft = Draft(key.text, key)
    where = f"operator {clipped(key.text)}"
    if not isinstance(node, Mapping):
        hint = "write {} for an opaque operator without inputs" if getattr(node, "value", "") is None else None
        mistakes.add(node, f"{where} must be a mapping, not {read.describe(node)}", hint)
        draft.kind, draft.inputs_broken = None, True
        draft.parallelism, draft.max_parallelism = parallelism, max_parallelism
        return draft
    draft.entry = node
    read.only(node, ("from", *MARKS.fields, *KINDS), where, mistakes)
    marks = MARKS.read(node, where, mistakes) or {}
    draft.parallelism = marks.get("parallelism", parallelism)
    draft.max_parallelism = marks.get("max_parallelism", max_parallelism)
    draft.deterministic = marks.get("deterministic") is not False
    draft.ordered_output = marks.get("ordered_output") is True
    draft.window, draft.ttl = marks.get("window"), marks.get("ttl")
    if "from" in node.pairs:
        _read_inputs(draft, node.pairs["from"][1], where, mistakes)
    _read_kind(draft, node, where, mistakes)
    draft.on_error = marks.get("on_error") or msgspec.UNSET
    fails = may_go_on(draft.kind, draft.connector) and (draft.kind is not Kind.DISTINCT or draft.ttl is not None)
    if draft.on_error is not msgspec.UNSET and not fails:
        of_type = f" of type {draft.connector.get('type')}" if draft.kind is Kind.SOURCE and draft.connector else ""
        message = f"{where}: on_error is for operators that can leave a record out, not for a {draft.kind}{of_type}"
        hint = "map, filter, flat_map, reduce, join, process with a key, distinct with a ttl, "
        hint += f"and sources of type {', '.join(FAILING_SOURCES)} can"
        mistakes.add(node.pairs["on_error"][0], message, hint)
    return draft


# -- marks and inputs -----------------------------------------------------------------------------------------

MARKS = Record(
    {
        "parallelism": read.positive,
        "max_parallelism": read.positive,
        "deterministic": read.boolean,
        "ordered_output": read.boolean,
        "window": window,
        "ttl": ttl,
        "on_error": on_error,
    },
    more=True,
    descriptions={
        "deterministic": "false: the same input may give other output.",
        "ordered_output": "A promise: the sequence on each output channel depends neither on how inputs interleave nor "
        "on where batches or epochs end.",
        "on_error": "What becomes of a record on which it fails; left out: it ends the run.",
    },
)
INPUT = Record(
    {
        "partition": one_of(Partition), "key": read.columns, "replayable": read.boolean,
        "output": Shape(read.string.read, {"enum": list(LATE_OUTPUTS)}),
    },
    descriptions={
        "replayable": "A log of what the sender sent since the last complete epoch is kept.",
        "output": "late: the rows that came too late for the sender's windows, in place of what it puts out; of a join "
        "late_left or late_right.",
    },
)
FROM_SCHEMA: Schema = {
    "anyOf": [
        {"$ref": "#/$defs/id"},
        {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"$ref": "#/$defs/id"}},
        {
            "type": "object",
            "minProperties": 1,
            **_IDS,
            "additionalProperties": {"anyOf": [{"$ref": "#/$defs/input"}, {"type": "null"}]},
        },
    ]
}


def _read_inputs(draft: Draft, node: Node, where: str, mistakes: Mistakes) -> None:
    seen: set[str] = set()
    for sender, options in _senders(node):
        if isinstance(sender, Scalar) and sender.text in seen:  # in a list: a mapping has no key twice
            mistakes.add(sender, f"{where}: input {shown(sender.text)} stands twice in from", "name it once")
            continue
        name = read.string.read(sender, f"{where}: an input", mistakes)
        if name is None or not isinstance(sender, Scalar):
            draft.inputs_broken = True
        else:
            draft.inputs.append(_input(name, sender, options, f"{where}: input {clipped(name)}", mistakes))
        if isinstance(sender, Scalar):
            seen.add(sender.text)
    if not draft.inputs and not draft.inputs_broken:
        mistakes.add(node, f"{where}: from names no operator", "leave from out for a source")
        draft.inputs_broken = True


def _senders(node: Node) -> Iterator[tuple[Node, Node | None]]:
    """What `from` names, and the options that stand with it: one id, a list of them, or a mapping."""
    if isinstance(node, Mapping):
        yield from node.pairs.values()
    elif isinstance(node, Sequence):
        yield from ((item, None) for item in node.items)
    else:
        yield node, None


def _input(source: str, at: Scalar, options: Node | None, label: str, mistakes: Mistakes) -> Input:
    if options is None or (isinstance(options, Scalar) and options.value is None):
        return Input(source, at)
    values = INPUT.read(options, label, mistakes)
    if values is None or not isinstance(options, Mapping):
        return Input(source, at, broken=True)
    broken = any(values.get(name, "") is None for name in ("partition", "key", "output"))
    output = values.get("output")
    if output not in (None, *LATE_OUTPUTS):
        hint = f"one of {', '.join(LATE_OUTPUTS)}"
        mistakes.add(options.pairs["output"][1], f"{label} has no output {shown(str(output))}", hint)
        broken, output = True, None
    replayable = values.get("replayable") is True
    return Input(source, at, options, values.get("partition"), values.get("key"), replayable, output, broken)


def _read_kind(draft: Draft, node: Mapping, where: str, mistakes: Mistakes) -> None:
    given = [key for key in node.pairs if key in KINDS]
    for extra in given[1:]:
        message = f"{where}: both {given[0]} and {extra}; an operator does one thing"
        mistakes.add(node.pairs[extra][0], message, "split it into two operators")
    if given:
        kind = draft.kind = Kind(given[0])
        members = KINDS[kind].read(node.pairs[kind][1], f"{where}: {kind}", mistakes)
        if members is None and kind in KEYED:
            draft.key = None
        for name, value in (members or {}).items():
            setattr(draft, name, value)
    _check_times(draft, where, mistakes)
    _check_join(draft, where, mistakes)


def _check_join(draft: Draft, where: str, mistakes: Mistakes) -> None:
    """What a join says of its inputs, which have been read."""
    if draft.kind is not Kind.JOIN or draft.join_options is None:
        return
    for name in draft.key or ():
        if name in (JOIN_SIDE, JOIN_NUMBER):
            message = f"{where}: {name} is a column of its state"
            mistakes.add(draft.place(("join", "key")), message, "give the column another name in a map before it")

    def mistake(option: str, message: str, hint: str | None) -> None:
        place = draft.inputs_at or draft.at if option == "from" else draft.place(("join", option))
        mistakes.add(place, f"{where}: {message}", hint)

    if draft.inputs_at is not None and not draft.inputs_broken:
        draft.join = joined(draft.join_options, [given.source for given in draft.inputs], mistake)
    draft.join_broken = draft.join is None


def _check_times(draft: Draft, where: str, mistakes: Mistakes) -> None:
    """What windows and a time to live go with."""
    if draft.window is not None and draft.kind is not Kind.REDUCE:
        mistakes.add(draft.place(("window",)), f"{where}: windows are for a reduce, not for {draft.kind}")
    elif draft.window is not None:
        if draft.emit not in (None, Emit.EPOCH):
            message = f"{where}: windows are put out when they end, and emit is {draft.emit}"
            mistakes.add(draft.place(("reduce", "emit")), message, "remove emit")
        for name in [*(draft.key or ()), *(state for output in draft.aggregates for state in output.state)]:
            if name in (WINDOW_START, WINDOW_END):
                message = f"{where}: {name} is a column of its windows"
                mistakes.add(draft.place(("reduce",)), message, "give the other another name")
    is_keyed = draft.kind in (Kind.REDUCE, Kind.DISTINCT) or (draft.kind is Kind.PROCESS and draft.key)
    if draft.ttl is not None and not is_keyed:
        of = draft.kind if draft.kind is not Kind.PROCESS else "a process without a key"
        message = f"{where}: a time to live is for a reduce, a distinct or a keyed process, not for {of}"
        mistakes.add(draft.place(("ttl",)), message)
    elif draft.ttl is not None and draft.keeping is not None and draft.keeping.time is not None:
        message = f"{where}: a key has a timer or a time to live, and this says both time and ttl"
        mistakes.add(draft.place(("ttl",)), message, "remove ttl, and let the function forget keys when timers fire")
    elif draft.ttl is not None and draft.window is not None:
        mistakes.add(draft.place(("ttl",)), f"{where}: windows end by themselves", "remove ttl")


# -- the schema of an entry ------------------------------------------------------------------------------------


def _operator_schema() -> Schema:
    given = [{"required": [kind.value]} for kind in KINDS]
    kinds = {kind.value: s.reference() for kind, s in KINDS.items()}
    return {
        "description": "At most one of the eleven kinds; an operator with none is opaque.",
        **MARKS.schema,
        "properties": {"from": {"$ref": "#/$defs/from"}, **MARKS.schema["properties"], **kinds},
        "additionalProperties": False,
        "oneOf": [*given, {"not": {"anyOf": given}}],
    }


OPERATORS_SCHEMA: Schema = {
    "type": "object",
    "minProperties": 1,
    **_IDS,
    "additionalProperties": {"$ref": "#/$defs/operator"},
}
_NAMED: tuple[Shape[Any], ...] = (
    read.string, read.positive, read.columns, read.function, duration, EVENT_TIME, on_error, *KINDS.values(),
)  # fmt: skip
DEFINITIONS: Schema = {
    "id": ID_SCHEMA,
    "operator": _operator_schema(),
    "from": FROM_SCHEMA,
    "input": INPUT.schema,
    **{shape.name: shape.schema for shape in _NAMED if shape.name},
}
