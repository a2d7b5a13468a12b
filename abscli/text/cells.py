"""How wide a text is, in a terminal and in a drawing alike, and how to make it fit."""

from __future__ import annotations

import unicodedata


def cells(text: str) -> int:
    """Characters' widths: two for the wide ones of East Asia, none for combining marks."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def shortened(text: str, limit: int) -> str:
    """The beginning and the end of a text of more than `limit` characters."""
    if cells(text) <= limit:
        return text
    tail = limit // 3
    while cells(text[: limit - tail - 1]) + cells(text[len(text) - tail :]) >= limit and limit > 2:
        limit -= 1
        tail = limit // 3
    return text[: limit - tail - 1] + "\u2026" + text[len(text) - tail :]


def broken(text: str, limit: int, lines: int) -> list[str]:
    """Break a name into at most `lines` lines of at most `limit` characters, at spaces or after signs such as `-`."""
    pieces: list[str] = []
    while cells(text) > limit and len(pieces) < lines - 1:
        cut = limit
        while cells(text[:cut]) > limit:
            cut -= 1
        mark = max(text.rfind(sign, cut // 2, cut) for sign in "._-/ ")
        cut = mark + 1 if mark > 0 else cut
        pieces.append(text[:cut].rstrip(" "))
        text = text[cut:].lstrip(" ")
    return [*pieces, shortened(text, limit)]
