"""The tables that a RocksDB database consists of, and their unique ids, from its MANIFEST.

A MANIFEST is a log (`wal`) of edits: fields of a varint tag and a value. Tags that this program does not know and that
have bit 13 may be skipped. Sources: RocksDB's `db/version_edit.cc`, `table/unique_id.cc`; checked with files that Spark
3.4 to 4.3 wrote.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.codec.varint import read_varint
from formats.codec.wal import batches
from formats.errors import Damaged, UnsupportedVersion

_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 200, 203, 300})
"""Tags with a number: of logs and files, of a column family, and how many edits belong together."""
_TEXTS: Final = frozenset({1, 201})
_CURSOR, _DELETED, _NEW, _NEW_2, _NEW_3, _NEW_4, _DROPPED = 5, 6, 7, 100, 102, 103, 202
_IGNORED: Final = 1 << 13
_END, _UNIQUE_ID = 1, 12
"""Tags within a new file."""
_ID_SIZES: Final = (16, 24)
_SESSION_LENGTHS: Final = range(13, 25)
_LOW: Final = 12
"""Characters of a session's id that make its lower half."""


class UniqueId(NamedTuple):
    """The unique id of a table. session: the lower half of the id of the session that wrote it, as it stands there."""

    session: int
    rest: int


def session_half(session: str) -> int | None:
    """The lower half of a session's id, which a unique id begins with (`DecodeSessionId`); None if it is none."""
    if len(session) not in _SESSION_LENGTHS or not session.isascii() or not session.isalnum():
        return None
    upper, lower = int(session[:-_LOW], 36), int(session[-_LOW:], 36)
    return (lower & ((1 << 62) - 1)) | (upper << 62) & ((1 << 64) - 1)


def unique_ids(data: bytes, path: str) -> dict[int, UniqueId]:
    """The unique ids of the tables of a database, by their numbers; Damaged, UnsupportedVersion.

    Tables without one, as older versions wrote them, are left out.
    """
    live: dict[int, UniqueId | None] = {}
    for edit in batches(data, path):
        try:
            _apply(edit, live, path)
        except (IndexError, ValueError):
            raise Damaged("has an edit that ends in a field", path=path) from None
    return {number: id for number, id in live.items() if id is not None}


def _apply(edit: bytes, live: dict[int, UniqueId | None], path: str) -> None:
    at = 0
    while at < len(edit):
        tag, at = read_varint(edit, at)
        if tag in _NUMBERS:
            _, at = read_varint(edit, at)
        elif tag in _TEXTS or tag & _IGNORED:
            _, at = _text(edit, at)
        elif tag == _CURSOR:
            _, at = read_varint(edit, at)
            _, at = _text(edit, at)
        elif tag == _DELETED:
            _, at = read_varint(edit, at)
            number, at = read_varint(edit, at)
            live.pop(number, None)
        elif tag in (_NEW, _NEW_2, _NEW_3, _NEW_4):
            number, id, at = _new_file(edit, at, tag)
            live[number] = id
        elif tag != _DROPPED:
            raise UnsupportedVersion(f"has an edit with tag {tag}, which is not read here", path=path)


def _new_file(edit: bytes, at: int, tag: int) -> tuple[int, UniqueId | None, int]:
    """Number and unique id of a table that is added, and where the next field begins."""
    _, at = read_varint(edit, at)
    number, at = read_varint(edit, at)
    for _ in range(2 if tag == _NEW_3 else 1):  # the folder, and the size
        _, at = read_varint(edit, at)
    for _ in range(2):
        _, at = _text(edit, at)
    for _ in range(0 if tag == _NEW else 2):
        _, at = read_varint(edit, at)
    id = None
    while tag == _NEW_4:
        field, at = read_varint(edit, at)
        if field == _END:
            break
        value, at = _text(edit, at)
        if field == _UNIQUE_ID and len(value) in _ID_SIZES:
            id = UniqueId(int.from_bytes(value[:8], "little"), int.from_bytes(value[8:16], "little"))
    return number, id, at


def _text(edit: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_varint(edit, at)
    if at + size > len(edit):
        raise ValueError("a text leads out of its edit")
    return edit[at : at + size], at + size
