"""The command line as data: what man pages and completion scripts are made from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    names: short before long.
    metavar: None for a flag.
    completes: what a shell offers for the value: `choice`, `file`, `directory`, what `offers` knows, or nothing.
    needs_chosen_file: an abs.toml that is found in the current directory cannot set it.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    repeatable: bool = False
    required: bool = False
    completes: str = ""
    environment: tuple[str, ...] = ()
    needs_chosen_file: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """One positional argument; fields as of `Option`."""

    metavar: str
    help: str
    required: bool
    choices: tuple[str, ...] = ()
    completes: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One command; `abs` itself has the name ``.

    summary: one sentence.
    description: paragraphs.
    see_also: the names of related commands.
    guide: the guide page, relative to the repository.
    """

    name: str
    summary: str
    description: tuple[str, ...]
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    exit_status: tuple[tuple[int, str], ...] = ()
    see_also: tuple[str, ...] = ()
    guide: str = ""

    @property
    def title(self) -> str:
        """`abs-run`, as man pages are called."""
        return f"abs-{self.name}" if self.name else "abs"
