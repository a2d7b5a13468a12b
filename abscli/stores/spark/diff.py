"""What changed between two batches of Spark checkpoints: keys of state, offsets, settings, schemas. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from formats.spark.codings import Family
from formats.spark.logs.offsets import Offsets
from formats.spark.logs.sources import positions
from formats.spark.state.types import Type


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How many keys of a state are only in the second batch, only in the first, in both with other values, alike."""

    added: int
    removed: int
    changed: int
    unchanged: int

    @property
    def identical(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.removed or self.changed)


def diff_rows(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> KeyCounts:
    """Counts over two maps of stored keys and values of the same coding."""
    both = before.keys() & after.keys()
    changed = sum(before[key] != after[key] for key in both)
    return KeyCounts(len(after) - len(both), len(before) - len(both), changed, len(both) - changed)


@dataclass(frozen=True, slots=True)
class Moved:
    """A source's position that is not the same. None: there is none, or it is of a kind that is not known."""

    source: str
    split: str
    before: int | None
    after: int | None


def diff_offsets(before: Offsets, after: Offsets) -> list[Moved]:
    """Positions that differ, by source and split."""
    out: list[Moved] = []
    for name in sorted({*before.sources, *after.sources}):
        old, new = before.sources.get(name), after.sources.get(name)
        if old == new:
            continue
        was = {p.split: p.offset for p in positions(old) or ()}
        now = {p.split: p.offset for p in positions(new) or ()}
        splits = sorted({*was, *now}) or ["?"]
        out += [Moved(name, s, was.get(s), now.get(s)) for s in splits if s == "?" or was.get(s) != now.get(s)]
    return out


def diff_conf(before: Offsets, after: Offsets) -> list[tuple[str, str | None, str | None]]:
    """Frozen settings that differ: name, before, after."""
    names = sorted({*before.conf, *after.conf})
    return [(n, before.conf.get(n), after.conf.get(n)) for n in names if before.conf.get(n) != after.conf.get(n)]


class Refusal(StrEnum):
    """Why Spark would not go on with another schema."""

    KEY = "key schema"
    VALUE = "value schema"
    GONE = "operator gone"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A state whose columns are not the same. refused: why a restart with the second schema on the first's state would
    be refused; None if Spark takes it."""

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
