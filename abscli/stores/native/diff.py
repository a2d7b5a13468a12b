"""One operator's state in two native epochs: piece by piece over the key groups, and only what can differ is read.

A *piece* is a range of key groups that one task owns on each side. Files that both sides refer to (same digest, at
the head of both lists) say the same of every key that no newer file has: of a piece without newer files nothing is
read, and of one with some only the keys in these are looked up in the older ones.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from abscli.diff.rows import Compared, Counts, compare
from abscli.diff.state import Pair, Side
from formats.native.facts import PartFacts, StateFileFacts
from formats.native.state.live_rows import TaskRows, latest, split
from formats.native.state.references import reach
from formats.native.state.tables import without_removed
from formats.native.store import NativeStore
from formats.parallel import in_order
from formats.query.keys import is_any_of, key_arrays, matches
from formats.select import HIDDEN

CHUNK_ROWS = 400_000
"""Rows of both sides together that are compared at a time, unless a single key group has more."""

Owned = list[tuple[PartFacts, TaskRows]]


def compare_rows(left: Side, right: Side, pair: Pair, *, rows: bool) -> Iterator[Compared] | None:
    """One state of two epochs; None where keys lie in other key groups, so that nothing but all rows will do."""
    owned = [_owned(side, pair.operator) if state else [] for side, state in ((left, pair.left), (right, pair.right))]
    widths = {_width(side, pair.operator) for side, tasks in zip((left, right), owned, strict=True) if tasks}
    return in_order(jobs(owned[0], owned[1], rows=rows)) if len(widths) == 1 else None


def _owned(side: Side, operator: str) -> Owned:
    assert isinstance(side.store, NativeStore)
    return list(side.store.task_rows(side.epoch, operator))


def _width(side: Side, operator: str) -> int:
    topology = side.store.topology(side.epoch)
    assert topology is not None
    return topology.operator(operator).max_parallelism


class Piece(NamedTuple):
    """Key groups, and who owns them: None where that side has no state.

    whole: both tasks own exactly these.
    """

    groups: range
    left: tuple[PartFacts, TaskRows] | None
    right: tuple[PartFacts, TaskRows] | None
    whole: bool


def jobs(left: Owned, right: Owned, *, rows: bool) -> Iterator[Callable[[], Compared]]:
    """Comparisons that together cover the state, to be carried out in any order. Both have the same key columns and
    number of key groups."""
    for piece in pieces(left, right):
        yield from _of_piece(piece, rows=rows)


def pieces(left: Owned, right: Owned) -> Iterator[Piece]:
    """The key groups that somebody owns, cut where the owner changes on either side."""
    edges = sorted({edge for _, task in (*left, *right) for edge in (task.own.start, task.own.stop)})
    for start, stop in itertools.pairwise(edges):
        groups = range(start, stop)
        a, b = _owner(left, groups), _owner(right, groups)
        if a or b:
            whole = bool(a and b and a[1].own == b[1].own == groups)
            yield Piece(groups, a, b, whole)


def _owner(side: Owned, groups: range) -> tuple[PartFacts, TaskRows] | None:
    """The part, with files that are opened for this piece and closed with it."""
    for part, task in side:
        if task.own.start <= groups.start and groups.stop <= task.own.stop:
            return part, task.unopened()
    return None


def _of_piece(piece: Piece, *, rows: bool) -> Iterator[Callable[[], Compared]]:
    left, right = piece.left, piece.right
    if left and right and piece.whole:
        shared = shared_files(left[1].facts, right[1].facts, piece.groups)
        newer = sum(f.rows or 0 for _, task in (left, right) for f in task.facts[shared:])
        older = sum(f.rows or 0 for f in left[1].facts[:shared])
        same = len(left[1].facts) == len(right[1].facts) == shared
        live = right[0].rows if same and left[0].rows is None else left[0].rows
        if live is not None and same:
            alike = Compared(Counts(unchanged=live))
            yield lambda: alike
            return
        if live is not None and shared and newer < older:
            yield from _on_top(left, right, shared, live, rows=rows)
            return
    files = [file for one in (left, right) if one for file in one[1].files]
    for groups in split(piece.groups, files, CHUNK_ROWS):
        yield functools.partial(_whole, piece, groups, rows=rows)


def shared_files(left: Sequence[StateFileFacts], right: Sequence[StateFileFacts], own: range) -> int:
    """How many files at the head of both lists are the same by digest, and say the same of the key groups `own`."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a.sha256 is None or a.sha256 != b.sha256 or reach(a, own) != reach(b, own):
            break
        count += 1
    return count


def _whole(piece: Piece, groups: range, *, rows: bool) -> Compared:
    """Everything on both sides."""
    present = [one[1] for one in (piece.left, piece.right) if one]
    names = [name for name in present[0].schema.names if name not in HIDDEN]
    empty = present[0].schema.empty_table().select(names)
    tables = [one[1].read(groups, _columns(one[1])) if one else None for one in (piece.left, piece.right)]
    left, right = (empty if table is None else table for table in tables)
    return compare(left, right, present[0].key, rows=rows)


def _columns(task: TaskRows) -> list[str]:
    return [name for name in task.schema.names if name not in HIDDEN]


def _on_top(
    left: tuple[PartFacts, TaskRows], right: tuple[PartFacts, TaskRows], shared: int, live: int, *, rows: bool
) -> Iterator[Callable[[], Compared]]:
    """Only the keys that files above the shared ones hold; every other key is unchanged."""
    everything = [*left[1].files, *right[1].files[shared:]]
    first = True
    for groups in split(left[1].own, everything, CHUNK_ROWS):
        yield functools.partial(_candidates, left[1], right[1], shared, groups, rows=rows, live=live if first else 0)
        first = False


def _candidates(left: TaskRows, right: TaskRows, shared: int, groups: range, *, rows: bool, live: int) -> Compared:
    """live: keys on the left, counted once a task; those that are neither removed nor changed are unchanged."""
    names, key = _columns(left), left.key
    above = [_read(task, shared, groups, names) for task in (left, right)]
    if above[0].num_rows == above[1].num_rows == 0:
        return Compared(Counts(unchanged=live))
    arrays = [key_arrays(table, key) for table in above]
    place = matches(arrays[0], arrays[1])
    tables = above  # removed keys included: they stand on what older files have
    if (place < 0).any() or len(place) != above[0].num_rows:  # a key that one side alone has rewritten
        below = [_among(file.read(groups, names), key, arrays) for file in left.files[:shared]]
        tables = [latest([*below, table], key) for table in above]
    there = [without_removed(table) for table in tables]
    done = compare(there[0], there[1], key, rows=rows)
    unchanged = live - done.counts.removed - done.counts.changed
    return done._replace(counts=done.counts._replace(unchanged=unchanged))


def _read(task: TaskRows, start: int, groups: range, names: Sequence[str]) -> pa.Table:
    """The newest rows of the files from number `start` on alone."""
    tables = [file.read(groups, names) for file in task.files[start:]]
    return latest(tables, task.key) if tables else task.schema.empty_table().select(names)


def _among(table: pa.Table, key: Sequence[str], wanted: Sequence[Sequence[pa.Array]]) -> pa.Table:
    """The rows whose key is in one of the lists."""
    arrays = key_arrays(table, key)
    hits = [is_any_of(arrays, keys) for keys in wanted]
    return table.filter(pa.array(hits[0] | hits[1]))
