"""What `abs copy` shows of our own stores, and what the copy may do."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from abscli.stores.native.copying import Became, Copied
from abscli.text.columns import size, some, wrapped
from formats.version import FORMAT_VERSION

NAMED = 12
"""Epochs that are named; json has them all."""


class CopyPage(msgspec.Struct, frozen=True):
    """As `abscli.stores.base.StoreCopy`."""

    copied: Copied

    @property
    def whole(self) -> bool:
        return not self.copied.damaged

    def text(self, width: int) -> str:
        """A line for what was copied, one for what was there, one for each epoch that could not be."""
        copied = self.copied
        by_kind = {kind: [str(row.epoch) for row in copied.epochs if row.outcome is kind] for kind in Became}
        came, there, gone = by_kind[Became.COPIED], by_kind[Became.PRESENT], by_kind[Became.REMOVED]
        amount = f"{size(copied.bytes)} in {copied.files:,} file{'s'[: copied.files != 1]}"
        lines = wrapped(f"{copied.job}: {_epochs(came)} copied to {copied.to}, {amount}", width)
        if there:
            lines += wrapped(f"{_epochs(there)} there already", width, "  ")
        if copied.tags:
            tags = ", ".join(f"{name} (epoch {epoch})" for name, epoch in copied.tags.items())
            lines += wrapped(tags, width, "  ", "tags: ")
        if gone:
            lines += wrapped(f"{_epochs(gone)} removed by the job meanwhile", width, "  ")
        for row in copied.damaged:
            lines += wrapped(f"epoch {row.epoch} is damaged, and not copied: {row.reason}", width, "  ")
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """`abs.copy`."""
        return {"schema": "abs.copy", "version": FORMAT_VERSION, **msgspec.to_builtins(self.copied)}

    @property
    def notes(self) -> tuple[str, ...]:
        """What to do next, and what the copy may do."""
        if not self.copied.new:
            return ()
        where = shlex.quote(self.copied.to)
        return (
            f"Next: abs validate {where}",
            f"a job may go on from the copy, with attempts of its own (abs run JOB --store {where} --resume); its "
            "sinks belong to one line of attempts: see 'abs copy --help'",
        )


def _epochs(numbers: list[str]) -> str:
    if not numbers:
        return "nothing"
    return f"epoch{'s'[: len(numbers) != 1]} {some(numbers, NAMED)}"
