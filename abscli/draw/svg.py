"""What drawings in SVG share: text that is safe, numbers that are short, one look on white and on dark pages.

A drawing has no script, no link and no font of its own, and no ids, so that several can stand in one HTML page. It is
ASCII, whatever the names in it are, and has a background of its own: it can be read on any page.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from abscli.text.columns import clean

BEGINNING = '<svg xmlns="http://www.w3.org/2000/svg" class="abs-drawing"'
"""The first characters of every drawing, by which an earlier one is recognised."""

MONO = 0.62
"""Width of a character of the monospaced font in parts of its size: the widest of those in use."""

SANS = 0.6
"""The same for running text: more than the mean, so that a little room is left."""

_SCOPE = ".abs-drawing"
_RULES = (
    ("text", "font-family:ui-sans-serif,system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:11px"),
    (".mono", "font-family:ui-monospace,'SFMono-Regular',Menlo,Consolas,'DejaVu Sans Mono',monospace"),
    (".name", "font-size:13px;font-weight:600"),
    (".title", "font-size:15px;font-weight:600"),
    (".small", "font-size:10px"),
    (".line", "fill:none;stroke-width:1.3"),
    (".thin", "fill:none;stroke-width:0.8"),
    (".bold", "fill:none;stroke-width:2.4"),
    (".dashed", "stroke-dasharray:6 4"),
    (".dotted", "stroke-dasharray:1.5 4"),
    (".middle", "text-anchor:middle"),
    (".end", "text-anchor:end"),
)
_COLOURS = (
    (".page,.plate", "fill", "#ffffff", "#14181d"),
    (".box", "fill", "#ffffff", "#1d232a"),
    (".looped", "fill", "#e9eef6", "#2b3543"),
    (".box,.line,.bold", "stroke", "#38424d", "#c3ccd6"),
    (".thin", "stroke", "#7a858f", "#8b97a3"),
    (".tip,text", "fill", "#1b222a", "#e8edf2"),
    (".faint", "fill", "#4f5b66", "#aeb9c4"),
    (".back", "stroke", "#a8420c", "#ffa566"),
    (".back-tip", "fill", "#a8420c", "#ffa566"),
    (".wrong", "stroke", "#b3121d", "#ff8088"),
    (".wrong-text", "fill", "#b3121d", "#ff8088"),
)


def drawing(
    width: float,
    height: float,
    title: str,
    about: str,
    parts: Sequence[str],
    rules: Sequence[tuple[str, str]] = (),
    colours: Sequence[tuple[str, str, str, str]] = (),
) -> str:
    """The whole document.

    title, about: its name and what it shows, for those who cannot see it.
    rules, colours: what this drawing has beside the common ones; a colour by day and by night.
    """
    all_colours = (*_COLOURS, *colours)
    light = "".join(f"{_scoped(names)}{{{attribute}:{day}}}" for names, attribute, day, _ in all_colours)
    dark = "".join(f"{_scoped(names)}{{{attribute}:{night}}}" for names, attribute, _, night in all_colours)
    look = "".join(f"{_scoped(names)}{{{rule}}}" for names, rule in (*_RULES, *rules))
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    text = "\n".join(
        (
            f'{BEGINNING} role="img" {size}>',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(about)}</desc>",
            f"<style>{look}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
            '<rect class="page" width="100%" height="100%" rx="6"/>',
            *parts,
            "</svg>",
        )
    )
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii") + "\n"


def escape(text: str) -> str:
    """Text that is only text in XML, in an attribute too; what XML cannot hold stands as an escape such as `\\x1b`."""
    return html.escape(clean(text))


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    short = f"{value:.1f}"
    return short.removesuffix(".0") if short != "-0.0" else "0"


def text(x: float, y: float, words: str, classes: str = "") -> str:
    """A line of text; y: its base line."""
    marked = f' class="{classes}"' if classes else ""
    return f'<text{marked} x="{number(x)}" y="{number(y)}">{escape(words)}</text>'


def plate(x: float, y: float, width: float, height: float) -> str:
    """A patch of background, which keeps lines off a text; x, y: its middle."""
    return (
        f'<rect class="plate" x="{number(x - width / 2)}" y="{number(y - height / 2)}" '
        f'width="{number(width)}" height="{number(height)}"/>'
    )


def path(pieces: Sequence[Sequence[tuple[float, float]]]) -> str:
    """The `d` of lines (two points) and cubic curves (four), each of which begins where the one before ends."""
    x, y = pieces[0][0]
    data = [f"M{number(x)} {number(y)}"]
    for piece in pieces:
        sign = "L" if len(piece) == 2 else "C"
        data.append(sign + " ".join(f"{number(x)} {number(y)}" for x, y in piece[1:]))
    return "".join(data)


def arrow_head(tip: tuple[float, float], before: tuple[float, float], size: float = 8.0) -> str:
    """The `d` of a triangle that points to `tip`, coming from `before`."""
    dx, dy = tip[0] - before[0], tip[1] - before[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    dx, dy = dx / length * size, dy / length * size
    left = (tip[0] - dx - dy * 0.42, tip[1] - dy + dx * 0.42)
    right = (tip[0] - dx + dy * 0.42, tip[1] - dy - dx * 0.42)
    return path(((tip, left), (left, right))) + "Z"


def _scoped(names: str) -> str:
    return ",".join(f"{_SCOPE} {name}" for name in names.split(","))
