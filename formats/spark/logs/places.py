"""What offsets of known sources say: whose they are, how far they are, and which of them can be set.

Kafka: the next record of each partition. Delta (`DeltaSourceOffset`): a version of the table and an index into its
files, -1 before the first; of the first version that a query has read, the files of the table as it stood. Auto Loader
(as Databricks documents its progress): the place in the sequence of files, in the order in which they were discovered.
Kinesis (kinesis-sql, and the connector of AWS): an iterator for each shard. The sources of rates: seconds, and rows.
"""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from formats.view import Position

VERSION = "version"
"""The split of a Delta table that can be set."""
VERSIONS = "versions"
_BEFORE_ALL = -1
"""Delta's index before the first file of a version."""


def is_file_source(offset: str | None) -> int | None:
    """The number in the source's log that an offset stands for; None if it is not a file source's."""
    parsed = _parsed(offset)
    number = parsed.get("logOffset") if isinstance(parsed, dict) else None
    return number if _is_number(number) else None


def kind_of(offset: str | None) -> str | None:
    """What wrote an offset, by its shape: `file`, `rate`, `rate-micro-batch`, `kafka`, `delta`, `auto-loader`,
    `kinesis`; None if that is not known."""
    parsed = _parsed(offset)
    if _is_number(parsed):
        return "rate"
    if not isinstance(parsed, dict) or not parsed:
        return None
    if set(parsed) == {"logOffset"} and _is_number(parsed["logOffset"]):
        return "file"
    if set(parsed) == {"offset", "timestamp"} and _is_number(parsed["offset"]):
        return "rate-micro-batch"
    if {"reservoirId", "reservoirVersion", "index"} <= set(parsed):
        numbers = _is_number(parsed["reservoirVersion"]) and _is_number(parsed["index"])
        return "delta" if numbers else None
    if {"seqNum", "sourceVersion", "lastBackfillStartTimeMs"} <= set(parsed) and _is_number(parsed["seqNum"]):
        return "auto-loader"
    if _is_kinesis(parsed):
        return "kinesis"
    if all(isinstance(p, dict) and all(k.isdecimal() and _is_number(n) for k, n in p.items()) for p in parsed.values()):
        return "kafka"
    return None


def _parsed(offset: str | None) -> Any:
    try:
        return json.loads(offset) if offset else None
    except (ValueError, RecursionError):
        return None


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_kinesis(parsed: dict[str, Any]) -> bool:
    """A shard's iterator each, and beside them the stream's name."""
    shards = [value for name, value in parsed.items() if name != "metadata"]
    metadata = parsed.get("metadata")
    named = isinstance(metadata, dict) and "streamName" in metadata
    return named and all(isinstance(s, dict) and {"iteratorType", "iteratorPosition"} <= set(s) for s in shards)


def positions(offset: str | None) -> tuple[Position, ...] | None:
    """How far an offset is, split by split; None where the source has no offset yet, or is of a kind that is not known.

    A split's numbers grow as its source reads. Of Delta each version has a split of its own, beside that of versions.
    """
    kind, parsed = kind_of(offset), _parsed(offset)
    match kind:
        case None:
            return None
        case "rate":
            return (Position("seconds", parsed, None),)
        case "file":
            return (Position("log", parsed["logOffset"], None),)
        case "rate-micro-batch":
            return (Position("rows", parsed["offset"], parsed["offset"]),)
        case "delta":
            version, index = parsed["reservoirVersion"], parsed["index"]
            of = "snapshot" if parsed.get("isStartingVersion") is True else "version"
            # Indexes below -1 are those of changes of the schema, before the first file of a version.
            return (Position(VERSION, version, None), Position(f"files of {of} {version}", max(index + 1, 0), None))
        case "auto-loader":
            return (Position("files", parsed["seqNum"], None),)
        case "kinesis":
            shards = sorted((shard, at) for shard, at in parsed.items() if shard != "metadata")
            return tuple(Position(shard, None, None, _iterator(at)) for shard, at in shards)
        case _:
            places = kafka_offsets(offset).items()
            return tuple(Position(f"{topic}-{partition}", at, at) for (topic, partition), at in places)


def _iterator(shard: dict[str, Any]) -> str:
    """Where a shard is read from: a sequence number, a time, or one of its ends."""
    more = [str(shard[name]) for name in ("subSequenceNumber",) if str(shard.get(name, "-1")) != "-1"]
    return " ".join(part for part in (str(shard["iteratorType"]), str(shard["iteratorPosition"]), *more) if part)


def kafka_offsets(offset: str | None) -> dict[tuple[str, int], int]:
    """Where a source of Kafka goes on, by topic and partition, in their order; none of another source."""
    if kind_of(offset) != "kafka":
        return {}
    return {
        (topic, int(partition)): at
        for topic, partitions in sorted(_parsed(offset).items())
        for partition, at in sorted(partitions.items(), key=lambda item: int(item[0]))
    }


# -- other places ---------------------------------------------------------------------------------------------

_UNSETTABLE = {
    None: "its format is not known here",
    "file": "its log says which files it has read, and does not say which of them another place would be without",
    "rate": "its rows come with the clock",
    "rate-micro-batch": "the times of its rows go on from the offset by options that the checkpoint does not hold",
    "auto-loader": "which files a place stands for is in a database whose format is not public",
    "kinesis": "sequence numbers do not tell how many records lie between two of them",
}


def why_not_set(offset: str | None, split: str) -> str | None:
    """Why a source cannot go on from another place in a split; None if it can."""
    kind = kind_of(offset)
    if kind == "delta" and split != VERSION:
        return f"a Delta table is set by its version: {VERSION}=N goes on with all that version N has changed"
    if kind in ("kafka", "delta"):
        splits = [at.split for at in positions(offset) or ()]
        return None if split in splits else f"it has {', '.join(splits)}"
    return f"positions of {kind or 'this source'} cannot be set: {_UNSETTABLE[kind]}"


def unit_of(offset: str | None) -> str:
    """What lies between two places of a source that can be set."""
    return VERSIONS if kind_of(offset) == "delta" else "records"


def at(offset: str | None, split: str) -> int | None:
    """The place in a split, as `positions` has it."""
    return next((one.offset for one in positions(offset) or () if one.split == split), None)


def earliest(start: str | None, end: str | None, split: str) -> int:
    """The first place in a split from which a source reads nothing again that state had before the batch between two
    offsets began."""
    if kind_of(end) != "delta":
        return at(start, split) or 0
    begun, ended = _parsed(start) if start is not None else None, _parsed(end)
    first = 0 if begun is None else begun["reservoirVersion"] + (begun["index"] != _BEFORE_ALL)
    # The files of the table as it stood are not those that its version has changed.
    whole = any(one is not None and one.get("isStartingVersion") is True for one in (begun, ended))
    return max(int(first), ended["reservoirVersion"] + 1 if whole else 0)


def table_of(offset: str | None) -> str | None:
    """The id of the Delta table that an offset is of; None of another source."""
    return str(_parsed(offset)["reservoirId"]) if kind_of(offset) == "delta" else None


def why_recreated(old: str | None, new: str | None, later: str | None) -> str | None:
    """Tell from three offsets of a source if its topic or table was recreated between the first two; None if not.

    later: of the next batch. A topic is known by it: the query goes on from where it went back to. Offsets of an older
    batch in place of a batch's own are followed by offsets that go on from the newer ones.
    """
    before, after = table_of(old), table_of(new)
    if before is not None and after is not None and before != after:
        return f"reads table {after}, and read table {before} before"
    was, now, then = kafka_offsets(old), kafka_offsets(new), kafka_offsets(later)
    back = [place for place, at in now.items() if place in was and at < was[place]]
    if not back or any(place not in then or not now[place] <= then[place] < was[place] for place in back):
        return None
    topic, partition = back[0]
    went = f"went back in {topic}-{partition} from {was[back[0]]} to {now[back[0]]}"
    return f"{went}{f' (and {len(back) - 1} more)' if len(back) > 1 else ''}, and went on from there"


def with_position(offset: str | None, split: str, to: int, table: str | None = None) -> str | None:
    """An offset with another place in one split, which is named as in `positions`; None if it cannot be set.

    table: the id of another Delta table.
    """
    if why_not_set(offset, split) is not None:
        return None
    parsed = _parsed(offset)
    if kind_of(offset) == "delta":
        # As Delta itself writes it when it is done with the version before.
        parsed.update(sourceVersion=1, reservoirVersion=to, index=_BEFORE_ALL, isStartingVersion=False)
        parsed["reservoirId"] = table or parsed["reservoirId"]
    else:
        for topic, partitions in parsed.items():
            for partition in partitions:
                if f"{topic}-{partition}" == split:
                    partitions[partition] = to
    return json.dumps(parsed, separators=(",", ":"), ensure_ascii=False)
