"""The tables of a report: cells with what they are sorted by, and no column of which nothing is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from abscli.pages.drawings import STATUS_SIGN
from abscli.text.columns import UNKNOWN, moment, number, seconds, size

Value = str | int | float | bool | None


class Cell(NamedTuple):
    """text: what is shown; key: what it is sorted by, None for the text; kind: of its column."""

    text: str | Markup
    key: str | None
    kind: str


class Row(NamedTuple):
    """id: its anchor; bad: whether something is wrong with it; more: a line below its second cell."""

    id: str | None
    bad: bool
    cells: list[Cell]
    more: str | None = None


class Column(NamedTuple):
    """kind: `name`, `text`, `number`, `size`, `seconds`, `moment`, `times` (of the median), `percent`,
    `per-day` (bytes), `status`, `yes`, `part` (of a whole), or `picture`.

    extra: that nothing has it is nothing unknown; scale: both ends of the axis that the pictures of a column share."""

    title: str
    kind: str
    of: Callable[[Any], Any]
    about: str = ""
    extra: bool = False
    scale: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. id: its anchor; columns: those of which something is known; unknown: titles of the others."""

    id: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    unknown: Sequence[str] = ()
    left_out: int = 0
    """Rows that there are besides."""


def grid(
    id: str, columns: Sequence[Column], items: Iterable[Any], *, count: int | None = None,
    row: Callable[[Any], tuple[str | None, bool, str | None]] = lambda item: (None, False, None),
) -> Grid:  # fmt: skip
    """A table of items. count: how many there are in all; row: anchor, whether it is wrong, and a line below."""
    items = list(items)
    values = [[column.of(item) for item in items] for column in columns]
    shown = [i for i, of in enumerate(values) if not items or any(value not in (None, "") for value in of)]
    rows = []
    for number_, item in enumerate(items):
        anchor, bad, more = row(item)
        rows.append(Row(anchor, bad, [_cell(columns[i], values[i][number_]) for i in shown], more))
    unknown = [column.title for i, column in enumerate(columns) if i not in shown and not column.extra]
    return Grid(id, [columns[i] for i in shown], rows, unknown, max((count or 0) - len(rows), 0))


def _cell(column: Column, value: Any) -> Cell:
    return Cell("", "", column.kind) if value is None and column.extra else cell(column.kind, value)


def cell(kind: str, value: Any) -> Cell:
    """One value. Text is made safe where the page is made."""
    if value is None:
        return Cell(UNKNOWN, "", kind + " unknown")
    if kind == "size":
        return Cell(size(value), str(value), kind)
    if kind == "seconds":
        return Cell(seconds(value), f"{value:.6g}", kind)
    if kind == "times":
        return Cell(f"{value:.1f}×", f"{value:.6g}", kind)
    if kind == "number":
        return Cell(number(value), str(value) if value >= 1000 else None, kind)
    if kind == "moment" and not isinstance(value, Markup):
        return Cell(moment(value), None, kind)
    if kind == "percent":
        return Cell(f"{value:+.1f} %", f"{value:.6g}", kind)
    if kind == "per-day":
        return Cell(f"{'−' if value < 0 else '+'}{size(round(abs(value)))}", f"{value:.6g}", kind)
    if kind == "status":
        return Cell(f"{STATUS_SIGN.get(value, '')} {value}", None, f"s-{value}" if value in STATUS_SIGN else kind)
    if kind == "yes":
        return Cell("yes" if value else "no", None, kind)
    return Cell(value if isinstance(value, Markup) else str(value), None, kind)


def any_kind(values: Iterable[Value]) -> str:
    """The kind of a column of facts whose meaning nobody says."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, bool) for value in present):
        return "yes"
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in present)
    return "number" if present and whole else "text"
