"""A real join of two streams of text files, whose rows are known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

Row = tuple[str, str]


def go_on_joining(session: Any, home: Path, checkpoint: Path) -> dict[int, Counter[Row]]:
    """Run the join of `home/input` and `home/other` by the first word of each line until both are read, from where its
    checkpoint stands; the rows that its sink was given, by batch."""
    from pyspark.sql.functions import col, split

    def side(folder: str, name: str) -> Any:
        lines = session.readStream.option("maxFilesPerTrigger", 1).text(str(home / folder))
        return lines.select(split(col("value"), " ")[0].alias(f"{name}_key"), col("value").alias(name))

    seen: dict[int, Counter[Row]] = {}

    def sink(frame: Any, batch: int) -> None:
        seen[batch] = Counter((row["one"], row["two"]) for row in frame.collect())

    one, two = side("input", "one"), side("other", "two")
    writer = one.join(two, one["one_key"] == two["two_key"]).writeStream.foreachBatch(sink).outputMode("append")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return seen


def join_of(home: Path) -> Counter[Row]:
    """What the rows have to come to."""
    one, two = (
        [line for path in sorted((home / side).glob("*.txt")) for line in path.read_text().splitlines()]
        for side in ("input", "other")
    )
    by_key: dict[str, list[str]] = {}
    for line in two:
        by_key.setdefault(line.split()[0], []).append(line)
    return Counter((line, other) for line in one for other in by_key.get(line.split()[0], ()))
