"""Why none of several epochs will do: in one sentence, and as the answer in place of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from formats.errors import NoRecovery

NAMED = 5
"""Reasons, and epochs of one reason, that a sentence names."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """There is no epoch to go back to, or not to the one that was asked for.

    message: why.
    path: of the store, or of the file that it is for.
    hint: what to do next.
    """

    message: str
    path: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: NoRecovery) -> Self:
        """What was found out deep within a search."""
        return cls(error.message, error.path, error.hint)

    def error(self) -> NoRecovery:
        """The same for whoever cannot go on without."""
        return NoRecovery(self.message, path=self.path, hint=self.hint)


def reasons(noun: str, skipped: Sequence[tuple[int, str]]) -> str:
    """`epochs 5, 4: ...; epoch 3: ...`, a reason once: the newest epoch may be one that was still being taken, and what
    is wrong with the older ones is what matters then. Empty if there are none."""
    alike: dict[str, list[int]] = {}
    for number, reason in skipped:
        alike.setdefault(reason, []).append(number)
    sentences = []
    for reason, numbers in list(alike.items())[:NAMED]:
        more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
        epochs = ", ".join(map(str, numbers[:NAMED]))
        sentences.append(f"{noun}{'s'[: len(numbers) != 1]} {epochs}{more}: {reason}")
    left = sum(map(len, list(alike.values())[NAMED:]))
    return "; ".join(sentences) + (f"; nor will {left} older ones do" if left else "")
