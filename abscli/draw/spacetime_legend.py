"""What the signs of a space-time diagram mean: each sign that is used, drawn, with its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from abscli.draw import svg
from abscli.text.cells import cells

SIGN, APART, LINE = 34.0, 22.0, 20.0  # the room of a sign, between two entries, from one line of them to the next


class Entry(NamedTuple):
    """sign: its parts in SVG, around the point 13, 0."""

    sign: str
    words: str


def _line(look: str) -> str:
    return f'<path class="{look}" d="M0 0L26 0"/>'


def _arrow(look: str, head: str, size: float) -> str:
    return f'<path class="{look}" d="M0 0L24 0"/><path class="{head}" d="{svg.arrow_head((26, 0), (0, 0), size)}"/>'


def _in_colour(sign: str) -> str:
    return f'<g class="epoch e0">{sign}</g>'


BARRIER = Entry(_in_colour(_arrow("ink", "full", 9)), "barrier")
MARKER = Entry(BARRIER.sign, "marker")
RECORD = Entry(_arrow("thin", "tip", 6), "record")
MESSAGE = Entry(_arrow("thin", "tip", 6), "message")
COPY = Entry(_in_colour('<rect class="full" x="6" y="-7" width="14" height="14" rx="1.5"/>'), "a task copies its state")
CUT = Entry(_in_colour('<path class="band" d="M13 -9L13 9"/><path class="cut" d="M13 -9L13 9"/>'), "the cut")
KEPT = Entry(_in_colour('<rect class="kept" x="0" y="-8" width="26" height="16"/>'), "kept by that epoch's snapshot")
UNDONE = Entry('<rect class="undone" x="0" y="-8" width="26" height="16"/>', "undone by a failure")
EPOCH = Entry(
    _in_colour('<circle class="ring" cx="5" cy="0" r="6"/><circle class="full" cx="21" cy="0" r="6"/>'),
    "an epoch begins, is complete",
)
WAITS = Entry(_line("bar waits"), "an input waits for the others")
LOST = Entry('<path class="bold wrong" d="M7 -6L19 6M7 6L19 -6"/>', "lost")
AGAIN = Entry(_line("bar again"), "takes its steps again")
LOGGED = Entry(_in_colour(_arrow("logged", "full", 7)), "passes the cut: logged")
AGAINST = Entry(_arrow("against", "against-tip", 7), "passes the cut backwards")
KNOWN = Entry(_arrow("thin dotted", "tip", 6), "has come before, dropped")
MISSED = Entry('<path class="thin" d="M0 0L20 0"/><circle class="box" cx="22" cy="0" r="3"/>', "not received")
PRESSED = Entry('<rect class="pressed" x="6" y="-8" width="14" height="16"/>', "nothing but records, pressed together")


def legend(entries: Sequence[Entry], left: float, top: float, right: float) -> tuple[list[str], float]:
    """All entries, as many in a line as there is room for; and the y of the last line."""
    parts, x, y = [], left, top
    for sign, words in entries:
        wide = SIGN + cells(words) * 11 * svg.SANS
        if x > left and x + wide > right:
            x, y = left, y + LINE
        parts.append(f'<g transform="translate({svg.number(x)} {svg.number(y)})">{sign}</g>')
        parts.append(svg.text(x + SIGN, y + 4, words, "faint"))
        x += wide + APART
    return parts, y
