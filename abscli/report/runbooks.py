"""The page of the guide for each finding: a runbook, or the section that explains the finding.

The guide is not published, so a report prints the title and the file of the page instead of a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from abscli.report.findings import Code

GUIDE = "man/guide/pages"
"""The folder of the guide in the source tree."""


class Runbook(msgspec.Struct, frozen=True):
    """A page of the guide. title: its heading; page: its file in the source tree; anchor: of the section."""

    title: str
    page: str
    anchor: str | None = None

    @property
    def location(self) -> str:
        """Return the file with the anchor of the section."""
        return self.page if self.anchor is None else f"{self.page}#{self.anchor}"


def _page(title: str, page: str, anchor: str | None = None) -> Runbook:
    return Runbook(title, f"{GUIDE}/{page}", anchor)


_DAMAGED = _page("A damaged epoch (corrupt or missing files)", "runbooks/damaged-epoch.md")
_ROLL_BACK = _page("Roll back to an older epoch", "runbooks/roll-back.md")
_FLINK = _page("Flink job does not start from its checkpoint", "runbooks/flink-does-not-start.md")
_REGIONS = _page("Regional checkpoints", "flink.md", "regional-checkpoints")
_SPARK = _page("Spark query fails on its checkpoint", "runbooks/spark-query-fails.md")
_WRONG_RESULTS = _page("Spark gives wrong results after a copy", "runbooks/spark-wrong-results.md")

RUNBOOKS: Mapping[Code, Runbook] = MappingProxyType({
    Code.MISSING_ACK: _page("A job crashed", "runbooks/lost-worker.md"),
    Code.MISSING_FILE: _DAMAGED,
    Code.SIZE_MISMATCH: _DAMAGED,
    Code.DIGEST_MISMATCH: _DAMAGED,
    Code.ROW_MISMATCH: _DAMAGED,
    Code.UNREADABLE: _DAMAGED,
    Code.UNREFERENCED_FILE: _page("Reduce the size of a store", "runbooks/disk-full.md"),
    Code.MISSING_LOG: _DAMAGED,
    Code.LOG_MISMATCH: _DAMAGED,
    Code.CONSERVATION: _DAMAGED,
    Code.POSITION_REGRESSED: _ROLL_BACK,
    Code.TOPOLOGY_MISSING: _page("Rebuild lost store metadata", "runbooks/lost-metadata.md"),
    Code.MANIFEST_UNREADABLE: _DAMAGED,
    Code.MISPLACED_KEY: _DAMAGED,
    Code.REGION_MIXED: _REGIONS,
    Code.SPLIT_OWNED_TWICE: _REGIONS,
    Code.STATE_MISMATCH: _REGIONS,
    Code.STALE_PATH: _FLINK,
    Code.SINK_PART_MISSING: _page("File sinks", "jobs/sinks.md", "file-sinks"),
    Code.UNREFERENCED_SINK_PART: _page("One owner per sink", "jobs/sinks.md", "one-owner-per-sink"),
    Code.INPUT_MISSING: _page("Offsets", "jobs/source-kafka.md", "offsets"),
    Code.INPUT_RECREATED: _page("Offsets", "jobs/source-kafka.md", "offsets"),
    Code.ABANDONED_UPLOAD: _page("Sinks in buckets", "reference/storage.md", "sinks-in-buckets"),
    Code.ABANDONED_TRANSACTION: _page("Append", "jobs/sink-postgres.md", "append"),
    Code.SINK_PART_PENDING: _page("Upsert", "jobs/sink-postgres.md", "upsert"),
})  # fmt: skip
"""Finding -> page, for stores of abs and wherever a system has no page of its own."""

BY_SYSTEM: Mapping[str, Mapping[Code, Runbook]] = MappingProxyType({
    "flink": dict.fromkeys(
        (Code.MISSING_ACK, Code.MISSING_FILE, Code.SIZE_MISMATCH, Code.DIGEST_MISMATCH, Code.ROW_MISMATCH,
         Code.UNREADABLE, Code.MANIFEST_UNREADABLE, Code.MISPLACED_KEY, Code.TOPOLOGY_MISSING, Code.MISSING_LOG,
         Code.LOG_MISMATCH, Code.CONSERVATION, Code.POSITION_REGRESSED),
        _FLINK,
    ) | {
        Code.UNREFERENCED_FILE: _page("Orphaned files", "flink.md", "orphaned-files"),
        Code.INPUT_MISSING: _page("Sources and sinks", "flink.md", "sources-and-sinks"),
    },
    "spark": dict.fromkeys(
        (Code.MISSING_ACK, Code.MISSING_FILE, Code.SIZE_MISMATCH, Code.DIGEST_MISMATCH, Code.UNREADABLE,
         Code.MANIFEST_UNREADABLE, Code.TOPOLOGY_MISSING, Code.MISSING_LOG, Code.CONSERVATION),
        _SPARK,
    ) | dict.fromkeys(
        (Code.ROW_MISMATCH, Code.LOG_MISMATCH, Code.MISPLACED_KEY, Code.POSITION_REGRESSED), _WRONG_RESULTS
    ) | {
        Code.UNREFERENCED_FILE: _page("Spark checkpoints", "spark.md"),
        Code.INPUT_MISSING: _page("Kafka offsets", "spark.md", "kafka-offsets"),
        Code.INPUT_RECREATED: _page("Recreated topics and tables", "spark.md", "recreated-topics-and-tables"),
    },
})  # fmt: skip
"""System -> finding -> page, where that is another one."""


def runbook_for(code: Code, system: str) -> Runbook:
    """Return the page for a finding. system: the name of its format, as in `--format`."""
    return BY_SYSTEM.get(system, {}).get(code) or RUNBOOKS[code]
