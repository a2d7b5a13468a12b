"""Damages to the logs of a streaming word count that has read seven files in seven batches, by name.

Each is what a copy, a restore of some files, a hand or a tool does to a checkpoint, and none leaves a checksum file
that tells. `tests/bench/spark/bench_spark_damages.py` asks the real Spark what it makes of each.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
"""Does its damage to the checkpoint at a path."""

PARTITIONS = "spark.sql.shuffle.partitions"
OPERATOR = "state/0/_metadata/metadata"
FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
CODEC = "spark.sql.streaming.stateStore.compression.codec"


def copy(old: str, new: str) -> Damage:
    """A file in the place of another, or beside the others."""

    def damage(root: Path) -> None:
        shutil.copyfile(root / old, root / new)

    return damage


def swap(one: str, other: str) -> Damage:
    def damage(root: Path) -> None:
        first, second = (root / one).read_bytes(), (root / other).read_bytes()
        (root / one).write_bytes(second)
        (root / other).write_bytes(first)

    return damage


def remove(*patterns: str) -> Damage:
    def damage(root: Path) -> None:
        for pattern in patterns:
            for path in list(root.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def head(path: str, **changes: Any) -> Damage:
    """Members of the JSON object on the second line of a file; None takes one away."""

    def damage(root: Path) -> None:
        version, text, *rest = (root / path).read_text().split("\n")
        said = json.loads(text)
        for name, value in changes.items():
            said.pop(name, None) if value is None else said.update({name: value})
        (root / path).write_text("\n".join([version, json.dumps(said, separators=(",", ":")), *rest]))

    return damage


def conf(path: str, name: str, value: str | None) -> Damage:
    """A setting in the offsets of a batch; None takes it away."""

    def damage(root: Path) -> None:
        own = json.loads((root / path).read_text().split("\n")[1])["conf"]
        own.pop(name, None) if value is None else own.update({name: value})
        head(path, conf=own)(root)

    return damage


def text(path: str, old: str, new: str) -> Damage:
    def damage(root: Path) -> None:
        was = (root / path).read_text()
        assert old in was, f"{path} has no {old}"
        (root / path).write_text(was.replace(old, new))

    return damage


def lines(path: str, change: Callable[[list[str]], list[str]]) -> Damage:
    def damage(root: Path) -> None:
        (root / path).write_text("\n".join(change((root / path).read_text().split("\n"))))

    return damage


def both(*damages: Damage) -> Damage:
    def damage(root: Path) -> None:
        for one in damages:
            one(root)

    return damage


def _duplicated(path: str, other: str) -> Damage:
    """The files of another entry as well as its own."""

    def damage(root: Path) -> None:
        more = (root / other).read_text().split("\n")[1:]
        lines(path, lambda own: [*own, *more])(root)

    return damage


DAMAGES: dict[str, Damage] = {
    "newest offsets copied from the batch before": copy("offsets/5", "offsets/6"),
    "offsets in the middle copied from the batch before": copy("offsets/3", "offsets/4"),
    "newest offsets copied from far before": copy("offsets/2", "offsets/6"),
    "newest offsets beyond the newest batch's entries": text("offsets/6", '"logOffset":6', '"logOffset":8'),
    "newest offsets one entry short": text("offsets/6", '"logOffset":6', '"logOffset":5'),
    "offsets swapped": swap("offsets/5", "offsets/6"),
    "fewer partitions in the newest offsets": conf("offsets/6", PARTITIONS, "2"),
    "more partitions in the newest offsets": conf("offsets/6", PARTITIONS, "5"),
    "fewer partitions in offsets in the middle": conf("offsets/3", PARTITIONS, "2"),
    "newest offsets copied, with fewer partitions": both(
        copy("offsets/5", "offsets/6"), conf("offsets/6", PARTITIONS, "2")
    ),
    "no number of partitions in the newest offsets": conf("offsets/6", PARTITIONS, None),
    "another format of state in the newest offsets": conf("offsets/6", FORMAT, "1"),
    "another codec in the newest offsets": conf("offsets/6", CODEC, "zstd"),
    "no settings in the newest offsets": head("offsets/6", conf={}),
    "settings under another key in the newest offsets": text("offsets/6", '"conf":', '"config":'),
    "watermark under another key in the newest offsets": text("offsets/6", '"batchWatermarkMs":', '"batchWatermark":'),
    "watermark of the newest offsets gone back": head("offsets/6", batchWatermarkMs=-5),
    "watermark of the newest offsets ahead": head("offsets/6", batchWatermarkMs=1_900_000_000_000),
    "watermark of the newest commit ahead": head("commits/6", nextBatchWatermarkMs=1_900_000_000_000),
    "time of the newest offsets gone back": head("offsets/6", batchTimestampMs=1_000),
    "another source's line in the newest offsets": lines("offsets/6", lambda own: [*own, '{"logOffset":6}']),
    "the source's line gone back to none": text("offsets/6", '{"logOffset":6}', "-"),
    "an offset of another kind": text("offsets/6", '{"logOffset":6}', '{"topic":{"0":6}}'),
    "newest offsets lost": remove("offsets/6"),
    "newest offsets and commits of the last two lost": remove("offsets/6", "offsets/5", "commits/6", "commits/5"),
    "offsets of a batch to come": copy("offsets/6", "offsets/8"),
    "offsets of the next batch copied": copy("offsets/6", "offsets/7"),
    "commit of a batch to come": copy("commits/6", "commits/8"),
    "commit of the next batch": copy("commits/6", "commits/7"),
    "newest commit lost": remove("commits/6"),
    "newest two commits lost": remove("commits/6", "commits/5"),
    "all commits lost": remove("commits/*"),
    "folder of commits lost": remove("commits"),
    "newest source entry copied from the one before": copy("sources/0/5", "sources/0/6"),
    "source entry in the middle copied": copy("sources/0/2", "sources/0/3"),
    "newest source entry holds another's files too": _duplicated("sources/0/6", "sources/0/5"),
    "newest source entry of another number": text("sources/0/6", '"batchId":6', '"batchId":5'),
    "newest source entry without a number": text("sources/0/6", ',"batchId":6', ""),
    "newest source entry under another key": text("sources/0/6", '"batchId"', '"batch"'),
    "newest source entry has no path": text("sources/0/6", '"path"', '"file"'),
    "newest source entry empty of files": lines("sources/0/6", lambda own: own[:1]),
    "source entries swapped": swap("sources/0/5", "sources/0/6"),
    "source entry to come copied": copy("sources/0/6", "sources/0/7"),
    "source entry far ahead": copy("sources/0/6", "sources/0/9"),
    "compaction of too few entries": copy("sources/0/4", "sources/0/4.compact"),
    "source's folder lost": remove("sources/0"),
    "operator's metadata of fewer partitions": text(OPERATOR, '"numPartitions":3', '"numPartitions":2'),
    "operator's metadata of more partitions": text(OPERATOR, '"numPartitions":3', '"numPartitions":5'),
    "operator's metadata of another operator": text(OPERATOR, "stateStoreSave", "dedupe"),
    "a folder of a partition too many": lambda root: shutil.copytree(root / "state/0/1", root / "state/0/3") and None,
    "a folder of an operator too many": lambda root: shutil.copytree(root / "state/0", root / "state/1") and None,
    "query id of another query": text("metadata", '"id":"', '"id":"0'),
}  # fmt: skip
"""By name; what each does to a checkpoint of seven batches."""
