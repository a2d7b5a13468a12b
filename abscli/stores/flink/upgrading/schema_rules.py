"""What a changed class makes of state: Flink's rules of evolving Pojos and Avro, asked of every serializer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from abscli.stores.flink.upgrading.text_upgrade import Why
from abscli.stores.flink.upgrading.upgrade_rules import Release, Rule, Verdict
from abscli.stores.recovery import BadOption
from formats.flink.state.meta import StateInfo, StateKind
from formats.flink.types.avro_schema import AvroSchema, differences
from formats.flink.types.declared import Declared, canonical, same_type, type_of
from formats.flink.types.serializers import Snapshot, labelled_parts

_POJO: Final = "documentation of Flink: state schema evolution, POJO types; PojoSerializerSnapshot"
_GENERIC: Final = "org.apache.avro.generic.GenericRecord"
_AVRO: Final = "documentation of Flink: state schema evolution, Avro types; Avro's schema resolution"

REMOVED: Final = Rule(
    "field-removed", Verdict.RESTORES, "a field is gone from the class: its values are dropped, and do not come back",
    _POJO, "write them to another state before, if they are needed",
)  # fmt: skip
ADDED: Final = Rule(
    "field-added", Verdict.RESTORES, "the class has a new field: it will be null, 0 or false", _POJO,
    "see that the job can do with that",
)  # fmt: skip
TYPE: Final = Rule(
    "field-type", Verdict.DOES_NOT, "a field has another type: Flink refuses the state as incompatible", _POJO,
    "add a field of another name, and leave the old one",
)  # fmt: skip
RENAMED: Final = Rule(
    "class-renamed", Verdict.DOES_NOT, "no such class is declared, but one of the same name in another package: a "
    "class whose state is to be restored keeps its whole name", _POJO, "leave the class where it is",
)  # fmt: skip
KEY: Final = Rule(
    "key-changed", Verdict.DOES_NOT, "it is part of a key or namespace, which do not evolve: Flink refuses to start",
    "documentation of Flink: state schema evolution, limitations; StateMigrationException",
    "leave the class of the key as it is, and change a copy of it",
)  # fmt: skip
MAP_KEY: Final = Rule(
    "map-key-changed", Verdict.UNKNOWN, "it is part of the keys of a map's entries: RocksDB refuses to migrate these",
    "RocksDBKeyedStateBackend.migrateStateValues; tried with 2.3.0: the heap starts",
    "leave that class as it is, or start with the heap",
)  # fmt: skip
AVRO_READ: Final = Rule(
    "avro-evolved", Verdict.RESTORES, "the schema has changed, and reads what the old one wrote", _AVRO,
    "see that the job can do with that",
)  # fmt: skip
AVRO_NOT: Final = Rule(
    "avro-incompatible", Verdict.DOES_NOT, "the schema does not read what the old one wrote", _AVRO,
    "give new fields a default, and keep names and types",
)  # fmt: skip
AVRO_GENERIC: Final = Rule(
    "avro-generic", Verdict.DOES_NOT, "the schema has changed, and a GenericRecord keeps the one that it was written "
    "with: the job starts, and fails at its first checkpoint, or writes fields by their old position",
    "tried with 2.3.0", "use a class of the record's own (SpecificRecord), or write to a new state",
)  # fmt: skip
ROW: Final = Rule(
    "row-changed", Verdict.DOES_NOT, "the fields of a row are told by their position: neither their number nor the "
    "type of one may change", "RowSerializerSnapshot and RowDataSerializerSnapshot",
    "keep the old state, and write to a new one",
)  # fmt: skip


TTL_REFUSED: Final = Rule(
    "ttl-changed", Verdict.DOES_NOT, "the state has a TTL in the snapshot or in the job, and not in both: Flink "
    "refuses the serializer as incompatible", "StateMigrationException; tried with 1.20.5 and 2.1.3 (value, "
    "list and map state) and 2.0.2 (value state), on the heap",
    "keep the TTL as it is, write to a new state, or upgrade first and change the TTL then",
)  # fmt: skip
TTL_MIGRATED: Final = Rule(
    "ttl-migrated", Verdict.RESTORES, "the TTL of the state is switched on or off: Flink migrates its values",
    "TtlAwareSerializerSnapshot; tried with 2.2.0 and 2.3.0: value, list and map state, on the heap",
    "see that the job can do with that",
)  # fmt: skip
TTL_AWARE: Final = (2, 2)
"""The first release that migrates state when its TTL is switched on or off."""


class SchemaRules:
    """Holds the serializers of a snapshot against the classes that a job declares.

    target: the release that is to restore it.
    met: the declared classes that state has.
    there: all classes of Pojos and records that were looked at.
    """

    def __init__(self, declared: Declared, target: Release) -> None:
        self.met: set[str] = set()
        self.there: set[str] = set()
        self._declared, self._target = declared, target

    def of_state(self, info: StateInfo, key: Snapshot | str | None) -> Iterator[Why]:
        """What the changed classes make of a state. key: the serializer of its keys."""
        if info.name in self._declared.rows and isinstance(info.value, Snapshot):
            yield from self._row(info.name, info.value, f"value: {info.value.short}")
        if (ttl := self._declared.ttl.get(info.name)) is not None and isinstance(info.value, Snapshot):
            self.met.add(info.name)
            if _has_ttl(info.value) is not ttl:
                rule = TTL_MIGRATED if self._target >= TTL_AWARE else TTL_REFUSED
                yield Why(rule, f"value: {info.value.short}: {'with' if ttl else 'without'} TTL in the job")
        broadcast = info.kind is StateKind.BROADCAST
        timers = info.kind is StateKind.PRIORITY_QUEUE  # of a key and a namespace
        for role, snapshot in (("key", key), ("namespace", info.namespace), ("value", info.value)):
            if isinstance(snapshot, Snapshot):
                fixed = timers or (role != "value" and not broadcast)
                yield from self._walk(snapshot, f"{role}: ", KEY if fixed else None)

    def check_met(self) -> None:
        """BadOption if no state has any of the declared classes."""
        if not self.met:
            words = ", ".join(sorted(self.there)) or "none of a class with fields"
            given = ", ".join(
                [*self._declared.classes, *self._declared.avro, *self._declared.rows, *self._declared.ttl]
            )
            raise BadOption("--schema", f"no state has a value of {given}; there are {words}")

    def _walk(self, snapshot: Snapshot, path: str, fixed: Rule | None) -> Iterator[Why]:
        """fixed: what is said of any change, where nothing may change."""
        here = path + snapshot.short
        if snapshot.kind == "pojo" and snapshot.about is not None:
            yield from self._pojo(snapshot, snapshot.about, here, fixed)
        elif snapshot.text is not None:
            read = AVRO_GENERIC if snapshot.about == _GENERIC else AVRO_READ
            yield from self._avro(snapshot.text, here, fixed or read)
        for label, part in labelled_parts(snapshot):
            if part is not None:
                of_map = MAP_KEY if snapshot.kind in ("map", "nullmap") and label == ".key" else None
                yield from self._walk(part, f"{here}{label} -> ", fixed or of_map)

    def _row(self, state: str, snapshot: Snapshot, path: str) -> Iterator[Why]:
        """The rows of a state, or those in its lists and maps."""
        if snapshot.kind not in ("row", "rowdata"):
            for label, part in labelled_parts(snapshot):
                if part is not None:
                    yield from self._row(state, part, f"{path}{label} -> {part.short}")
            return
        self.met.add(state)
        declared = self._declared.rows[state]
        if snapshot.kind == "rowdata":
            before = [str(kind) for kind in snapshot.types]
            same = [_sql(one) == _sql(other) for one, other in zip(before, declared, strict=False)]
        else:
            before = [type_of(part) for part in snapshot.nested]
            same = [same_type(part, _word(other)) for part, other in zip(snapshot.nested, declared, strict=False)]
        if len(before) != len(declared):
            yield Why(ROW, f"{path}: {len(before)} fields -> {len(declared)}")
        for i, alike in enumerate(same):
            if not alike:
                yield Why(ROW, f"{path}.f{i}: {before[i]} -> {declared[i]}")

    def _pojo(self, snapshot: Snapshot, name: str, path: str, fixed: Rule | None) -> Iterator[Why]:
        self.there.add(name)
        fields = self._declared.classes.get(name)
        if fields is None:
            last = name.rpartition(".")[2]
            moved = next((other for other in self._declared.classes if other.rpartition(".")[2] == last), None)
            if moved is not None:
                self.met.add(moved)
                yield Why(fixed or RENAMED, f"{path} ({name}): now {moved}")
            return
        self.met.add(name)
        before = dict(zip(snapshot.names, snapshot.nested, strict=True))
        for field, part in before.items():
            if field not in fields:
                yield Why(fixed or REMOVED, f"{path}.{field}: {type_of(part)}")
            elif not same_type(part, fields[field]):
                yield Why(TYPE, f"{path}.{field}: {type_of(part)} -> {fields[field]}")
        for field, declared in fields.items():
            if field not in before:
                yield Why(fixed or ADDED, f"{path}.{field}: {declared}")

    def _avro(self, text: str, path: str, read: Rule) -> Iterator[Why]:
        """read: what is said of a change with which values that were written are read all the same."""
        try:
            writer = AvroSchema(text)
        except ValueError:
            return  # the rule of what only its class knows speaks of it
        if writer.name is None:
            return
        self.there.add(writer.name)
        last = writer.name.rpartition(".")[2]
        reader = self._declared.avro.get(writer.name) or next(
            (schema for name, schema in self._declared.avro.items() if name.rpartition(".")[2] == last), None
        )
        if reader is None or reader.name is None:
            return
        self.met.add(reader.name)
        for difference in differences(writer, reader):
            yield Why(read if difference.readable else AVRO_NOT, f"{path}{difference.path}: {difference.message}")


def _has_ttl(value: Snapshot) -> bool:
    """Tell whether values, or the elements of a list or map, have the time of their last access with them."""
    if value.kind == "same":  # the wrapper of Flink 2, with and without a TTL
        return _has_ttl(value.nested[0])
    return value.kind == "ttl" or (value.kind in ("list", "map") and _has_ttl(value.nested[-1]))


def _sql(text: str) -> str:
    """A type of SQL without what tells nothing: case, spaces, and lengths of texts, which no snapshot is shown with."""
    plain = re.sub(r"\s+", " ", text.strip().upper())
    plain = re.sub(r"\bSTRING\b", "VARCHAR", re.sub(r"\bBYTES\b", "VARBINARY", plain))
    return re.sub(r"\b((?:VAR)?(?:CHAR|BINARY)) ?\(\d+\)", r"\1", plain).replace(", ", ",")


def _word(text: str) -> str:
    """A type in this program's words, or as it is written."""
    try:
        return canonical(text)
    except ValueError:
        return text
