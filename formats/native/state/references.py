"""State files of which a task has some key groups only.

A rescale moves no rows: the new tasks refer to the files of the old ones by key group, and what a file holds of other
key groups is another task's, or stale.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.native.facts import StateFileFacts


def reach(file: StateFileFacts, own: range) -> range:
    """The key groups of a file that count for a task. own: those that the task has."""
    if file.key_groups is None:
        return own
    first, last = file.key_groups
    return _overlap(range(first, last + 1), own)


def referred(file: StateFileFacts, before: range, own: range) -> StateFileFacts | None:
    """A file as a task of another parallelism refers to it, with the row groups that it needs; None if it has nothing
    for it.

    before: the key groups of the task that had the file. own: those of the task that is to have it.
    """
    groups = _overlap(reach(file, before), own)
    row_groups = tuple(g for g in file.row_groups if g.last >= groups.start and g.first < groups.stop)
    if not groups or not row_groups:
        return None
    return msgspec.structs.replace(file, row_groups=row_groups, key_groups=(groups.start, groups.stop - 1))


def depth(files: Sequence[StateFileFacts], own: range) -> int:
    """In how many files of a task a reader may have to look for one key, at most."""
    reaches = [reach(file, own) for file in files]
    return max((sum(one.start in other for other in reaches) for one in reaches), default=0)


def rows_in_reach(file: StateFileFacts) -> int:
    """Rows that a task reads of a file, as far as its facts tell."""
    if file.key_groups is None:
        return file.rows or 0
    return sum(group.rows for group in file.row_groups)


def refers(files: Sequence[StateFileFacts]) -> bool:
    """Whether who does not know references would read more of these files than is the task's."""
    return any(file.key_groups is not None for file in files)


def _overlap(a: range, b: range) -> range:
    start = max(a.start, b.start)
    return range(start, max(start, min(a.stop, b.stop)))
