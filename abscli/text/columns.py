"""Plain text for people: columns, sizes, durations and marks that fit a width and cannot harm a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from formats.view import Status

_MARKS = {
    Status.COMPLETE: ("✓", "+"),
    Status.INCOMPLETE: ("○", "-"),
    Status.IN_PROGRESS: ("▸", ">"),
    Status.ABORTED: ("⊘", "x"),
    Status.DAMAGED: ("✗", "!"),
}

UNKNOWN = "?"
"""What stands for a fact that the format does not have."""


def clean(text: str) -> str:
    """Text that cannot move the cursor or end the line: file names may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def marked(status: Status, ascii: bool) -> str:
    """A status as mark and word: nothing is said by colour."""
    return f"{_MARKS[status][ascii]} {status}"


_COLOURS = {
    Status.COMPLETE: "32",
    Status.INCOMPLETE: "33",
    Status.IN_PROGRESS: "36",
    Status.ABORTED: "33",
    Status.DAMAGED: "1;31",
}
_COLOUR_OF = {f"{mark} {status}": _COLOURS[status] for status, marks in _MARKS.items() for mark in marks}
_MARKED = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, _COLOUR_OF))})(?![\w-])")


def coloured(text: str) -> str:
    """Text with its marked statuses in colour, for a terminal that wants it: it says no more, it is seen sooner."""
    return _MARKED.sub(lambda match: f"\x1b[{_COLOUR_OF[match[0]]}m{match[0]}\x1b[0m", text)


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], align: str, width: int, spare: Sequence[str] = ()
) -> list[str]:
    """Lines of a table. align: `l` or `r` a column; spare: columns that are left out, in this order, until the rest
    fits (`not_shown` says which). The gaps are narrower where the width is short; cells are never cut, since they are
    what people copy, so that a line may still be longer than the width."""
    cells = [list(header), *([clean(cell) for cell in row] for row in rows)]
    widths, shown = _fitting(cells, width, spare)
    gap = "  " if sum(widths[i] for i in shown) + 2 * (len(shown) - 1) <= width else " "
    lines = []
    for row in cells:
        padded = (row[i].rjust(widths[i]) if align[i] == "r" else row[i].ljust(widths[i]) for i in shown)
        lines.append(gap.join(padded).rstrip())
    return lines


def not_shown(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]
) -> list[str]:
    """A line below a table that says which columns `columns` has left out of it, if any."""
    _, shown = _fitting([list(header), *([clean(cell) for cell in row] for row in rows)], width, spare)
    names = [name for i, name in enumerate(header) if i not in shown]
    return wrapped(", ".join(names), width, "  ", f"not shown in {width} columns: ") if names else []


def _fitting(cells: Sequence[Sequence[str]], width: int, spare: Sequence[str]) -> tuple[list[int], list[int]]:
    """The width of every column, and the columns that are shown. cells: the header first."""
    header = cells[0]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    shown = list(range(len(header)))
    for name in spare:
        if sum(widths[i] for i in shown) + len(shown) - 1 > width and name in header:
            shown.remove(header.index(name))
    return widths, shown


def wrapped(text: str, width: int, indent: str = "", lead: str | None = None) -> list[str]:
    """Lines of a paragraph; words (paths among them) are never cut. lead: what the first line begins with."""
    return textwrap.wrap(
        clean(text),
        max(width, 20),
        initial_indent=indent if lead is None else lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def bar(done: int, total: int | None, elapsed: float) -> str:
    """Bytes done of all, as a bar where the total is known, with their rate; for a line of progress."""
    rate = f"{size(round(done / elapsed))}/s" if elapsed > 0.5 else ""
    if not total:
        return f"{size(done)}  {rate}".rstrip()
    part = min(done / total, 1.0)
    filled = round(20 * part)
    return f"[{'#' * filled}{'-' * (20 - filled)}] {100 * part:3.0f} %  {size(done)} of {size(total)}  {rate}".rstrip()


def some(items: Sequence[str], limit: int) -> str:
    """A list in words, cut after `limit` items, with the number of those left out."""
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {more} more" if more > 0 else "")


def counted(value: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{value:,} {noun}{'s'[: value != 1]}"


def number(value: int | None) -> str:
    """A count, with thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes in binary units, three digits."""
    if value is None:
        return UNKNOWN
    amount, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 999.5 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{value} B" if units[0] == "B" else f"{amount:.{0 if amount >= 99.95 else 1}f} {units[0]}"


def seconds(value: float | None) -> str:
    """A duration, in the unit in which it is easily read."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value * 1000:.{0 if value >= 0.00995 else 1}f} ms"
    if value < 120:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172800 else f"{value / 86400:.0f} d"


def age(value: float) -> str:
    """Return an age in its two largest units: `45 s`, `12 min`, `3 h 12 min`, `5 d 4 h`."""
    minutes = int(value // 60)
    if minutes < 1:
        return f"{int(value)} s"
    if minutes < 60:
        return f"{minutes} min"
    large, small = (minutes // 60, minutes % 60) if minutes < 1440 else (minutes // 1440, minutes % 1440 // 60)
    names = ("h", "min") if minutes < 1440 else ("d", "h")
    return f"{large:,} {names[0]}" + (f" {small} {names[1]}" if small else "")


def moment(value: str | None) -> str:
    """An RFC 3339 time in UTC, to the second."""
    return UNKNOWN if value is None else value[:19].replace("T", " ")
