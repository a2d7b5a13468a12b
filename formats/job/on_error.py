"""What an operator's entry says of records on which it fails."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from formats.job.locations import PLACE
from formats.job.model import DeadLetter, Kind, OnError
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node
from formats.user_file.values import Record, one_of, shape

FAILING_SOURCES = ("csv", "jsonl", "kafka", "text")
"""Types of sources whose records may not be readable."""

_FAILING = frozenset({Kind.MAP, Kind.FILTER, Kind.FLAT_MAP, Kind.REDUCE, Kind.JOIN, Kind.DISTINCT, Kind.PROCESS})
"""Kinds of which a record that fails can be left out."""


class _Words(StrEnum):
    FAIL = "fail"
    SKIP = "skip"


_WORDS = one_of(_Words)
_DEAD_LETTER = Record({"dead_letter": PLACE}, {"dead_letter": "a folder, or a place in a bucket"})


@shape("on_error", anyOf=[_WORDS.schema, _DEAD_LETTER.schema])
def on_error(node: Node, label: str, mistakes: Mistakes) -> OnError | msgspec.UnsetType | None:
    """`fail`, `skip`, or where records that fail are written."""
    if isinstance(node, Mapping):
        path = (_DEAD_LETTER.read(node, label, mistakes) or {}).get("dead_letter")
        return None if path is None else DeadLetter(path)
    word = _WORDS.read(node, label, mistakes)
    if word is None:
        return None
    return "skip" if word is _Words.SKIP else msgspec.UNSET


def may_go_on(kind: Kind | None, connector: dict[str, object] | None) -> bool:
    """Whether an operator of this kind can leave out records on which it fails; so it may where its kind is not known,
    or a source's connector."""
    if kind is Kind.SOURCE:
        return connector is None or connector.get("type") in FAILING_SOURCES
    return kind in _FAILING or kind is None
