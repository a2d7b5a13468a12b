"""What `abs inspect --broker` shows: how far the sources of Kafka of an epoch are behind, and what is gone unread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from abscli.text.columns import UNKNOWN, columns, not_shown, number, wrapped
from formats.kafka import Gap, SplitLag, told
from formats.version import FORMAT_VERSION

SHOWN = 40
"""Partitions that a table shows, those with gaps and the largest lag first; json has them all."""
SPARE = ("OLDEST", "END")
"""Columns that a narrow terminal does without."""


@dataclass(frozen=True, slots=True)
class LagPage:
    """Sources of Kafka after an epoch, against what a broker has.

    broker: as it was named.
    splits: by source, topic and partition.
    lost_input: what a restart makes of records that are gone.
    """

    path: str
    format: str
    job: str | None
    epoch: int
    broker: str
    splits: Sequence[SplitLag]
    lost_input: str

    @property
    def lag(self) -> int:
        """Records that are still to be read, as far as that is known."""
        return sum(split.lag or 0 for split in self.splits)

    @property
    def dropped(self) -> int:
        """Of them those that are gone."""
        return sum(split.dropped for split in self.splits)

    @property
    def gaps(self) -> list[SplitLag]:
        """Partitions in which a source cannot go on where it was."""
        return [split for split in self.splits if split.gap is not None]


def text(page: LagPage, *, width: int = 80) -> str:
    """A line a partition, the sum, and what a restart makes of gaps."""
    lines = wrapped(f"Epoch {page.epoch} of {page.path}, against the broker {page.broker}", width)
    ordered = sorted(page.splits, key=lambda split: (split.gap is None, -(split.lag or 0)))
    rows = [
        (split.operator, split.split, _place(split), number(split.earliest), number(split.end), number(split.lag),
         _gone(split))
        for split in ordered[:SHOWN]
    ]  # fmt: skip
    header = ("SOURCE", "PARTITION", "GOES ON AT", "OLDEST", "END", "LAG", "GONE")
    lines += ["", *columns(header, rows, "llrrrrr", width, SPARE), *not_shown(header, rows, width, SPARE)]
    if len(ordered) > SHOWN:
        lines.append(f"  ... and {len(ordered) - SHOWN} more; -o json has them all")
    total = f"{number(page.lag)} records are to be read, by their offsets"
    lines += ["", *wrapped(total + (f"; {number(page.dropped)} of them were removed" if page.dropped else ""), width)]
    if page.gaps:
        named = "; ".join(f"{split.split} {told(split)}" for split in page.gaps[:3])
        more = len(page.gaps) - 3
        lines += wrapped(named + (f"; so do {more} more" if more > 0 else ""), width, "    ", "  gap: ")
        lines += wrapped(page.lost_input, width, "    ", "  means: ")
    return "\n".join(lines) + "\n"


def _place(split: SplitLag) -> str:
    return "new" if split.offset is None else number(split.offset)


def _gone(split: SplitLag) -> str:
    match split.gap:
        case Gap.DROPPED:
            return number(split.dropped)
        case Gap.AHEAD | Gap.GONE:
            return UNKNOWN
        case None:
            return "-"


def to_json(page: LagPage) -> dict[str, Any]:
    """`abs.lag`."""
    return {
        "schema": "abs.lag",
        "version": FORMAT_VERSION,
        "store": page.path,
        "format": page.format,
        "job": page.job,
        "epoch": page.epoch,
        "broker": page.broker,
        "lag": page.lag,
        "dropped": page.dropped,
        "gaps": len(page.gaps),
        "splits": [{**msgspec.to_builtins(split), "split": split.split} for split in page.splits],
    }


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a partition a line."""
    header = {key: value for key, value in result.items() if key != "splits"}
    return header, ({"type": "split", **split} for split in result["splits"])
