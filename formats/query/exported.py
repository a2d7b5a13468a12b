"""What came of a state that was written to a file."""

from __future__ import annotations

from typing import NamedTuple


class Exported(NamedTuple):
    """A state that was written.

    state: None for what cannot be told apart.
    rows, bytes: of the file; 0 where none was written.
    file: its path; None where there is none.
    problem: why rows, or all of it, are missing.
    """

    operator: str
    state: str | None
    rows: int
    bytes: int
    file: str | None
    problem: str | None = None
