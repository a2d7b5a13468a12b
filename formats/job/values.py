"""One node -> one checked value. Each reader adds a finding and returns None where the node does not hold.

YAML 1.1 reads bare `no`, `on`, `010` and `1:30` as something other than text; findings say as what.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar

from formats.job.errors import Findings
from formats.job.nodes import Mapping, Node, Scalar, Sequence, shown

MAX_INT = 2**31 - 1
MAX_NUMBER = 2**63 - 1
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_TRAP = re.compile(r"[-+]?(0[0-9_]+|.*:.*)")
_Member = TypeVar("_Member", bound=StrEnum)


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
    said = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{kind} {shown(said)[1:-1]}" + ("" if node.text == said else f" (YAML reads {shown(node.text)} so)")


def string(node: Node, what: str, findings: Findings) -> str | None:
    """Non-empty printable text."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        hint = f'quote it: "{node.text}"' if isinstance(node, Scalar) and node.text else None
        findings.add(node, f"{what} must be a string, not {describe(node)}", hint)
    elif not node.value:
        findings.add(node, f"{what} is empty")
    elif not node.value.isprintable():
        findings.add(node, f"{what} has characters that cannot be shown: {shown(node.value)}")
    else:
        return node.value
    return None


def integer(node: Node, what: str, findings: Findings) -> int | None:
    """A whole number written in plain decimal digits, at most MAX_INT either way."""
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(node, Scalar) or isinstance(value, bool) or not isinstance(value, int):
        hint = None
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            hint = "write it without quotes"
        findings.add(node, f"{what} must be a whole number, not {describe(node)}", hint)
    elif not _DECIMAL.fullmatch(node.text):
        findings.add(node, f"{what} must be written in plain digits: YAML reads {shown(node.text)} as {value}")
    elif abs(value) > MAX_INT:
        findings.add(node, f"{what} must be at most {MAX_INT}, not {shown(node.text)[1:-1]}")
    else:
        return value
    return None


def positive(node: Node, what: str, findings: Findings) -> int | None:
    """A whole number from 1 on."""
    value = integer(node, what, findings)
    if value is not None and value < 1:
        findings.add(node, f"{what} must be at least 1, not {value}")
        return None
    return value


def boolean(node: Node, what: str, findings: Findings) -> bool | None:
    """true or false, however YAML lets one write them."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    findings.add(node, f"{what} must be true or false, not {describe(node)}")
    return None


def member(node: Node, what: str, among: type[_Member], findings: Findings) -> _Member | None:
    """One of the words of an enumeration."""
    word = string(node, what, findings)
    if word is None:
        return None
    try:
        return among(word)
    except ValueError:
        hint = findings.near(word, among)
        findings.add(node, f"{what} must be one of {', '.join(among)}, not {shown(word)}", hint)
        return None


def columns(node: Node, what: str, findings: Findings) -> tuple[str, ...] | None:
    """A list of at least one column name, none of them twice."""
    if not isinstance(node, Sequence):
        hint = f"write [{node.text}]" if isinstance(node, Scalar) and isinstance(node.value, str) else None
        findings.add(node, f"{what} must be a list of columns, not {describe(node)}", hint)
        return None
    if not node.items:
        findings.add(node, f"{what} names no column")
        return None
    seen: dict[str, None] = {}
    for item in node.items:
        name = string(item, f"{what}: a column", findings)
        if name is not None and name in seen:
            findings.add(item, f"{what}: column {shown(name)} stands twice")
        elif name is not None:
            seen[name] = None
    return tuple(seen) if len(seen) == len(node.items) else None


def function(node: Node, what: str, findings: Findings) -> str | None:
    """`module:function`, or the bare name of a built-in; nothing is imported."""
    text = string(node, what, findings)
    if text is None:
        return None
    module, colon, name = text.rpartition(":")
    if name.isidentifier() and (not colon or all(part.isidentifier() for part in module.split("."))):
        return text
    file = "/" in text or ".py" in text
    hint = "the module stands beside the topology file; write its name without .py" if file else None
    findings.add(node, f"{what} must be module:function or the name of a built-in, not {shown(text)}", hint)
    return None


def mapping(node: Node, what: str, findings: Findings) -> Mapping | None:
    """A mapping, whatever its keys."""
    if isinstance(node, Mapping):
        return node
    findings.add(node, f"{what} must be a mapping, not {describe(node)}")
    return None


def only(node: Mapping, known: tuple[str, ...], what: str, findings: Findings) -> None:
    """A finding for each key of `node` that is not among `known`."""
    for text, (key, _) in node.pairs.items():
        if text not in known:
            hint = findings.near(text, known) or f"known: {', '.join(known)}"
            findings.add(key, f"{what}: unknown key {shown(text)}", hint)


def plain(node: Node, what: str, findings: Findings) -> Any:
    """The value as JSON has it, for options that only a connector understands."""
    if isinstance(node, Mapping):
        return {text: plain(value, what, findings) for text, (_, value) in node.pairs.items()}
    if isinstance(node, Sequence):
        return [plain(item, what, findings) for item in node.items]
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        if _TRAP.fullmatch(node.text):
            hint = "quote it, or write plain digits"
            findings.add(node, f"{what}: YAML reads {shown(node.text)} as {node.value}", hint)
        elif abs(node.value) > MAX_NUMBER:
            findings.add(node, f"{what}: a number beyond {MAX_NUMBER}", "quote it")
    return node.value
