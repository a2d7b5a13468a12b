"""What a check finds, and what differs between two epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import msgspec.structs

from abscli.api.shared import WIDTH, count

if TYPE_CHECKING:
    from abscli.report.findings import EpochReport, Finding, StoreReport
    from abscli.report.standing import Standing
    from abscli.stores.base import Checked, OwnReader, System
    from abscli.text.diff import DiffPage
    from formats.storage import Storage


class Report(msgspec.Struct, frozen=True):
    """What a check says.

    path: of the store that was checked, as it was given.
    system: whose checkpoints they are.
    storage: where the files lie.
    checked: what its system says.
    quick: whether only presence and sizes were looked at.
    job: the job file that named the targets of sinks; None if none did.
    """

    path: str
    system: System
    storage: Storage
    checked: Checked
    quick: bool
    job: str | None = None

    @property
    def report(self) -> StoreReport:
        """Of the store: every epoch with its verdict and findings, and those that can be restored."""
        return self.checked.report

    @property
    def epochs(self) -> tuple[EpochReport, ...]:
        """Verdict and findings of each."""
        return self.report.epochs

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, those of no epoch first."""
        return self.report.all_findings

    @property
    def restorable(self) -> tuple[int, ...]:
        """Epochs that can be restored, ascending."""
        return self.report.restorable

    def unsatisfied(
        self, *, strict: bool = False, max_age: float | None = None, min_epochs: int | None = None
    ) -> list[str]:
        """What does not hold, in words; empty if all is well. The command exits with 3 for it.

        strict: any finding counts, and so does the target of a sink that was named and could not be asked.
        max_age: seconds that the newest restorable epoch may be old.
        min_epochs: that must be restorable.
        """
        from abscli.report.demands import unsatisfied

        return unsatisfied(self.report, epoch=self.checked.epoch, strict=strict, max_age=max_age, min_epochs=min_epochs)

    def confirmed(self, reader: OwnReader) -> Report:
        """The same with what the system's own reader finds; see `Store.own_reader`."""
        return self.replaced(reader.confirmed(self.storage, self.report))

    def replaced(self, report: StoreReport) -> Report:
        """The same with another report of the store."""
        return msgspec.structs.replace(self, checked=replace(self.checked, report=report))

    @property
    def standing(self) -> Standing:
        """The verdict on the store, or on the epoch that was checked."""
        from abscli.report.standing import standing

        return standing(self.report, self.checked.epoch, unit=self.system.words.epoch, quick=self.quick)

    def text(
        self, *, unsatisfied: Sequence[str], width: int = WIDTH, ascii: bool = False, verbose: bool = False
    ) -> str:
        """Return the page of `abs validate`.

        unsatisfied: demands that are not met. verbose: list every finding.
        """
        from abscli.text import validate as render

        return render.text(
            self.report, store=self.path, job=self.checked.job, unsatisfied=unsatisfied,
            advice=self.system.advice(self.job), width=width, ascii=ascii, verbose=verbose,
            verdict=self.standing, why=self.checked.why,
            notes=self.checked.notes, leftovers=self.system.leftovers(self.storage, self.path, self.report),
        )  # fmt: skip

    def to_json(self, unsatisfied: Sequence[str] = ()) -> dict[str, Any]:
        """`abs.validate`, for programs. unsatisfied: demands that do not hold."""
        from abscli.text import validate as render

        return render.to_json(
            self.report, store=self.path, format=self.system.name, job=self.checked.job, quick=self.quick,
            unsatisfied=unsatisfied, why=self.checked.why, notes=self.checked.notes,
        )  # fmt: skip

    def __str__(self) -> str:
        return self.text(unsatisfied=self.unsatisfied()).rstrip()

    def __repr__(self) -> str:
        restorable = ", ".join(map(str, self.restorable)) or "none"
        return (
            f"Report({self.path!r}, {count(len(self.epochs), 'epoch')}, "
            f"{count(len(self.findings), 'finding')}, restorable {restorable})"
        )


class Diff(msgspec.Struct, frozen=True):
    """What differs between two epochs.

    page: operators, positions, logs and job graph, and of which two.
    """

    page: DiffPage

    @property
    def identical(self) -> bool | None:
        """Whether nothing differs; None if something could not be compared."""
        return self.page.identical

    def to_json(self) -> dict[str, Any]:
        """`abs.diff`, for programs."""
        from abscli.text import diff as render

        return render.to_json(self.page)

    def __str__(self) -> str:
        from abscli.text import diff as render

        return render.text(self.page, width=WIDTH).rstrip()

    def __repr__(self) -> str:
        ends = ", ".join(f"epoch {end.epoch} of {end.store!r}" for end in (self.page.left, self.page.right))
        return f"Diff({ends}, { {True: 'identical', False: 'differ', None: 'not all compared'}[self.identical]})"
