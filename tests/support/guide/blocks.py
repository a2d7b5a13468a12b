"""The blocks of a page of the guide: files that a reader writes, and what a terminal shows.

A block with a title is a file of that name. A block of `console` has commands behind `$ `, each with what it prints;
`[exit 3]` is how a command ended that did not end with 0. A line `...` stands for any lines.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PAGES = Path(__file__).parents[3] / "man" / "guide" / "pages"
HOME = "/home/you"
"""Where a reader's folder lies, on pages."""
SECONDS = 600
ANY = "..."

_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?$')
_VARIES = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+")
_RUN = re.compile(r"(?:#[.,:TZ-]*)+")
_UNIT = re.compile(r"# (?:ms|s|B|KiB|MiB)\b")
_PLURAL = re.compile(r"(?<=# )(epoch|record|row|task|file|channel|split)s\b")


@dataclass(slots=True)
class Command:
    """What is typed, at which line of the page, and what the page says that it prints."""

    line: int
    text: str
    printed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class File:
    """What a reader writes into a file."""

    name: str
    text: str


def blocks(page: Path) -> Iterator[File | Command]:
    """What a reader of the page does, in order."""
    fence, title, text, start = "", None, list[str](), 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        opened = _FENCE.match(line)
        if not fence and opened:
            fence, title, text, start = opened[1], opened[2], [], number
        elif line == "```":
            if title is not None:
                yield File(title, "\n".join(text) + "\n")
            elif fence == "console":
                yield from _commands(text, start + 1)
            fence, title = "", None
        elif fence:
            text.append(line)


def _commands(lines: list[str], start: int) -> Iterator[Command]:
    command: Command | None = None
    continues = False
    for number, line in enumerate(lines, start):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(number, line[2:])
        elif command is None:
            raise ValueError(f"line {number}: a console begins with a command, not {line!r}")
        elif continues:
            command.text += "\n" + line
        else:
            command.printed.append(line)
        continues = command.text.endswith("\\") and not command.printed
    if command is not None:
        yield command


def run(command: Command, folder: Path) -> list[str]:
    """What a command prints there, its exit code in a last line of its own if it is not 0."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.text], cwd=folder, env=environment | {"COLUMNS": "80", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
    )  # fmt: skip
    lines = done.stdout.replace(str(folder.resolve()), HOME).splitlines()
    return [*lines, f"[exit {done.returncode}]"] if done.returncode else lines


def agree(shown: list[str], printed: list[str]) -> bool:
    """Whether a page shows what was printed, whatever times, sizes, counts and names of attempts, and wherever lines
    are broken."""
    lines: list[list[str]] = [[]]
    for line in shown:
        if line == ANY:
            lines.append([])
        else:
            lines[-1].append(line)
    first, *others = map(_plain, lines)
    words = _plain(printed)
    if not others:
        return words == first
    last = others.pop()
    end = len(words) - len(last)
    at = len(first)
    if words[:at] != first or end < at or words[end:] != last:
        return False
    for part in others:
        place = next((i for i in range(at, end - len(part) + 1) if words[i : i + len(part)] == part), None)
        if place is None:
            return False
        at = place + len(part)
    return True


def _plain(lines: list[str]) -> list[str]:
    """Return the words of lines, without what differs from run to run; an exit code is a word."""
    words = []
    for is_exit, group in itertools.groupby(lines, key=lambda line: line.startswith("[exit ")):
        if is_exit:
            words += group
        else:
            text = _RUN.sub("#", _VARIES.sub("#", " ".join(" ".join(group).split())))
            words += _PLURAL.sub(r"\1", _UNIT.sub("#", text)).split()
    return words
