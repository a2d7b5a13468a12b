"""What a value of a file that people write may be: a shape reads one node, and says the same as a JSON Schema.

A reader adds a mistake and returns None where the node does not hold: all mistakes of a file are told at once, each
with its place, where msgspec would stop at the first and know no line. YAML 1.1 reads bare `no`, `on`, `010` and `1:30`
as something other than text; mistakes say as what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from formats.errors import UnsupportedVersion
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Sequence, shown

MAX_INT = 2**31 - 1
MAX_NUMBER = 2**63 - 1
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_Value = TypeVar("_Value")
_Member = TypeVar("_Member", bound=StrEnum)

Schema = dict[str, Any]
Reader = Callable[[Node, str, Mistakes], _Value | None]
"""From a node, and the label that messages give it, to its value; None, and a mistake, where it does not hold."""


@dataclass(frozen=True, slots=True)
class Shape(Generic[_Value]):
    """One kind of value.

    read: the value of a node;
    schema: what it accepts, as a JSON Schema;
    name: under which the schema stands among the definitions of the file's; None: at each place of its own.
    """

    read: Reader[_Value]
    schema: Schema
    name: str | None = None

    def reference(self, description: str | None = None) -> Schema:
        """The schema as it stands where the shape is used; description: of this use."""
        own = {"$ref": f"#/$defs/{self.name}"} if self.name else self.schema
        return own | ({"description": description} if description else {})


def shape(name: str | None, **schema: Any) -> Callable[[Reader[_Value]], Shape[_Value]]:
    """Makes a shape of the function that reads it."""
    return lambda read: Shape(read, schema, name)


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping whose keys are known.

    fields: shape by key;
    required: the keys that must be there, each with a hint for when it is not;
    more: it may have others, which are not read here;
    descriptions: of fields, for the schema.
    """

    fields: dict[str, Shape[Any]]
    required: dict[str, str | None] = field(default_factory=dict)
    more: bool = False
    descriptions: dict[str, str] = field(default_factory=dict)

    def read(self, node: Node, label: str, mistakes: Mistakes, title: str | None = None) -> dict[str, Any] | None:
        """Values by key, of the keys that are there; None for a value that does not hold or has to be there and is not.

        title: what messages call the record as a whole, where that is not `label`.
        """
        options = mapping(node, label, mistakes)
        if options is None:
            return None
        if not self.more:
            only(options, tuple(self.fields), title or label, mistakes)
        values: dict[str, Any] = {}
        for key, hint in self.required.items():
            if key not in options.pairs:
                mistakes.add(options, f"{title or label} has no {key}", hint)
                values[key] = None
        for key, (_, value) in options.pairs.items():
            if key in self.fields:
                values[key] = self.fields[key].read(value, f"{label}: {key}", mistakes)
        return values

    @property
    def schema(self) -> Schema:
        """As a JSON Schema."""
        return {
            "type": "object",
            **({"required": list(self.required)} if self.required else {}),
            "properties": {key: s.reference(self.descriptions.get(key)) for key, s in self.fields.items()},
            **({} if self.more else {"additionalProperties": False}),
        }


def describe(node: Node) -> str:
    """What a node holds, in words, and how it was written where that differs."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    value = node.value
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if value is None:
        return "nothing" if not node.text else f"null (written {shown(node.text)})"
    kind = "the boolean" if isinstance(value, bool) else "the number"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{kind} {shown(text)[1:-1]}" + ("" if node.text == text else f" (YAML reads {shown(node.text)} so)")


@shape("name", type="string", minLength=1)
def string(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """Non-empty printable text."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        hint = f'quote it: "{node.text}"' if isinstance(node, Scalar) and node.text else None
        mistakes.add(node, f"{label} must be a string, not {describe(node)}", hint)
    elif not node.value:
        mistakes.add(node, f"{label} is empty")
    elif not node.value.isprintable():
        mistakes.add(node, f"{label} has characters that cannot be shown: {shown(node.value)}")
    else:
        return node.value
    return None


def integer(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """A whole number written in plain decimal digits, at most MAX_INT either way."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(node, Scalar) or isinstance(value, bool) or not isinstance(value, int):
        hint = None
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            hint = "write it without quotes"
        mistakes.add(node, f"{label} must be a whole number, not {describe(node)}", hint)
    elif not _DECIMAL.fullmatch(node.text):
        mistakes.add(node, f"{label} must be written in plain digits: YAML reads {shown(node.text)} as {value}")
    elif abs(value) > MAX_INT:
        mistakes.add(node, f"{label} must be at most {MAX_INT}, not {shown(node.text)[1:-1]}")
    else:
        return value
    return None


@shape("positive", type="integer", minimum=1, maximum=MAX_INT)
def positive(node: Node, label: str, mistakes: Mistakes) -> int | None:
    """A whole number from 1 on."""
    value = integer(node, label, mistakes)
    if value is not None and value < 1:
        mistakes.add(node, f"{label} must be at least 1, not {value}")
        return None
    return value


@shape(None, type="boolean")
def boolean(node: Node, label: str, mistakes: Mistakes) -> bool | None:
    """true or false, however YAML lets one write them."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    mistakes.add(node, f"{label} must be true or false, not {describe(node)}")
    return None


def one_of(words: type[_Member]) -> Shape[_Member]:
    """One of the words of an enumeration."""

    def read(node: Node, label: str, mistakes: Mistakes) -> _Member | None:
        word = string.read(node, label, mistakes)
        if word is None:
            return None
        try:
            return words(word)
        except ValueError:
            hint = mistakes.near(word, words)
            mistakes.add(node, f"{label} must be one of {', '.join(words)}, not {shown(word)}", hint)
            return None

    return Shape(read, {"enum": [word.value for word in words]})


@shape("columns", type="array", minItems=1, uniqueItems=True, items=string.reference())
def columns(node: Node, label: str, mistakes: Mistakes) -> tuple[str, ...] | None:
    """A list of at least one column name, none of them twice."""
    if not isinstance(node, Sequence):
        hint = f"write [{node.text}]" if isinstance(node, Scalar) and isinstance(node.value, str) else None
        mistakes.add(node, f"{label} must be a list of columns, not {describe(node)}", hint)
        return None
    if not node.items:
        mistakes.add(node, f"{label} names no column")
        return None
    seen: dict[str, None] = {}
    for item in node.items:
        name = string.read(item, f"{label}: a column", mistakes)
        if name is not None and name in seen:
            mistakes.add(item, f"{label}: column {shown(name)} stands twice")
        elif name is not None:
            seen[name] = None
    return tuple(seen) if len(seen) == len(node.items) else None


@shape(
    "function",
    description="module:function beside the file, or a built-in's name.",
    type="string",
    pattern=r"^([^\s:.]+(\.[^\s:.]+)*:)?[^\s:.]+$",  # wider than the reader: no pattern says what an identifier is
)
def function(node: Node, label: str, mistakes: Mistakes) -> str | None:
    """`module:function`, or the bare name of a built-in; nothing is imported."""
    text = string.read(node, label, mistakes)
    if text is None:
        return None
    module, colon, name = text.rpartition(":")
    if name.isidentifier() and (not colon or all(part.isidentifier() for part in module.split("."))):
        return text
    file = "/" in text or ".py" in text
    hint = "the module stands beside the topology file; write its name without .py" if file else None
    mistakes.add(node, f"{label} must be module:function or the name of a built-in, not {shown(text)}", hint)
    return None


def mapping(node: Node, label: str, mistakes: Mistakes, hint: str | None = None) -> Mapping | None:
    """A mapping, whatever its keys. hint: how to write one."""
    if isinstance(node, Mapping):
        return node
    mistakes.add(node, f"{label} must be a mapping, not {describe(node)}", hint)
    return None


def only(node: Mapping, keys: tuple[str, ...], label: str, mistakes: Mistakes) -> None:
    """A mistake for each key of `node` that is not among `keys`."""
    for text, (key, _) in node.pairs.items():
        if text not in keys:
            hint = mistakes.near(text, keys) or f"known: {', '.join(keys)}"
            mistakes.add(key, f"{label}: unknown key {shown(text)}", hint)


def plain(node: Node, label: str, mistakes: Mistakes) -> Any:
    """The value as JSON has it, for options that only a connector understands."""
    if isinstance(node, Mapping):
        return {text: plain(value, label, mistakes) for text, (_, value) in node.pairs.items()}
    if isinstance(node, Sequence):
        return [plain(item, label, mistakes) for item in node.items]
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        if ":" in node.text or _OCTAL.fullmatch(node.text):
            hint = "quote it, or write plain digits"
            mistakes.add(node, f"{label}: YAML reads {shown(node.text)} as {node.value}", hint)
        elif abs(node.value) > MAX_NUMBER:
            mistakes.add(node, f"{label}: a number beyond {MAX_NUMBER}", "quote it")
    return node.value


def check_version(root: Mapping, newest: int, title: str, mistakes: Mistakes) -> None:
    """Mistakes unless a file says that it is of this version; UnsupportedVersion of a newer one. title: of it."""
    if "version" not in root.pairs:
        mistakes.add(root, f"{title}: version is missing", f"add version: {newest}")
        return
    node = root.pairs["version"][1]
    version = integer(node, "version", mistakes)
    if version is not None and version > newest:
        raise UnsupportedVersion(
            f"{title} version {version}; this program reads version {newest}",
            path=f"{mistakes.file}:{node.line}:{node.column}",
            hint="upgrade abs",
        )
    if version is not None and version < newest:
        mistakes.add(node, f"version must be {newest}, not {version}")


def items(root: Mapping, key: str, example: str, mistakes: Mistakes) -> Iterator[Node]:
    """The items of a list that a file may have; a mistake for what is none. example: of such a list."""
    if key not in root.pairs:
        return
    node = root.pairs[key][1]
    if isinstance(node, Sequence):
        yield from node.items
    else:
        mistakes.add(node, f"{key} must be a list, not {describe(node)}", f"write {key}: {example}")
