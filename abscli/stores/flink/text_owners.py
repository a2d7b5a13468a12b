"""What `abs diff --uids` shows: state without an owner, operators without state."""

from __future__ import annotations

from typing import Any

import msgspec

from abscli.stores.flink.owners import Owners
from abscli.text.columns import UNKNOWN, columns, size, wrapped

VERSION = "1.0"


def to_json(found: Owners, *, store: str, job: str | None, epoch: int, uids: str) -> dict[str, Any]:
    """`abs.owners`. uids: the file that the job's operators were read from."""
    return {
        "schema": "abs.owners",
        "version": VERSION,
        "store": store,
        "format": "flink",
        "job": job,
        "epoch": epoch,
        "uids": uids,
        "fits": found.fits,
        **msgspec.to_builtins(found),
    }


def text(found: Owners, *, store: str, epoch: int, uids: str, width: int = 80) -> str:
    """The verdict first; then who gets what."""
    verdict = "All state has an owner, and every operator is known." if found.fits else "They do not fit."
    sections = [[*wrapped(f"Checkpoint {epoch} of {store}, operators of {uids}", width, "  ", ""), verdict]]
    if found.orphans:
        said = "Flink refuses to start, or with --allowNonRestoredState drops it"
        lines = wrapped(said, width, "  ", "State without an owner: ")
        for orphan in found.orphans:
            said = f"{size(orphan.bytes)}: {orphan.reason}"
            lines += wrapped(said, width, "      ", f"  {orphan.operator} ({orphan.name or UNKNOWN}), ")
        sections.append(lines)
    if found.new:
        lines = wrapped("Operators that the snapshot does not know: they begin without state", width)
        sections.append([*lines, *(line for name in found.new for line in wrapped(name, width, "    ", "  "))])
    rows = [(one.operator, one.name or UNKNOWN, size(one.bytes), one.owner or "", one.by or "") for one in found.owned]
    if rows:
        lines = columns(("STATE OF", "NAME", "STATE", "OWNER", "BY"), rows, "llrll", width)
        if any(one.by == "name" for one in found.owned):
            lines += wrapped("by name: the plan has no id for it; Flink goes by ids", width, "  ", "  ")
        sections.append(lines)
    if found.empty:
        sections.append(wrapped(", ".join(found.empty), width, "  ", "Known, without state: "))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"
