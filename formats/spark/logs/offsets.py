"""`offsets/N` and `commits/N`: what batch N was to read, and that it is done."""

from __future__ import annotations

from typing import Any

import msgspec

from formats.errors import Damaged
from formats.spark.logs import log as logs

NEWEST = 2
"""Of offsets."""
NEWEST_COMMIT = 3
"""With the sinks that the query has had, by name (Spark 4.3's sink evolution)."""
CONF = "spark.sql.streaming.stateStore."
PARTITIONS = "spark.sql.shuffle.partitions"
KNOWN_PROVIDERS = {
    f"org.apache.spark.sql.execution.streaming.state.{name}StateStoreProvider": short
    for name, short in (("HDFSBacked", "hdfs"), ("RocksDB", "rocksdb"))
}
"""Classes that keep state, and what they are called here."""
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Whether sources go by their names, so that they may come and go (Spark 4.2 on)."""


class Offsets(msgspec.Struct, frozen=True):
    """One entry of the offset log, written before the batch runs.

    sources: by number (version 1) or name (version 2), each source's offset as JSON text, None where it has none.
    watermark: milliseconds, as of the start of the batch.
    timestamp: milliseconds since 1970.
    conf: the SQL settings that the query keeps for life.
    """

    version: int
    watermark: int | None
    timestamp: int | None
    conf: dict[str, str]
    sources: dict[str, str | None]

    @property
    def provider(self) -> str | None:
        """`hdfs`, `rocksdb`, or the class of another provider; None if it does not say."""
        name = self.conf.get(CONF + "providerClass")
        if name is None:
            return None
        short = name.rpartition(".")[2]
        return {"HDFSBackedStateStoreProvider": "hdfs", "RocksDBStateStoreProvider": "rocksdb"}.get(short, name)

    @property
    def unread(self) -> str | None:
        """Why state is not read here: it is kept by a provider that is not one of Spark's two."""
        readable = self.provider in (None, "hdfs", "rocksdb")
        return None if readable else f"state is kept by {self.provider}, which is not read here"

    @property
    def codec(self) -> str | None:
        """The codec of state files."""
        return self.conf.get(CONF + "compression.codec")

    @property
    def row_checksum(self) -> bool:
        """Whether rows of state carry a checksum (Spark 4.1 on)."""
        return self.conf.get(CONF + "rowChecksum.enabled", "").lower() == "true"

    @property
    def encoding(self) -> str:
        """How rows are written where the operator has a choice: `unsaferow` or `avro`."""
        return self.conf.get(CONF + "encodingFormat", "unsaferow").lower()

    @property
    def partitions(self) -> int | None:
        """Partitions of state."""
        text = self.conf.get(PARTITIONS, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None

    @property
    def strict(self) -> bool:
        """Whether state is sure to be partitioned by all key columns; older queries may go on without (SPARK-38204)."""
        return self.conf.get("spark.sql.streaming.statefulOperator.useStrictDistribution", "true").lower() == "true"


class Commit(msgspec.Struct, frozen=True):
    """One entry of the commit log.

    watermark: milliseconds, for the next batch.
    ids: of checkpoint format 2, by operator, partition and store the unique id of the state that the batch left.
    sinks: of version 3, by name what Spark says of each sink that the query has had.
    """

    version: int
    watermark: int | None
    ids: dict[int, tuple[tuple[str, ...], ...]] | None
    sinks: dict[str, dict[str, Any]] | None = None


def parse_offsets(data: bytes, path: str) -> Offsets:
    """The bytes of `offsets/N`; EmptyLog, Damaged, UnsupportedVersion."""
    version, rest = logs.lines(data, path, NEWEST)
    if not rest:
        raise Damaged("ends after its version", path=path, hint="it was cut short")
    conf: dict[str, str] = {}
    watermark = timestamp = None
    if head := rest[0].strip():
        metadata = logs.parse(head, path)
        watermark = logs.number(metadata, "batchWatermarkMs", path)
        timestamp = logs.number(metadata, "batchTimestampMs", path)
        conf = _texts(metadata.get("conf", {}), path)
    if len(rest) < 2:
        raise Damaged("has no offset of any source", path=path, hint="it was cut short")
    sources: dict[str, str | None] = {}
    for i, line in enumerate(rest[1:]):
        name, offset = str(i), line
        if version >= 2:
            name, colon, offset = line.partition(":")
            if not colon:
                raise Damaged(f"line {i + 3} is not an offset of a named source", path=path)
        if not offset.strip():
            raise Damaged(f"line {i + 3} has no offset", path=path, hint="it was cut short")
        if offset[0] in "{[":
            try:
                parsed = msgspec.json.decode(offset)
            except (msgspec.DecodeError, RecursionError):
                raise Damaged(f"the offset of source {name} is cut short or damaged", path=path) from None
            if isinstance(parsed, dict) and "logOffset" in parsed and type(parsed["logOffset"]) is not int:
                raise Damaged(f"the offset of source {name} has no number for its log: {offset[:60]}", path=path)
        sources[name] = None if offset == "-" else offset
    return Offsets(version, watermark, timestamp, conf, sources)


def parse_commit(data: bytes, path: str) -> Commit:
    """The bytes of `commits/N`; EmptyLog, Damaged, UnsupportedVersion."""
    version, rest = logs.lines(data, path, NEWEST_COMMIT)
    text = "\n".join(rest).strip()
    if not text:
        if version == 1 and len(rest) == 1:  # Spark before 2.4.2 wrote nothing more
            return Commit(version, None, None)
        raise Damaged("ends after its version", path=path, hint="it was cut short")
    fields = logs.parse(text, path)
    if "nextBatchWatermarkMs" not in fields:
        raise Damaged("has no nextBatchWatermarkMs, which Spark always writes: it would take 0", path=path)
    ids = None
    if fields.get("stateUniqueIds") is not None:
        ids = _ids(fields["stateUniqueIds"], path)
    sinks = fields.get("sinkMetadataMap")
    if sinks is not None and not (isinstance(sinks, dict) and all(isinstance(sink, dict) for sink in sinks.values())):
        raise Damaged("its list of sinks is not an object by name", path=path)
    return Commit(version, logs.number(fields, "nextBatchWatermarkMs", path), ids, sinks)


def _ids(by_operator: Any, path: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    wrong = Damaged("its unique ids of state are not lists by operator, partition and store", path=path)
    if not isinstance(by_operator, dict) or not all(key.isascii() and key.isdigit() for key in by_operator):
        raise wrong
    out: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator, partitions in by_operator.items():
        if not isinstance(partitions, list) or not all(isinstance(stores, list) for stores in partitions):
            raise wrong
        if not all(isinstance(uuid, str) for stores in partitions for uuid in stores):
            raise wrong
        out[int(operator)] = tuple(tuple(stores) for stores in partitions)
    return out


def _texts(conf: Any, path: str) -> dict[str, str]:
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise Damaged("its conf is not an object of texts", path=path)
    return dict(conf)
