"""Which column families the stores of a checkpoint have, and how their rows are written."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from formats.errors import NotFound
from formats.spark import layout
from formats.spark.checkpoint import UNREADABLE, Checkpoint
from formats.spark.ids import StorePartition
from formats.spark.logs import log as logs
from formats.spark.logs.operators import OperatorInfo, StoreInfo
from formats.spark.state.avro_rows import readable
from formats.spark.state.rocks import parse_zip
from formats.spark.state.rules import Coding, Rule, partition_rule
from formats.spark.state.schema import StateSchema
from formats.spark.state.types import Field, Type, struct


@dataclass(frozen=True, slots=True)
class Family:
    """One named state.

    operator: the operator that keeps it.
    store: the store that it lies in.
    name: None where the operator has no other.
    kind: `keyed`, or of `transformWithState` `value`, `list`, `map`, `timers`, and `internal` for what Spark keeps for
        itself.
    schema: the columns of its keys and values.
    rule: which part of the key its partition goes by; None where that is not known.
    opaque: why its rows cannot be decoded here; None if they can.
    avro: if its rows are written as Avro, the types of values by the number of their schema.
    """

    operator: OperatorInfo
    store: StoreInfo
    name: str | None
    kind: str
    schema: StateSchema
    rule: Rule | None
    opaque: str | None
    avro: Mapping[int, Type] | None = None

    @property
    def grouped(self) -> bool:
        """Whether its store has column families."""
        return self.schema.name != layout.DEFAULT_STORE

    def coding(self, rocks: bool, families: dict[str, int]) -> Coding | None:
        """How its rows are written; None where no snapshot says which column family it is."""
        if not self.grouped:
            return Coding(self.schema, rocks)
        number = families.get(self.schema.name)
        listed = self.kind == "list" or self.schema.time is not None
        return None if number is None else Coding(self.schema, rocks, number, listed, self.avro)


_KINDS = {"ValueState": "value", "ListState": "list", "MapState": "map", "TimerState": "timers"}


def families(checkpoint: Checkpoint, operator: OperatorInfo, store: StoreInfo, encoding: str) -> list[Family]:
    """The column families of a store; Damaged, NotFound, UnsupportedVersion where its schema cannot be read."""
    schemas = checkpoint.schemas(operator.id, store)
    kinds = variables(operator)
    transform = (operator.name or "").startswith("transformWithState")
    older = checkpoint.older_schemas(store) if transform and encoding == "avro" else []
    out = []
    for schema in map(partial(_as_written, operator.name), schemas):
        rule = partition_rule(operator.name, store.name, schema)
        opaque = None
        # The setting says how `transformWithState` writes rows; other operators' rows are UnsafeRows whatever it says.
        avro = transform and encoding == "avro"
        if transform and encoding not in ("unsaferow", "avro"):
            opaque = f"its rows are written as {encoding}: ask Spark with --engine spark"
        elif avro and (reason := _beyond_avro(schema)) is not None:
            opaque = f"its rows are written as Avro, {reason}: ask Spark with --engine spark"
        elif grouped_by_variable(operator, schema):
            opaque = f"what kind of state it is the metadata of operator {operator.id} said, which is lost"
            opaque = f"{opaque}: ask Spark with --engine spark"
        elif not schema.decodable:
            opaque = "its keys are encoded in a way that is not known here: ask Spark with --engine spark"
        # A store without column families: one state, that goes by the name of the store if it has one.
        if schema.name == layout.DEFAULT_STORE:
            name = None if store.name == layout.DEFAULT_STORE else store.name
            out.append(Family(operator, store, name, "keyed", schema, rule, opaque))
            continue
        kind = kinds.get(schema.name, "keyed")
        # Names that begin with $ are Spark's own, of which only those of timers are the user's to see.
        if schema.name.startswith("$"):
            kind = "timers" if "Timers_" in schema.name else "internal"
        if schema.time is not None:
            kind = "list" if schema.time == "behind" else "internal"  # in front: an index of Spark's own
        numbers = {one.number: one.value for one in (*older, schema) if one.name == schema.name} if avro else None
        out.append(Family(operator, store, schema.name, kind, schema, rule, opaque, numbers))
    return out


def grouped_by_variable(operator: OperatorInfo, schema: StateSchema) -> bool:
    """Whether a column family is of a variable of `transformWithState` and no metadata says what it holds: of lists and
    values rows look alike. Joins of newer formats have column families too, named after their sides."""
    joined = schema.name.startswith(("left-", "right-"))
    return operator.path is None and schema.name != layout.DEFAULT_STORE and not joined


def _beyond_avro(schema: StateSchema) -> str | None:
    """Why rows that are written as Avro cannot be read here; None if they can."""
    if not schema.decodable or schema.time is not None:
        return "and its keys in a way that is not known here"
    if not (readable(schema.key) and readable(schema.value)):
        return "with columns of types that are not known there"
    return None


def _as_written(operator: str | None, schema: StateSchema) -> StateSchema:
    """A schema as rows are written: format 1 of groups with state calls a time an integer and writes a long."""
    fields = schema.value.fields
    if operator not in _GROUPS or not fields or fields[-1] != Field("timeoutTimestamp", Type("integer")):
        return schema
    return replace(schema, value=struct(*fields[:-1], Field("timeoutTimestamp", Type("long"))))


_GROUPS = ("flatMapGroupsWithState", "applyInPandasWithState", None)  # None: by its columns alone


def variables(operator: OperatorInfo) -> dict[str, str]:
    """Kinds of the state variables of `transformWithState`."""
    if operator.properties is None:
        return {}
    try:
        properties = logs.parse(operator.properties, operator.path or "")
    except UNREADABLE:
        return {}
    entries = properties.get("stateVariables")
    if not isinstance(entries, list):
        return {}
    return {
        item["stateName"]: _KINDS.get(str(item.get("stateVariableType")), "keyed")
        for item in entries
        if isinstance(item, dict) and isinstance(item.get("stateName"), str)
    }


def family_numbers(checkpoint: Checkpoint, part: StorePartition, version: int) -> dict[str, int]:
    """Ids of column families by name, as rows of a version have them; none where no snapshot says them.

    They are kept for life, but for repartitions, which number all anew: so the newest snapshot up to the version tells,
    or a later one that no repartition lies before; of the partition, or else of another one.
    """
    own = _numbers(checkpoint, part, version)
    if own:
        return own
    key = (part.operator, part.store, version)
    if key not in checkpoint.family_ids:
        partitions = checkpoint.partitions(part.operator)
        others = (_numbers(checkpoint, part._replace(partition=other), version) for other in partitions)
        checkpoint.family_ids[key] = next((numbers for numbers in others if numbers), {})
    return checkpoint.family_ids[key]


def _numbers(checkpoint: Checkpoint, part: StorePartition, version: int) -> dict[str, int]:
    folder = layout.store_dir(part)
    snapshots = [file for file in checkpoint.state_files(part) if file.kind == "zip"]
    before = [file for file in snapshots if file.version <= version]
    for file in [*reversed(before), *snapshots[len(before) :]]:
        if file.version > version and not _one_count(checkpoint, version, file.version):
            break
        path = f"{folder}/{file.name}"
        try:
            return parse_zip(checkpoint.read(path), path).families
        except UNREADABLE:
            continue
    return {}


def _one_count(checkpoint: Checkpoint, first: int, last: int) -> bool:
    """Whether all versions from one to another are of one number of partitions, as far as offsets tell."""
    counts: set[int | None] = set()
    for batch in checkpoint.batches(layout.OFFSETS):
        if first <= batch + 1 <= last:
            with contextlib.suppress(*UNREADABLE):
                counts.add(checkpoint.offsets(batch).partitions)
    return len(counts) < 2


def only_first(family: Family) -> bool:
    """Whether all of a state lies in partition 0: there is no key to spread it by."""
    keys = family.schema.key.fields
    limit = family.operator.name is None and len(keys) == 1 and keys[0].type.kind == "void"
    return not keys or limit or family.operator.name == "globalLimit"


def expected_partitions(checkpoint: Checkpoint, operator: OperatorInfo, count: int | None) -> list[int]:
    """The partitions that an operator's state has. count: their number, as the batch's offsets have it."""
    try:
        own = [f for store in operator.stores for f in families(checkpoint, operator, store, "unsaferow")]
    except (NotFound, *UNREADABLE):
        own = []
    # Without a key all rows go to partition 0, and no folder of another partition is ever made.
    if own and all(only_first(family) for family in own):
        return [0]
    # Offsets that do not read name no number: then what the metadata says of the stores has to do.
    return list(range(count or max(store.partitions for store in operator.stores)))


_ONLY_COLUMN = {"dedupe": "__dummy__", "dedupeWithinWatermark": "expiresAtMicros"}
"""Operators whose values have one column alone, of this name."""


def fits(operator: str | None, own: tuple[Family, ...]) -> bool:
    """Whether state is of the kind that an operator of this name keeps; True where names tell nothing."""
    joined = all((family.name or "").startswith(("left-", "right-")) for family in own)
    if operator == "symmetricHashJoin" or (joined and own):
        return joined and operator in (None, "symmetricHashJoin")
    values = {tuple(field.name for field in family.schema.value.fields) for family in own}
    keepers = [name for name, column in _ONLY_COLUMN.items() if values == {(column,)}]
    if operator in _ONLY_COLUMN:
        return keepers == [operator]
    return operator != "stateStoreSave" or not keepers
