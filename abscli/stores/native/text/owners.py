"""What `abs diff STORE JOB` shows: what becomes of each operator of an epoch, and what stands against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from abscli.planner.succession import Becomes, Carried, Fate
from abscli.stores.native.owners import Succeeded
from abscli.text.columns import columns, number, wrapped
from formats.version import FORMAT_VERSION

WORDS = {
    Fate.KEPT: "goes on",
    Fate.MOVED: "moves",
    Fate.REMOVED: "is removed, with what it had",
    Fate.DROPPED: "is gone, and had nothing",
    Fate.ADDED: "is new, and begins without state",
    Fate.ORPHANED: "has no owner",
    Fate.INCOMPATIBLE: "cannot be used",
    Fate.CONFLICT: "has an owner already",
}


@dataclass(frozen=True, slots=True)
class SuccessionPage:
    """What becomes of an epoch, as `abscli.stores.base.Owners`.

    file: the job's.
    """

    change: Succeeded
    store: str
    job: str
    epoch: int
    file: str

    @property
    def fits(self) -> bool:
        return self.change.fits

    def to_json(self) -> dict[str, Any]:
        """`abs.succession`."""
        change = self.change
        return {
            "schema": "abs.succession",
            "version": FORMAT_VERSION,
            "store": self.store,
            "format": "abs",
            "job": self.job,
            "epoch": self.epoch,
            "file": self.file,
            "compatible": change.fits,
            "generation": change.generation,
            "new_generation": change.begins,
            "operators": [{**row._asdict(), "rows": change.rows.get(row.operator)} for row in change.operators],
            "edges": [
                {"from": edge.before.source, "to": edge.before.target, "logged": edge.logged,
                 "now": {"from": edge.now.source, "to": edge.now.target} if edge.now else None, "reason": edge.why}
                for edge in change.edges
            ],
            "moved": [msgspec.to_builtins(move) for move in change.lines.moved],
            "removed": list(change.lines.removed),
            "hint": change.hint,
            "code": list(change.code),
        }  # fmt: skip

    def text(self, width: int) -> str:
        """The verdict first; then who becomes what, and what to do."""
        change = self.change
        operators = [self._operator(row) for row in change.operators]
        sections = [
            [*wrapped(f"Epoch {self.epoch} of {self.store} in the job of {self.file}", width), self._verdict()],
            columns(("OPERATOR", "STATE ROWS", "BECOMES"), operators, "lrl", width),
            columns(("RECORDS ON", "LOGGED", "BECOME"), [_edge(edge) for edge in change.edges], "lrl", width)
            if change.edges else [],
            [line for why in self._reasons() for line in wrapped(why, width, "    ", "  ")],
            wrapped(", ".join(change.code), width, "  ", "Code that has changed since: ") if change.code else [],
            wrapped(change.hint, width, "      ", "hint: ") if change.hint else [],
        ]  # fmt: skip
        return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"

    def _verdict(self) -> str:
        if not self.fits:
            return "It cannot go on so: a run would be refused."
        if self.change.begins:
            return f"It goes on; generation {self.change.generation} would begin."
        return "It goes on: tasks and channels are the same."

    def _operator(self, row: Becomes) -> tuple[str, str, str]:
        words = f"{WORDS[row.outcome]} to {row.successor}" if row.outcome is Fate.MOVED else WORDS[row.outcome]
        rows = "-" if row.outcome is Fate.ADDED else number(self.change.rows.get(row.operator))
        return row.operator, rows, words

    def _reasons(self) -> list[str]:
        reasons = [row.reason for row in self.change.operators] + [edge.why for edge in self.change.edges]
        return [why for why in reasons if why is not None]


def _edge(edge: Carried) -> tuple[str, str, str]:
    heads = f"heads of {edge.now.name}" if edge.now and not edge.why else "lost"
    return edge.before.name, number(edge.logged), heads
