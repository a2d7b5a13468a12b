"""What changed between two batches of Spark's besides state and positions, and what it means for a restart: settings
that the offsets keep, and schemas of state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from abscli.diff.epochs import Besides, TopologyDiff
from abscli.diff.state import Side
from formats.errors import FormatError
from formats.spark.logs.offsets import Offsets
from formats.spark.state.codings import Family
from formats.spark.state.types import Type
from formats.spark.store import SparkStore


def compare(left: Side, right: Side) -> Besides:
    """What differs, and what that means for a restart."""
    assert isinstance(left.store, SparkStore)
    assert isinstance(right.store, SparkStore)
    return Besides(list(changes(left.store, left.epoch, right.store, right.epoch)))


def changes(left: SparkStore, before: int, right: SparkStore, after: int) -> Iterator[TopologyDiff]:
    """Settings and schemas of batch `before` of one checkpoint against batch `after` of another or the same."""
    was, now = _offsets(left, before), _offsets(right, after)
    if was is not None and now is not None:
        for name, old, new in diff_conf(was, now):
            consequence = "a restart keeps the first's, whatever the session says"
            if old is None:
                consequence = "the first does not have it: a restart takes Spark's default for old checkpoints"
            yield TopologyDiff("setting", name, old, new, consequence)
    olds, news = left.checkpoint.operators(), right.checkpoint.operators()
    for id in sorted(olds.keys() & news.keys()):
        was_name, is_name = olds[id].name, news[id].name
        if was_name != is_name and None not in (was_name, is_name):
            yield TopologyDiff("kind", str(id), was_name, is_name, _OTHER_OPERATOR)
    for change in diff_schemas(_families(left, before), _families(right, after)):
        if change.before is None or change.after is None:
            continue  # an operator that came or went: the lists of operators tell it
        name = f"{change.operator} {change.name}" if change.name else str(change.operator)
        consequence = "none: Spark goes by types, not by names"
        if change.refused is not None:
            consequence = _REFUSED[change.refused]
        yield TopologyDiff("schema", name, change.before, change.after, consequence)


def _offsets(store: SparkStore, batch: int) -> Offsets | None:
    try:
        return store.checkpoint.offsets(batch)
    except FormatError:
        return None


def _families(store: SparkStore, batch: int) -> list[Family]:
    try:
        return store.families(batch)
    except FormatError:
        return []


def diff_conf(before: Offsets, after: Offsets) -> list[tuple[str, str | None, str | None]]:
    """Frozen settings that differ: name, before, after."""
    names = sorted({*before.conf, *after.conf})
    return [(n, before.conf.get(n), after.conf.get(n)) for n in names if before.conf.get(n) != after.conf.get(n)]


class Refusal(StrEnum):
    """Why Spark would not go on with another schema."""

    KEY = "key schema"
    VALUE = "value schema"
    GONE = "operator gone"


_OTHER_OPERATOR = (
    "refused: Spark wants the same operators by number (STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)"
)
_REFUSED = {
    Refusal.KEY: "refused: Spark does not start with another key schema (STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE)",
    Refusal.VALUE: "refused: Spark does not start with another value schema (STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE)",
    Refusal.GONE: "its state would have no owner",
}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A state whose columns are not the same.

    refused: why a restart with the second schema on the first's state would be refused; None if Spark takes it.
    """

    operator: int
    name: str | None
    before: str | None
    after: str | None
    refused: Refusal | None


def diff_schemas(before: Iterable[Family], after: Iterable[Family]) -> Iterator[SchemaChange]:
    """States with other columns. Spark goes by types and nullability in order, not by names of columns."""
    old, new = ({(f.operator.id, f.name): f for f in families} for families in (before, after))
    for key in sorted({*old, *new}, key=lambda key: (key[0], key[1] or "")):
        one, other = old.get(key), new.get(key)
        if one is None or other is None:
            refused = Refusal.GONE if other is None else None
            yield SchemaChange(*key, _text(one), _text(other), refused)
        elif (one.schema.key_json, one.schema.value_json) != (other.schema.key_json, other.schema.value_json):
            refused = None
            if not same_types(one.schema.key, other.schema.key):
                refused = Refusal.KEY
            elif not same_types(one.schema.value, other.schema.value):
                refused = Refusal.VALUE
            yield SchemaChange(*key, _text(one), _text(other), refused)


def same_types(one: Type, other: Type) -> bool:
    """Whether two types are laid out alike, whatever their columns are called."""
    if (one.kind, one.precision, one.scale, len(one.fields)) != (
        other.kind,
        other.precision,
        other.scale,
        len(other.fields),
    ):
        return False
    return all(same_types(a.type, b.type) for a, b in zip(one.fields, other.fields, strict=True))


def _text(family: Family | None) -> str | None:
    return None if family is None else f"{family.schema.key_json} -> {family.schema.value_json}"
