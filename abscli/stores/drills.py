"""What a drill says: whether an epoch can be restored, what was proved, and what was not."""

from __future__ import annotations

from typing import Any

import msgspec

from abscli.text.columns import counted, wrapped
from formats.version import FORMAT_VERSION


class Compared(msgspec.Struct, frozen=True):
    """An operator's state, as the epoch has it and as it is after the restore.

    same: None where that could not, or was not to be, compared.
    reason: why not, or what differs.
    """

    operator: str
    same: bool | None
    reason: str | None = None


class Drilled(msgspec.Struct, frozen=True):
    """What a drill has found out.

    epoch: that was restored.
    proved: whether all that was compared is the same.
    tasks, rows: of the epoch; None where that is not known.
    replayed: records that were on their way in the epoch, and were read again; None where nothing was run.
    seconds: by phase, in their order.
    compared: operators, or states.
    problems: what is wrong, in words.
    passed_over: newer epochs that cannot be restored, and why.
    not_proved: what a drill of this system says nothing of.
    """

    store: str
    system: str
    epoch: int
    proved: bool
    tasks: int | None
    rows: int | None
    replayed: int | None
    seconds: dict[str, float]
    compared: tuple[Compared, ...]
    problems: tuple[str, ...]
    passed_over: dict[int, str]
    not_proved: tuple[str, ...]

    @property
    def elapsed(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    @property
    def good(self) -> bool:
        """Whether it was proved, and of the newest epoch."""
        return self.proved and not self.passed_over


def text(drilled: Drilled, word: str, *, width: int) -> str:
    """The page. word: what an epoch is called."""
    verdict = f"restorable, proved in {drilled.elapsed:.1f} s" if drilled.proved else "NOT restorable as it is"
    lines = wrapped(f"{drilled.store}: {word} {drilled.epoch} is {verdict}", width)
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in drilled.seconds.items())
    lines += wrapped(phases, width, "  ")
    same = sum(one.same is True for one in drilled.compared)
    counts = [] if drilled.tasks is None else [counted(drilled.tasks, "task")]
    counts += [] if drilled.rows is None else [f"{counted(drilled.rows, 'row')} of state"]
    counts += [f"{counted(drilled.replayed, 'record')} replayed"] if drilled.replayed else []
    counts.append(f"{counted(same, 'state')} the same")
    lines += wrapped(", ".join(counts), width, "  ")
    for one in drilled.compared:
        if not one.same:
            verb = "differs" if one.same is False else "not compared"
            lines += wrapped(f"{one.operator}: {verb}: {one.reason}", width, "  ")
    for problem in drilled.problems:
        lines += wrapped(problem, width, "  ")
    for epoch, reason in sorted(drilled.passed_over.items(), reverse=True):
        lines += wrapped(f"{word} {epoch} cannot be restored: {reason}", width, "  ")
    if drilled.not_proved:
        lines += ["", *wrapped("; ".join(drilled.not_proved), width, "  ", "Not proved: ")]
    return "\n".join(lines) + "\n"


def to_json(drilled: Drilled) -> dict[str, Any]:
    """`abs.drill`."""
    result: dict[str, Any] = msgspec.to_builtins(drilled)
    result["passed_over"] = [{"epoch": n, "reason": why} for n, why in sorted(drilled.passed_over.items())]
    return {"schema": "abs.drill", "version": FORMAT_VERSION, **result, "elapsed": round(drilled.elapsed, 3)}
