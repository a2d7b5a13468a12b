"""Keys by which rows of a table are read, as positions have them, and what is noted of a table beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from formats.errors import Damaged
from formats.ids import TaskId
from formats.view import Position

KINDS = "types"
"""Under which a source keeps the types that the database has for its columns."""

Key = tuple[str, ...]
"""The value of each key column, as the database writes it."""

_TEXT = re.compile(r"table ([0-9]{1,10}) file ([0-9]{1,10})")
_keys = msgspec.json.Decoder(tuple[str, ...])


class Identity(NamedTuple):
    """By which a table is known. oid: another one where it was made anew; file: where its rows lie, another one where
    it was emptied by TRUNCATE or rewritten, 0 of one that has partitions."""

    oid: int
    file: int

    def __str__(self) -> str:
        return f"table {self.oid} file {self.file}"

    @classmethod
    def parse(cls, text: str | None) -> Identity | None:
        """What `str` has written; None for anything else."""
        match = _TEXT.fullmatch(text or "")
        return cls(int(match[1]), int(match[2])) if match else None


def key_text(key: Key) -> str:
    """As a position has it."""
    return msgspec.json.encode(key).decode()


def read_key(text: str, width: int, where: str) -> Key:
    """Of so many columns; Damaged where it is none. where: whose, in messages."""
    try:
        key = _keys.decode(text)
    except msgspec.MsgspecError:
        key = ()
    if len(key) != width:
        raise Damaged(f"{where}: the epoch has {text[:80]!r} for the key read last, which is {width} texts")
    return key


def position_key(position: Position, width: int, task: TaskId) -> Key | None:
    """The key that was read last; None where none was."""
    return None if position.text is None else read_key(position.text, width, f"task {task}")


def read_kinds(connector: Mapping[str, str], where: str) -> dict[str, str]:
    """The types of columns that an epoch has kept; Damaged if they cannot be read."""
    try:
        return msgspec.json.decode(connector[KINDS], type=dict[str, str])
    except (KeyError, msgspec.MsgspecError) as error:
        raise Damaged(f"{where}: the types of columns that the epoch has kept cannot be read: {error}") from error
