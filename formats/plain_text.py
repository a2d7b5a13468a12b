"""Text that was written by others, made harmless for whoever looks at it: no control, no change of direction.

What a terminal or an editor acts on instead of showing it: C0 and C1 controls, DEL, marks and overrides of direction
(a name can read backwards and so as another one), line separators, zero-width characters.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0\xa6-\xa9]|\xef\xbb\xbf"
)
"""DEL, C1, ALM, zero-width and directional marks and overrides, separators, isolates, BOM, in UTF-8."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
                      "|\x1b(?!\\[[0-9;]*m)")  # fmt: skip


def plain_json(data: bytes) -> bytes:
    """A JSON text that says the same and has these characters as escapes: they can only stand in its strings."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _HIDDEN.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), data)


def plain_lines(text: str) -> str:
    """A text of lines for a terminal, with these characters as escapes such as `\\x9b`; its colours stay."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
