"""What keeps state from being restored by another Flink: a table of rules, each with its source.

A rule looks at one serializer, at one state, or at the whole snapshot. What no rule speaks of restores, if the job
declares its state as it did: with the same classes, which must be on its class path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from formats.flink.types.serializer_classes import BASE, CEP, FLINK, JAVA, LINKED, SCALA
from formats.flink.types.serializers import Snapshot

Release = tuple[int, int]

TARGETS: Final[dict[Release, int]] = {(1, 20): 4, (2, 0): 5, (2, 1): 6, (2, 2): 6, (2, 3): 6}
"""Releases that are asked about, and the newest version of `_metadata` that each reads."""

WRITERS: Final[dict[int, tuple[Release, Release]]] = {
    2: ((1, 3), (1, 10)), 3: ((1, 11), (1, 15)), 4: ((1, 16), (1, 20)), 5: ((2, 0), (2, 0)), 6: ((2, 1), (2, 3)),
    7: ((2, 4), (2, 4)),
}  # fmt: skip
"""The oldest and the newest release that writes a version of `_metadata`."""


class Verdict(StrEnum):
    """What becomes of state; the later outweighs the earlier."""

    RESTORES = "restores"
    UNKNOWN = "unknown"
    DOES_NOT = "does not"


@dataclass(frozen=True, slots=True)
class Step:
    """From the Flink that wrote a snapshot to the one that is to restore it. Of the first no more is known than which
    releases write this version of `_metadata`.

    version: of `_metadata`.
    target: the release that is asked about.
    """

    version: int
    target: Release

    @property
    def oldest(self) -> Release:
        """The oldest release that can have written the snapshot."""
        return WRITERS[self.version][0]

    @property
    def newest(self) -> Release:
        """The newest one."""
        return WRITERS[self.version][1]

    @property
    def to_2(self) -> bool:
        """From Flink 1 to Flink 2."""
        return self.newest < (2, 0) <= self.target

    @property
    def other_minor(self) -> bool:
        """Certainly another release than the one that wrote it."""
        return not self.oldest <= self.target <= self.newest

    @property
    def may_be_other(self) -> bool:
        """Not certainly the release that wrote it."""
        return not self.oldest == self.target == self.newest


@dataclass(frozen=True, slots=True)
class Rule:
    """Why state of some kind does not restore, or may not.

    name: stable, for scripts.
    reason: in words.
    source: where it is said, or was tried.
    remedy: what to do.
    """

    name: str
    verdict: Verdict
    reason: str
    source: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SerializerRule(Rule):
    """Of one serializer. hits: whether the rule is about it, by the snapshot that it left."""

    hits: Callable[[Step, Snapshot], bool]


@dataclass(frozen=True, slots=True)
class StateRule(Rule):
    """Of one state, as connectors call those of their operators. hits: whether the rule is about it, by its name."""

    hits: Callable[[Step, str], bool]


_NOTES_2: Final = "release notes of Flink 2.0"
_NEW_TYPE: Final = "in the old Flink, write it to a state of another type (TypeInformation) and take a new savepoint"
_COLLECTIONS: Final = frozenset({"java.util.List", "java.util.Map", "java.util.Set", "java.util.Collection"})
_JAR: Final = "the jars of Flink 2.3.0 have no such class"
_SINKS_2: Final = f"{FLINK}streaming.api.functions.sink.legacy."
_SINCE: Final[dict[str, Release]] = {
    f"{BASE}SetSerializerSnapshot": (2, 0),
    f"{FLINK}runtime.state.ttl.TtlAwareSerializerSnapshot": (2, 0),
    f"{FLINK}runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot": (2, 0),
    f"{_SINKS_2}TwoPhaseCommitSinkFunction$StateSerializerSnapshot": (2, 0),
    f"{FLINK}table.runtime.operators.window.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": (2, 0),
    f"{BASE}VariantSerializer$VariantSerializerSnapshot": (2, 1),
    f"{BASE}BitmapSerializer$BitmapSerializerSnapshot": (2, 3),
    f"{FLINK}table.runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot": (2, 3),
    f"{LINKED}MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot": (2, 2),
    f"{LINKED}NodeSerializer$NodeSerializerSnapshot": (2, 2),
    f"{LINKED}RowDataKeySerializerSnapshot": (2, 2),
    f"{LINKED}RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot": (2, 2),
}
"""The first release that has a class, of those that Flink 1.20 does not have."""
_UNTIL: Final[dict[str, Release]] = {
    f"{BASE}GenericArraySerializerConfigSnapshot": (2, 0),
    f"{JAVA}EitherSerializerSnapshot": (2, 0),
    f"{CEP}NFA$MigratedNFASerializerSnapshot": (2, 0),
    f"{CEP}SharedBuffer$SharedBufferSerializerSnapshot": (2, 0),
    f"{CEP}sharedbuffer.SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot": (2, 0),
}
"""The first release that has a class no more, of those that only Flink before 1.14 wrote."""
_CONFIG: Final = re.compile(rf"{re.escape(FLINK)}.*ConfigSnapshot")
"""Classes of Flink before 1.8, all of which went with Flink 1.17, but for one."""
_CONFIG_UNTIL: Final = (1, 17)
_OLD_SOURCES: Final = frozenset({"topic-partition-offset-states", "Kinesis-Stream-Shard-State"})
_OLD_SINKS: Final = frozenset({"next-transactional-id-hint", "next-transactional-id-hint-v2"})

SERIALIZERS: Final = (
    SerializerRule(
        "collection-serializer", Verdict.DOES_NOT,
        "it is declared as a list, map or set: Flink 1 wrote it with Kryo, Flink 2 has serializers of its own",
        f"{_NOTES_2}, FLINK-34037; tried with 2.3.0",
        _NEW_TYPE,
        lambda step, written: step.to_2 and written.kind == "kryo" and written.about in _COLLECTIONS,
    ),
    # before `kryo-2`, which is about it, too
    SerializerRule(
        "kryo-2-alike", Verdict.UNKNOWN,
        "Flink 1 wrote it with Kryo 2; values of this class came back equal in a trial, which is not a guarantee",
        "tried with 2.3.0",
        "try it, and compare the state with abs diff",
        lambda step, written: step.to_2 and written.kind == "kryo" and written.about == "java.math.BigDecimal",
    ),
    SerializerRule(
        "kryo-2", Verdict.DOES_NOT,
        "Flink 1 wrote it with Kryo 2: Flink 2, with Kryo 5, fails at the bytes, or reads other values without a word",
        f"{_NOTES_2}, FLINK-34037; tried with 2.3.0: a UUID and a LocalDateTime fail, maps and lists lose an entry",
        _NEW_TYPE,
        lambda step, written: step.to_2 and written.kind == "kryo" and written.about not in _COLLECTIONS,
    ),
    SerializerRule(
        "scala-api", Verdict.DOES_NOT,
        "its serializer is of the Scala API, which Flink 2 does not have",
        f"{_NOTES_2}, breaking changes; {_JAR}",
        _NEW_TYPE,
        lambda step, written: step.target >= (2, 0) and written.name.startswith(SCALA),
    ),
    SerializerRule(
        "two-phase-commit-sink", Verdict.DOES_NOT,
        "it is of TwoPhaseCommitSinkFunction, which Flink 2 does not have under this name",
        f"{_NOTES_2}, breaking changes; tried with 2.3.0",
        "let the sink commit with a stop-with-savepoint, remove its operator with abs rewrite, and use a Sink V2",
        lambda step, written: step.to_2 and written.name.startswith(
            f"{FLINK}streaming.api.functions.sink.TwoPhaseCommitSinkFunction$"),
    ),
    SerializerRule(
        "uuid-serializer", Verdict.DOES_NOT,
        "its serializer came after Flink 2.3",
        _JAR,
        "restore it in a newer Flink",
        lambda step, written: step.target <= (2, 3) and written.kind == "uuid",
    ),
    SerializerRule(
        "serializer-newer", Verdict.DOES_NOT,
        "its serializer came with a later Flink than the one that is asked about",
        "jars of Flink 2.1.3, 2.2.0 and 2.3.0; tried: a bitmap of 2.3.0 with 2.2.0",
        "restore it in the Flink that wrote it, or a newer one",
        lambda step, written: step.target < _SINCE.get(written.name, step.target),
    ),
    SerializerRule(
        "binary-string", Verdict.DOES_NOT,
        "BinaryStringSerializer is gone since SQL has StringDataSerializer",
        "jars of Flink 1.20.2 to 2.3.0 have no such class",
        "the query has to begin anew: remove its operators with abs rewrite",
        lambda _, written: written.name.endswith("$BinaryStringSerializerSnapshot"),
    ),
    SerializerRule(
        "serializer-unknown", Verdict.UNKNOWN,
        "only its own class can say whether it reads what it wrote",
        "TypeSerializerSnapshot.resolveSchemaCompatibility",
        "see that its class is on the job's class path, and try it",
        lambda step, written: written.kind == "opaque" and written.text is None,
    ),
    SerializerRule(
        "sql", Verdict.UNKNOWN,
        "it is of SQL, of which Flink guarantees for no other minor version that a query has the same operators",
        "documentation of Flink, Table API: stateful upgrades and evolution",
        "keep a compiled plan, or give the plan of the job in that Flink: --topology PLAN (REST: /jobs/ID/plan)",
        lambda step, written: step.may_be_other and written.kind in {"rowdata", "arraydata", "mapdata", "binaryrow"},
    ),
)  # fmt: skip
"""Of single serializers, wherever they stand in one another; of each the first rule that hits counts."""

SQL: Final = "sql"
SQL_SAME_PLAN: Final = Rule(
    "sql-same-plan", Verdict.RESTORES,
    "it is of SQL, and the plan of the job has the operator with the same id: the query has the same operators",
    "documentation of Flink, Table API: stateful upgrades and evolution; tried: 1.18.1 to 1.20.3, 1.20.3 and 2.0.0 to "
    "2.3.0; abs diff --uids",
    "see that the columns have the same types: the plan does not contain them, --schema checks them (rows)",
)
"""In the place of the rule SQL, if the user gave the plan of the job that is to be started."""

_CONNECTOR_1: Final = f"{FLINK}streaming.connectors.kafka.FlinkKafkaProducer$"

STATES: Final = (
    StateRule(
        "source-function", Verdict.DOES_NOT,
        "it is of a source of the old kind (SourceFunction), which connectors for Flink 2 do not have",
        f"{_NOTES_2}, breaking changes",
        "note the positions with abs state, remove its operator with abs rewrite, and start the new source from them",
        lambda step, name: step.to_2 and name in _OLD_SOURCES,
    ),
    StateRule(
        "sink-function", Verdict.DOES_NOT,
        "it is of a sink of the old kind (SinkFunction), which connectors for Flink 2 do not have",
        f"{_NOTES_2}, breaking changes",
        "let the sink commit with a stop-with-savepoint, remove its operator with abs rewrite, and use a Sink V2",
        lambda step, name: step.to_2 and name in _OLD_SINKS,
    ),
    StateRule(
        "file-sink-function", Verdict.RESTORES,
        "it is of StreamingFileSink, which Flink 2 has in the package `legacy`, or of SQL's file sink, which is there",
        "tried with 2.3.0: StreamingFileSink; jars of Flink 2.3.0: AbstractStreamingWriter",
        "import the class from its new package",
        lambda step, name: step.to_2 and name == "bucket-states",
    ),
)
"""Of states by name; every rule that hits counts."""

GONE: Final = Rule(
    "serializer-gone", Verdict.DOES_NOT,
    "the class of its serializer's snapshot is gone: an old Flink wrote it, and it was not rewritten since",
    "jars of Flink 1.16.3 to 2.3.0",
    "restore it in Flink 1.16 and take a new savepoint there, which has the class of today",
)
"""Of a serializer that is not read here."""


def of_unknown_class(step: Step, name: str) -> Rule:
    """What is said of a serializer that only its own class can read. name: of the class of its snapshot."""
    until = _UNTIL.get(name, _CONFIG_UNTIL if _CONFIG.fullmatch(name) else None)
    if until is not None and step.target >= until:
        return GONE
    if step.to_2 and name.startswith(_CONNECTOR_1):
        return next(rule for rule in STATES if rule.name == "sink-function")
    return next(rule for rule in SERIALIZERS if rule.name == "serializer-unknown")


METADATA: Final = Rule(
    "metadata-version", Verdict.DOES_NOT,
    "the file has a version that this Flink does not know: `Unrecognized checkpoint version number`",
    "MetadataSerializers of each release; tried with 2.3.0",
    "a snapshot goes to newer releases of Flink only",
)  # fmt: skip
"""Of the whole snapshot."""
IN_FLIGHT: Final = Rule(
    "in-flight", Verdict.UNKNOWN,
    "it has records in flight: Flink does not support another minor version from an unaligned checkpoint",
    "documentation of Flink: checkpoints vs. savepoints",
    "take a savepoint",
)
"""Of the states of an operator that has such records."""
RAW: Final = Rule(
    "raw", Verdict.UNKNOWN,
    "it is raw state, of a format of its operator's own",
    "StateInitializationContext.getRawKeyedStateInputs",
    "try it",
)
"""Of state that has no name."""
UNREAD: Final = Rule(
    "unread", Verdict.UNKNOWN,
    "its serializers cannot be read",
    "the snapshot itself",
    "abs validate says why",
)
"""Of all that a subtask has."""
