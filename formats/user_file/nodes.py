"""YAML bytes -> a tree in which every node knows its line and column.

Built from parser events rather than by PyYAML's composer: that one recurses (deep nesting ends in a crash), keeps
silent about duplicate keys, and is slower. Nodes are hidden from the cycle collector (`gc=False`): trees have no
cycles, and walking a million nodes again and again took a third of the time.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any, NoReturn

import msgspec
import yaml
from yaml import events

from formats.user_file.mistakes import Mistakes

MAX_DEPTH = 100
MAX_ALIASED = 1_000_000
"""Nodes that aliases may stand for in all: a few lines of them can mean more nodes than memory holds."""

MAX_DIGITS = 100
"""Characters of a number: more mean no number, and reading them (`1:30:30...` is one to the base of 60) would take for
ever."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _number(construct: Any, loader: Any, node: Any) -> Any:
    """ValueError for more characters than a number has."""
    if len(node.value) > MAX_DIGITS:
        raise ValueError("too long for a number")
    return construct(loader, node)


_STR, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_TEXT = frozenset({_STR, "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", _MERGE})
_OTHER: dict[str, Any] = {
    "tag:yaml.org,2002:null": yaml.SafeLoader.construct_yaml_null,
    "tag:yaml.org,2002:bool": yaml.SafeLoader.construct_yaml_bool,
    "tag:yaml.org,2002:int": functools.partial(_number, yaml.SafeLoader.construct_yaml_int),
    "tag:yaml.org,2002:float": functools.partial(_number, yaml.SafeLoader.construct_yaml_float),
}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """One word or number.

    text: as written;
    value: what YAML 1.1 reads it as;
    plain: written without quotes.
    """

    text: str
    value: str | int | float | bool | None
    plain: bool
    line: int
    column: int


class Sequence(msgspec.Struct, frozen=True, gc=False):
    """A list of nodes."""

    items: list[Node]
    line: int
    column: int


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """Keys are unique by their text, in file order, then those taken over by `<<`."""

    pairs: dict[str, tuple[Scalar, Node]]
    line: int
    column: int


Node = Scalar | Sequence | Mapping


class Spot(msgspec.Struct, frozen=True):
    """A bare position, from 1."""

    line: int
    column: int


class _Frame(msgspec.Struct, gc=False):
    """A list or mapping whose end has not come.

    key: that waits for its value;
    merges: what `<<` takes over when the mapping ends;
    count, height: of the tree so far, aliases spelt out.
    """

    node: Sequence | Mapping
    anchor: str | None
    key: Scalar | None = None
    merges: list[Mapping] = []
    count: int = 1
    height: int = 1


def read_nodes(data: bytes, mistakes: Mistakes) -> Node | None:
    """The tree of the one document in `data`; None if it is empty.

    Raises BadFile at once for what leaves no tree: bytes that are not UTF-8, YAML that does not parse, nesting
    or aliases without bound. Duplicate keys and the like go to `mistakes`.
    """
    text = _decode(data, mistakes)
    try:
        return _Builder(mistakes).build(_LOADER(text))
    except yaml.MarkedYAMLError as error:
        _syntax(error, text, mistakes)
    except yaml.YAMLError as error:
        mistakes.fatal(Spot(1, 1), f"not YAML: {error}")


def _decode(data: bytes, mistakes: Mistakes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8")  # the codec's object starts behind a byte order mark
        line, column = _locate(before, len(before))
        byte = error.object[error.start]
        mistakes.fatal(Spot(line, column), f"not UTF-8: byte 0x{byte:02x}", "save the file as UTF-8")
    if control := _UNPRINTABLE.search(text):
        line, column = _locate(text, control.start())
        code = f"U+{ord(control[0]):04X}"
        mistakes.fatal(Spot(line, column), f"control character {code}", "remove it, or write it as an escape")
    if text.lstrip().startswith("{"):  # JSON writes characters beyond U+FFFF as two escapes, which YAML has not
        text = _SURROGATES.sub(lambda m: m[1] + _join(int(m[2], 16), int(m[3], 16)), text)
    return text


def _join(high: int, low: int) -> str:
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _locate(text: str, index: int) -> tuple[int, int]:
    lines = text[:index].splitlines() if index else []
    if not lines or text[index - 1] in "\r\n":
        return len(lines) + 1, 1
    return len(lines), len(lines[-1]) + 1


def _syntax(error: yaml.MarkedYAMLError, text: str, mistakes: Mistakes) -> NoReturn:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if line > (last := max(1, len(text.splitlines()))):  # the end of a file whose last line has no newline
        line, column = last, len(text.splitlines()[-1]) + 1 if text else 1
    message = error.problem or "it does not parse"
    if error.context:
        message += f" ({error.context}"
        start = error.context_mark
        message += f" that begins at line {start.line + 1})" if start and start.line + 1 != line else ")"
    hint = None
    if error.context and "alias" in error.context:
        hint = 'quote the star: "*"'
    elif "start any token" in message and "\t" in text:
        hint = "indent with spaces: YAML allows no tabs there"
    mistakes.fatal(Spot(line, column), f"not YAML: {message}", hint)


class _Builder:
    """Events in, one tree out, with a stack of its own."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._aliased = 0
        self._root: Node | None = None

    def build(self, loader: Any) -> Node | None:
        documents = 0
        while loader.check_event():
            event = loader.get_event()
            kind = type(event)
            if kind is events.ScalarEvent:
                self._add(self._scalar(loader, event), event.anchor, 1, 1, event)
            elif kind is events.MappingStartEvent:
                self._open(Mapping({}, *_position(event)), event, "map")
            elif kind is events.SequenceStartEvent:
                self._open(Sequence([], *_position(event)), event, "seq")
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                self._close(event)
            elif kind is events.AliasEvent:
                self._alias(event)
            elif kind is events.DocumentStartEvent:
                documents += 1
                if documents == 2:
                    hint = "a topology is one document"
                    self._mistakes.fatal(Spot(*_position(event)), "a second YAML document begins here", hint)
        return self._root

    def _scalar(self, loader: Any, event: Any) -> Scalar:
        tag = event.tag
        if tag is None or tag == "!":
            tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        line, column = _position(event)
        plain = not event.style
        if tag in _TEXT:
            return Scalar(event.value, event.value, plain, line, column)
        scalar = Scalar(event.value, event.value, plain, line, column)
        if tag not in _OTHER:
            self._mistakes.add(scalar, f"tag {tag} has no meaning here", "remove it")
            return scalar
        try:
            value = _OTHER[tag](loader, yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, OverflowError):  # too many digits, or a tag on text that is nothing of the kind
            self._mistakes.add(scalar, f"cannot be read as {tag.rpartition(':')[2]}", "quote it if it is text")
            return scalar
        if isinstance(value, float) and not math.isfinite(value):
            self._mistakes.add(scalar, f"{event.value} is not a finite number", "quote it if it is text")
            return scalar
        return Scalar(event.value, value, plain, line, column)

    def _open(self, node: Sequence | Mapping, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{kind}"):
            self._mistakes.add(node, f"tag {event.tag} has no meaning here", "remove it")
        if len(self._stack) >= MAX_DEPTH:
            self._mistakes.fatal(node, f"nested more than {MAX_DEPTH} levels deep")
        self._stack.append(_Frame(node, event.anchor))
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)  # an alias to it before its end would be a cycle

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        if isinstance(frame.node, Mapping):
            for merged in frame.merges:
                for text, pair in merged.pairs.items():
                    frame.node.pairs.setdefault(text, pair)
        self._add(frame.node, frame.anchor, frame.count, frame.height, event)

    def _alias(self, event: Any) -> None:
        line, column = _position(event)
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            inside = any(frame.anchor == event.anchor for frame in self._stack)
            fault = "stands inside what it names" if inside else "has no anchor above"
            self._mistakes.fatal(Spot(line, column), f"alias *{event.anchor} {fault}", 'quote it if it is text: "*..."')
        node, count, height = anchored
        self._aliased += count
        if self._aliased > MAX_ALIASED:
            self._mistakes.fatal(Spot(line, column), f"aliases stand for more than {MAX_ALIASED} nodes")
        if len(self._stack) + height > MAX_DEPTH:
            self._mistakes.fatal(Spot(line, column), f"nested more than {MAX_DEPTH} levels deep")
        self._add(node, None, count, height, event)

    def _add(self, node: Node, anchor: str | None, count: int, height: int, event: Any) -> None:
        """Put a finished node where it belongs: root, item, key or value."""
        if anchor is not None:
            self._anchors[anchor] = (node, count, height)
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        frame.count += count
        frame.height = max(frame.height, height + 1)
        parent = frame.node
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif frame.key is None:
            frame.key = self._key(node)
        else:
            key, frame.key = frame.key, None
            self._pair(frame, parent, key, node)

    def _key(self, node: Node) -> Scalar:
        if isinstance(node, Scalar):
            return node
        self._mistakes.add(node, "a key must be a word, not a list or a mapping")
        return Scalar("", None, False, node.line, node.column)

    def _pair(self, frame: _Frame, mapping: Mapping, key: Scalar, node: Node) -> None:
        if key.value is None and not key.plain:
            return  # no key at all, and reported as such
        if key.text == "<<" and key.plain:
            sources = node.items if isinstance(node, Sequence) else [node]
            for source in sources:
                if isinstance(source, Mapping):
                    frame.merges.append(source)
                else:
                    self._mistakes.add(source, "<< takes over mappings only")
        elif key.text in mapping.pairs:
            first = mapping.pairs[key.text][0]
            self._mistakes.add(key, f"duplicate: {shown(key.text)} stands at line {first.line} already", "rename one")
        else:
            mapping.pairs[key.text] = (key, node)


def _position(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


def shown(text: str) -> str:
    """Text of a file as a message shows it: quoted, on one line, at most 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
