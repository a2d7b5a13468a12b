"""The OPTIONS file of a RocksDB instance, cut down to what reading needs.

The file is that of the machine where the job ran: its `wal_dir` and `db_log_dir` name folders that are not here (or,
in a hostile snapshot, folders that are not ours, where RocksDB would write and delete its logs), and an option that
this RocksDB no longer or does not yet have makes it refuse the whole. What reading needs is the column families, their
comparators and their merge operators (list state is written with merge operands); table files say the rest themselves.
"""

from __future__ import annotations

import os
import re
from typing import Final

from formats.errors import Damaged

_SECTION: Final = re.compile(r'^\[CFOptions "(.*)"\]\s*$', re.MULTILINE)
_OPTION: Final = re.compile(r"^\s*(comparator|merge_operator)\s*=\s*(.*?)\s*$", re.MULTILINE)
_NEXT: Final = re.compile(r"^\[", re.MULTILINE)
_HEAD: Final = "[Version]\n  rocksdb_version=6.20.3\n  options_file_version=1.1\n[DBOptions]\n"
_MOST: Final = 64 << 20
"""Bytes of an OPTIONS file beyond which it is not read: a column family takes some 5 kB."""


def families(text: str) -> dict[str, dict[str, str]]:
    """Column family (as its section quotes it) -> its comparator and merge operator, as they stand there."""
    by_family: dict[str, dict[str, str]] = {}
    for section in _SECTION.finditer(text):
        after = _NEXT.search(text, section.end())
        body = text[section.end() : after.start() if after is not None else len(text)]
        by_family[section[1]] = dict(_OPTION.findall(body))
    return by_family


def cut_down(text: str) -> str:
    """The same column families with nothing but what reading needs. No path of the old machine is in it."""
    parts = [_HEAD]
    for name, options in families(text).items():
        parts.append(f'[CFOptions "{name}"]\n')
        parts += [f"  {option}={value}\n" for option, value in sorted(options.items())]
        parts.append(f'[TableOptions/BlockBasedTable "{name}"]\n')
    return "".join(parts)


def merging(text: str) -> set[str]:
    """Column families whose options name Flink's merge operator; without it RocksDB reads lists as empty, silently."""
    return {name for name, options in families(text).items() if "StringAppendTEST" in options.get("merge_operator", "")}


def prepare(folder: str, path: str) -> set[str]:
    """Cut down the newest OPTIONS file in a copy of an instance, and drop older ones; which families merge lists.

    path: what messages call the instance.
    """
    names = sorted((name for name in os.listdir(folder) if name.startswith("OPTIONS-")), key=_number)
    for name in names[:-1]:
        os.unlink(os.path.join(folder, name))
    newest = os.path.join(folder, names[-1])
    if os.path.getsize(newest) > _MOST:
        raise Damaged(f"{names[-1]} has {os.path.getsize(newest)} bytes, at most {_MOST} are read", path=path)
    with open(newest, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        text = file.read()
    with open(newest, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(cut_down(text))
    return merging(text)


def _number(name: str) -> tuple[int, str]:
    digits = name.removeprefix("OPTIONS-")
    return (int(digits) if digits.isascii() and digits.isdigit() else -1, name)
