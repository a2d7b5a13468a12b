"""Two epochs of any systems, compared in all that they have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abscli.diff.epochs import Besides, diff_logs, diff_positions, diff_topology
from abscli.stores.registry import system_of
from abscli.text.diff import DiffPage, End
from formats.errors import UnknownTask
from formats.view import CheckpointStore

if TYPE_CHECKING:
    from abscli.diff.state import Side, Sink


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is to be compared.

    ends: which two epochs.
    stores: they are of.
    operator: the id of the one whose state is compared; None for all.
    """

    ends: tuple[End, End]
    stores: tuple[CheckpointStore, CheckpointStore]
    operator: str | None = None

    @property
    def sides(self) -> tuple[Side, Side]:
        """The two, for what reads their state."""
        from abscli.diff.state import Side

        (left, right), (before, after) = self.stores, self.ends
        return Side(left, before.epoch), Side(right, after.epoch)

    def page(self, sink: Sink | None = None, progress: Callable[[int], None] = lambda keys: None) -> DiffPage:
        """What differs. sink: told the single changes; progress: how many keys have been compared.

        Raises UnknownTask, Damaged.
        """
        from abscli.diff.state import diff_operators

        left, right = self.sides
        systems = [system_of(side.store) for side in self.sides]
        system = systems[0] if systems[0] is systems[1] else None
        details = (left.store.detail(left.epoch), right.store.detail(right.epoch))
        graphs = (left.store.topology(left.epoch), right.store.topology(right.epoch))
        ids = ([op.id for op in details[0].operators], [op.id for op in details[1].operators])
        if self.operator is not None and self.operator not in (*ids[0], *ids[1]):
            operators_of_both = ", ".join(dict.fromkeys([*ids[0], *ids[1]]))
            message = f"neither epoch has an operator {self.operator!r}"
            raise UnknownTask(message, hint=f"there are {operators_of_both}")
        operators = diff_operators(
            left,
            right,
            ids,
            only=self.operator,
            sink=sink,
            progress=progress,
            quicker=system.compare_rows if system else None,
        )
        besides = system.compare(left, right) if system else Besides()
        digests = (left.store.log_digests(left.epoch), right.store.log_digests(right.epoch))
        return DiffPage(
            *self.ends,
            operators,
            list(diff_positions(*details)),
            list(diff_logs(*details, digests)),
            [*diff_topology(*graphs, details), *besides.changes],
            besides.files,
            system.words.graph if system else "Job graph",
        )


def comparison(
    before: str, left: CheckpointStore, epoch: int, after: str, right: CheckpointStore, to: int,
    *, operator: str | None = None,
) -> Comparison:  # fmt: skip
    """Of epoch `epoch` of the store `left`, written `before`, with epoch `to` of `right`, written `after`. operator: by
    any name that one of the stores knows it by."""
    ends = (End(before, left.format, left.job, epoch), End(after, right.format, right.job, to))
    if operator is not None:
        for store, number in ((left, epoch), (right, to)):
            with contextlib.suppress(UnknownTask):
                operator = store.operator_id(number, operator)
    return Comparison(ends, (left, right), operator)
