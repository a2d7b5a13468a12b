"""A real word count over several sources of text files, which may have names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from formats.spark.logs.offsets import NAMED_SOURCES


def add_file(folder: Path, number: int) -> None:
    """An input file with a word that all folders have, one of the folder, and one of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part {number:03d}.txt"
    path.write_text(f"all of-{folder.name} {folder.name}-{number}")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes them by age


def words_of(*folders: Path) -> Counter[str]:
    return Counter(word for folder in folders for path in folder.glob("*.txt") for word in path.read_text().split())


def go_on(session: Any, folders: Iterable[Path], checkpoint: Path, *, named: bool = True) -> dict[str, int]:
    """Runs the query until its folders are read, from where its checkpoint stands; the last count of each word that its
    sink was given. named: each source has the name of its folder."""
    from pyspark.sql.functions import col, explode, split

    def source(folder: Path) -> Any:
        reader = session.readStream.format("text").option("maxFilesPerTrigger", 1)
        return (reader.name(folder.name) if named else reader).load(str(folder))

    seen: dict[str, int] = {}

    def sink(frame: Any, batch: int) -> None:
        seen.update({row["word"]: row["count"] for row in frame.collect()})

    session.conf.set(NAMED_SOURCES, str(named).lower())
    try:
        lines = reduce(lambda one, other: one.union(other), map(source, folders))
        words = lines.select(explode(split(col("value"), " ")).alias("word")).groupBy("word").count()
        writer = words.writeStream.foreachBatch(sink).outputMode("update").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        session.conf.unset(NAMED_SOURCES)
    return seen
