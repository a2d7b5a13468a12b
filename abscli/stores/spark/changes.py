"""What differs between two Spark batches besides state and positions, and what it means for a restart: settings that
the offsets keep, and schemas of state."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.diff.epochs import TopologyDiff
from abscli.stores.spark.diff import Refusal, diff_conf, diff_schemas
from formats.errors import FormatError
from formats.spark.codings import Family
from formats.spark.logs.offsets import Offsets
from formats.spark.store import SparkStore

_REFUSED = {
    Refusal.KEY: "refused: Spark does not start with another key schema (STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE)",
    Refusal.VALUE: "refused: Spark does not start with another value schema (STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE)",
    Refusal.GONE: "its state would have no owner",
}


def changes(left: SparkStore, before: int, right: SparkStore, after: int) -> Iterator[TopologyDiff]:
    """Settings and schemas of batch `before` of one checkpoint against batch `after` of another or the same."""
    was, now = _offsets(left, before), _offsets(right, after)
    if was is not None and now is not None:
        for name, old, new in diff_conf(was, now):
            said = "a restart keeps the first's, whatever the session says"
            if old is None:
                said = "the first does not have it: a restart takes Spark's default for old checkpoints"
            yield TopologyDiff("setting", name, old, new, said)
    olds, news = left.checkpoint.operators(), right.checkpoint.operators()
    for id in sorted(olds.keys() & news.keys()):
        was_name, is_name = olds[id].name, news[id].name
        if was_name != is_name and None not in (was_name, is_name):
            said = "refused: Spark wants the same operators by number (STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)"
            yield TopologyDiff("kind", str(id), was_name, is_name, said)
    for change in diff_schemas(_families(left, before), _families(right, after)):
        if change.before is None or change.after is None:
            continue  # an operator that came or went: the lists of operators tell it
        name = f"{change.operator} {change.name}" if change.name else str(change.operator)
        said = "none: Spark goes by types, not by names"
        if change.refused is not None:
            said = _REFUSED[change.refused]
        yield TopologyDiff("schema", name, change.before, change.after, said)


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
