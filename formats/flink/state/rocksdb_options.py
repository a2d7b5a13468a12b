"""The OPTIONS file of a RocksDB instance, cut down to what reading needs.

The file is that of the machine where the job ran: its `wal_dir` and `db_log_dir` name folders that are not here (or,
in a hostile snapshot, folders that are not ours, where RocksDB would write and delete its logs), and an option that
this RocksDB no longer or does not yet have makes it refuse the whole. What reading needs is the column families, their
comparators and their merge operators (list state is written with merge operands); table files say the rest themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from formats.errors import Damaged

_BEGIN, _END = '[CFOptions "', '"]'
_OPTIONS: Final = frozenset({"comparator", "merge_operator"})
_HEAD: Final = "[Version]\n  rocksdb_version=6.20.3\n  options_file_version=1.1\n[DBOptions]\n"
_MOST: Final = 64 << 20
"""Bytes of an OPTIONS file beyond which it is not read."""
_SECTION_MOST: Final = 1 << 20
"""Characters of a section beyond which it is not read: a column family takes some 5 kB."""


def families(lines: Iterable[str], path: str) -> dict[str, dict[str, str]]:
    """Return the comparator and the merge operator of each column family, as the file has them.

    lines: of the OPTIONS file, in the order of the file.
    Raises Damaged for a section of more than 1 MB.
    """
    by_family: dict[str, dict[str, str]] = {}
    options: dict[str, str] | None = None
    size = 0
    for line in lines:
        size += len(line)
        if line.startswith("["):
            section = line.rstrip()
            options, size = None, len(line)
            if section.startswith(_BEGIN) and section.endswith(_END) and len(section) >= len(_BEGIN + _END):
                options = by_family[section[len(_BEGIN) : -len(_END)]] = {}
        elif options is not None:
            name, found, value = line.partition("=")
            if found and name.strip() in _OPTIONS:
                options[name.strip()] = value.strip()
        if size > _SECTION_MOST:
            raise Damaged(f"a section of its OPTIONS file has more than {_SECTION_MOST} bytes", path=path)
    return by_family


def cut_down(by_family: Mapping[str, Mapping[str, str]]) -> str:
    """The same column families with nothing but what reading needs. No path of the old machine is in it."""
    parts = [_HEAD]
    for name, options in by_family.items():
        parts.append(f'[CFOptions "{name}"]\n')
        parts += [f"  {option}={value}\n" for option, value in sorted(options.items())]
        parts.append(f'[TableOptions/BlockBasedTable "{name}"]\n')
    return "".join(parts)


def merging(by_family: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Column families whose options name Flink's merge operator; without it RocksDB reads lists as empty, silently."""
    return {name for name, options in by_family.items() if "StringAppendTEST" in options.get("merge_operator", "")}


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
        by_family = families(file, path)
    with open(newest, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(cut_down(by_family))
    return merging(by_family)


def _number(name: str) -> tuple[int, str]:
    digits = name.removeprefix("OPTIONS-")
    return (int(digits) if digits.isascii() and digits.isdigit() else -1, name)
