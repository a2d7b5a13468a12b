"""What `abs diff --uids` shows: state without an owner, operators without state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from abscli.stores.flink.owners import Owners
from abscli.text.columns import UNKNOWN, columns, size, wrapped
from formats.version import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class OwnersPage:
    """Who would own the state of a checkpoint, as `abscli.stores.base.Owners`.

    uids: the file that names the job's operators.
    """

    owners: Owners
    store: str
    job: str | None
    epoch: int
    uids: str

    @property
    def fits(self) -> bool:
        return self.owners.fits

    def text(self, width: int) -> str:
        return text(self.owners, store=self.store, epoch=self.epoch, uids=self.uids, width=width)

    def to_json(self) -> dict[str, Any]:
        return to_json(self.owners, store=self.store, job=self.job, epoch=self.epoch, uids=self.uids)


def to_json(owners: Owners, *, store: str, job: str | None, epoch: int, uids: str) -> dict[str, Any]:
    """`abs.owners`."""
    return {
        "schema": "abs.owners",
        "version": FORMAT_VERSION,
        "store": store,
        "format": "flink",
        "job": job,
        "epoch": epoch,
        "uids": uids,
        "compatible": owners.fits,
        **msgspec.to_builtins(owners),
    }


def text(owners: Owners, *, store: str, epoch: int, uids: str, width: int = 80) -> str:
    """The verdict first; then who gets what."""
    verdict = "All state has an owner, and every operator is known." if owners.fits else "They do not fit."
    sections = [[*wrapped(f"Checkpoint {epoch} of {store}, operators of {uids}", width, "  ", ""), verdict]]
    if owners.orphans:
        consequence = "Flink refuses to start, or with --allowNonRestoredState drops it"
        lines = wrapped(consequence, width, "  ", "State without an owner: ")
        for orphan in owners.orphans:
            reason = f"{size(orphan.bytes)}: {orphan.reason}"
            lines += wrapped(reason, width, "      ", f"  {orphan.operator} ({orphan.name or UNKNOWN}), ")
        sections.append(lines)
    if owners.new:
        lines = wrapped("Operators that the snapshot does not know: they begin without state", width)
        sections.append([*lines, *(line for name in owners.new for line in wrapped(name, width, "    ", "  "))])
    rows = [(one.operator, one.name or UNKNOWN, size(one.bytes), one.owner or "", one.by or "") for one in owners.owned]
    if rows:
        lines = columns(("STATE OF", "NAME", "STATE", "OWNER", "BY"), rows, "llrll", width)
        if any(one.by == "name" for one in owners.owned):
            lines += wrapped("by name: the plan has no id for it; Flink goes by ids", width, "  ", "  ")
        sections.append(lines)
    if owners.empty:
        sections.append(wrapped(", ".join(owners.empty), width, "  ", "Known, without state: "))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"
