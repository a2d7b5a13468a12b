"""Settings that a query keeps for life, as the offsets of its batches have them: legal values, and the right one. Pure.

Spark takes them from the newest offsets when it starts (`OffsetSeqMetadata.setSessionConf`). One that is damaged there
must not decide how the state of all batches is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from formats.spark.logs.offsets import CONF, KNOWN_PROVIDERS, NAMED_SOURCES, PARTITIONS, Offsets

_BOOLEANS: Final = frozenset({
    CONF + "rowChecksum.enabled",
    NAMED_SOURCES,
    "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
    "spark.sql.function.protobufExtensions.enabled",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",
    "spark.sql.streaming.statefulOperator.useStrictDistribution",
})  # fmt: skip
_NUMBERS: Final = frozenset({
    PARTITIONS,
    CONF + "rocksdb.formatVersion",
    CONF + "rocksdb.mergeOperatorVersion",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
})  # fmt: skip
_WORDS: Final = frozenset({
    CONF + "compression.codec",
    CONF + "encodingFormat",
    CONF + "providerClass",
    "spark.sql.streaming.multipleWatermarkPolicy",
})  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]{1,7}")
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)


def why_illegal(name: str, value: str) -> str | None:
    """Tell why Spark does not take a value of a setting; None if it may, or the setting is not known."""
    if name in _BOOLEANS and value.lower() not in ("true", "false"):
        return "is neither true nor false"
    if name in _NUMBERS and not _NUMBER.fullmatch(value):
        return "is not a number"
    if name in _WORDS and not _WORD.fullmatch(value):
        return "is not a name"
    return None


def right_value(name: str, values: Iterable[str | None]) -> str | None:
    """The legal value that most batches have, from the oldest batch on; None if no batch has one.

    Of a tie, a store of state that is Spark's own wins, then the older value.
    """
    votes = Counter(value for value in values if value is not None and why_illegal(name, value) is None)
    return max(votes, key=lambda value: (votes[value], value in KNOWN_PROVIDERS), default=None)


def agreed(batches: Sequence[Offsets]) -> dict[str, str]:
    """The settings of a query, except the number of partitions, which a repartition changes. batches: oldest first."""
    names = {name for batch in batches for name in batch.conf} - {PARTITIONS}
    values = {name: right_value(name, [batch.conf.get(name) for batch in batches]) for name in names}
    return {name: value for name, value in values.items() if value is not None}
