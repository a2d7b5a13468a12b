"""What is wrong with a file that people write: every mistake with its line and column, gathered and raised together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from formats.errors import FormatError
from formats.redaction import redact
from formats.user_file.synonyms import meant

_COMPARISONS = 100_000
"""Near matches stop being looked for after so many comparisons: advice must not cost more than the reading."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong.

    line, column: in characters, from 1;
    hint: what to do, where that is known.
    """

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class BadFile(FormatError):
    """A file that does not hold, with all its mistakes in the order of the file."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        text = "\n".join(map(str, mistakes))
        super().__init__(text, path=mistakes[0].file, hint=mistakes[0].hint if len(mistakes) == 1 else None)
        self.mistakes = mistakes

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[BadFile], tuple[tuple[Mistake, ...]]]:
        return BadFile, (self.mistakes,)


class Place(Protocol):
    """Anything with a position, from 1."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


_NOTES = {"url_env": " It is the name of an environment variable that has the URL"}


class Mistakes:
    """Gathers what is wrong with one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._gathered: set[Mistake] = set()
        self._comparisons = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found so far."""
        return not self._gathered

    def add(self, place: Place, message: str, hint: str | None = None) -> None:
        """One more mistake; the same one at the same place (through a YAML alias) counts once."""
        hint = None if hint is None else redact(hint)
        self._gathered.add(Mistake(self.file, place.line, place.column, redact(message), hint))

    def fatal(self, place: Place, message: str, hint: str | None = None) -> NoReturn:
        """A mistake behind which nothing can be read: raise it with all that was found before."""
        self.add(place, message, hint)
        raise self._errors()

    def near(self, word: str, candidates: Iterable[str]) -> str | None:
        """A hint that names the candidate that was probably meant."""
        words = list(candidates)
        if (other := meant(word, words)) is not None:
            return f"did you mean {other}?{_NOTES.get(other, '')}"
        self._comparisons += len(words)
        if self._comparisons > _COMPARISONS or len(word) > 100:
            return None
        nearest = difflib.get_close_matches(word, [candidate for candidate in words if len(candidate) <= 100], n=1)
        return f"did you mean {nearest[0]}?" if nearest else None

    def raise_any(self) -> None:
        """BadFile if anything was found."""
        if self._gathered:
            raise self._errors()

    def _errors(self) -> BadFile:
        return BadFile(tuple(sorted(self._gathered, key=lambda e: (e.line, e.column, e.message))))
