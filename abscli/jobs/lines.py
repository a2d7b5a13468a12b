"""Where in the user's own file something was asked for, and a mistake that stands there."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from formats.user_file.mistakes import BadFile, Mistake

_OWN = f"{__name__.rpartition('.')[0]}."


class Line(NamedTuple):
    """A line of a file, from 1; file: as messages name it."""

    file: str
    line: int

    @property
    def column(self) -> int:
        """Always 1: Python says the line of a call alone."""
        return 1


def shown_path(file: str) -> str:
    """A file's path as messages name it: from here, where it lies below."""
    if file.startswith("<"):
        return file
    path = os.path.relpath(file)
    return os.path.abspath(file) if path.startswith(os.pardir) else path


def caller() -> tuple[Line, str | None]:
    """The line that called into this package, and the file of its module; None in a notebook or at a prompt."""
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__", "")).startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    file = frame.f_globals.get("__file__")
    line = Line(shown_path(frame.f_code.co_filename), frame.f_lineno)
    return line, os.path.abspath(file) if isinstance(file, str) else None


def refused(line: Line, message: str, hint: str | None = None) -> BadFile:
    """The error for one thing that is wrong at a line."""
    return BadFile((Mistake(line.file, line.line, line.column, message, hint),))
