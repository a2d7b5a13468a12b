"""What becomes of an epoch's operators in a job that has changed since: pure, over two job graphs and what logs hold.

What is *owned* must not be lost without a word: keyed state, positions of sources, what sinks have shown. An operator
that owns something and is gone has to be named by `moved` or `removed` of the job file; any other may come and go. Logs
stay with their edge; those of an edge that is no longer there, or distributes records in another way, must be empty.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from formats.job.changes import Changes, Move
from formats.job.model import ROW_WISE, Edge, Kind, Operator, Topology, as_sink

Ends = tuple[str, str]
"""An edge by its two operators."""


class Fate(StrEnum):
    """What becomes of an operator.

    dropped: it owned nothing. orphaned: it owned something that no operator would have. incompatible: what it owned
    does not fit the operator that would have it. conflict: another operator of the epoch leads to the same one.
    """

    KEPT = "kept"
    MOVED = "moved"
    REMOVED = "removed"
    DROPPED = "dropped"
    ADDED = "added"
    ORPHANED = "orphaned"
    INCOMPATIBLE = "incompatible"
    CONFLICT = "conflict"


REFUSED = frozenset({Fate.ORPHANED, Fate.INCOMPATIBLE, Fate.CONFLICT})


class Becomes(NamedTuple):
    """One operator of the epoch, or one that is new.

    operator: its id in the epoch, that of the job for one that is added.
    successor: the id under which it goes on; None if it does not.
    reason: what stands against it, of a fate in REFUSED.
    width: its tasks before and now, where it is that which stands against it.
    """

    operator: str
    outcome: Fate
    successor: str | None
    reason: str | None = None
    width: tuple[int, int] | None = None


class Carried(NamedTuple):
    """One edge of the epoch.

    now: the edge that goes on with its records; None if there is none.
    logged: records of it that belong to the cut.
    why: what stands against it.
    """

    before: Edge
    now: Edge | None
    logged: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Succession:
    """What becomes of all operators and edges.

    operators: those of the epoch as declared, then those that are new.
    edges: those of the epoch.
    lines: what the job file has to say in `moved` and `removed`, with what it says now.
    generation: tasks or channels are others than in the epoch.
    """

    operators: tuple[Becomes, ...]
    edges: tuple[Carried, ...]
    lines: Changes
    generation: bool

    @property
    def heirs(self) -> dict[str, str]:
        """The operators of the epoch that go on, and as which."""
        rows = [row for row in self.operators if row.outcome is not Fate.ADDED]
        return {row.operator: row.successor for row in rows if row.successor is not None}

    @property
    def moved(self) -> dict[str, str]:
        """Those of them that have another id now."""
        return {before: after for before, after in self.heirs.items() if before != after}

    @property
    def refused(self) -> tuple[Becomes, ...]:
        """The operators that stand against it."""
        return tuple(row for row in self.operators if row.outcome in REFUSED)

    @property
    def stranded(self) -> tuple[Carried, ...]:
        """The edges whose records would be lost."""
        return tuple(edge for edge in self.edges if edge.why is not None)

    def suggestion(self) -> str | None:
        """The lines that explain what is not explained, as they are to stand in the job file."""
        unowned = [row.operator for row in self.operators if row.outcome is Fate.ORPHANED]
        if not unowned:
            return None
        moved = [move for move in self.lines.moved if move.before in unowned]
        lines = " and ".join(written(self.lines, moved=bool(moved), removed=len(moved) < len(unowned)))
        more = f"; or name {', '.join(m.before for m in moved)} in removed, to drop what was there" if moved else ""
        return f"add {lines} at the top level of the job file{more}"


def written(lines: Changes, *, moved: bool = True, removed: bool = True) -> list[str]:
    """The lines as they stand in a job file; moved, removed: which of the two."""
    moves = ", ".join(f"{{from: {move.before}, to: {move.after}}}" for move in lines.moved)
    removals = ", ".join(lines.removed)
    both = ((moved and moves, f"`moved: [{moves}]`"), (removed and removals, f"`removed: [{removals}]`"))
    return [text for given, text in both if given]


def succession(
    old: Topology,
    new: Topology,
    changes: Changes,
    logged: Mapping[Ends, int],
    back: frozenset[Ends] | None = None,
) -> Succession:
    """What becomes of the epoch of `old` in the job `new`.

    changes: what the job file says.
    logged: records of an edge of `old` that belong to the cut.
    back: the edges of `new` that may have a log; None for all.
    """
    after = {op.id: op for op in new.operators}
    heirs: dict[str, list[str]] = {}
    for op in old.operators:
        if (heir := changes.heir(op.id)) in after and heir is not None:
            heirs.setdefault(heir, []).append(op.id)
    added = [op for op in new.operators if op.id not in heirs]
    rows = [_becomes(op, changes, after, heirs) for op in old.operators]
    unowned = [op for op, row in zip(old.operators, rows, strict=True) if row.outcome is Fate.ORPHANED]
    rows += [Becomes(op.id, Fate.ADDED, op.id) for op in added]
    goes_on = {row.operator: row.successor for row in rows if row.successor is not None}
    generation = _tasks(old) != _tasks(new) or {_shape(e) for e in old.edges} != {_shape(e) for e in new.edges}
    # Where tasks and channels are the same, a log is read from its channel wherever the file declares the operator.
    edges = tuple(_carried(edge, new, goes_on, logged, back if generation else None) for edge in old.edges)
    return Succession(tuple(rows), edges, _lines(unowned, added, changes), generation)


def owns(operator: Operator) -> str | None:
    """What an operator has that must not be lost without a word; None if it has nothing."""
    if operator.kind is Kind.SOURCE:
        return "positions"
    if operator.kind is Kind.SINK or as_sink(operator) is not None:
        return "output"
    return None if operator.stateful is False else "state"


def _becomes(
    op: Operator, changes: Changes, after: Mapping[str, Operator], heirs: Mapping[str, list[str]]
) -> Becomes:
    heir = changes.heir(op.id)
    if heir is None:
        return Becomes(op.id, Fate.REMOVED, None)
    if heir not in after:
        if (noun := owns(op)) is None:
            return Becomes(op.id, Fate.DROPPED, None)
        return Becomes(op.id, Fate.ORPHANED, None, f"operator {op.id} was removed, and its {noun} would have no owner")
    if len(heirs[heir]) > 1:
        others = " and ".join(id for id in heirs[heir] if id != op.id)
        return Becomes(op.id, Fate.CONFLICT, heir, f"operators {op.id} and {others} would both become {heir}")
    fate = Fate.KEPT if heir == op.id else Fate.MOVED
    if (difference := _difference(op, after[heir])) is not None:
        name = f"operator {op.id}" if fate is Fate.KEPT else f"operator {op.id}, which moves to {heir},"
        width = (op.parallelism, after[heir].parallelism) if difference.startswith("parallelism ") else None
        why = f"{name} has changed since the epoch was taken: {difference}"
        return Becomes(op.id, Fate.INCOMPATIBLE, heir, why, width)
    return Becomes(op.id, fate, heir)


def _difference(old: Operator, new: Operator) -> str | None:
    """Why what the one has cannot be the other's."""
    fields: list[tuple[str, object, object]] = [
        ("parallelism", old.parallelism, new.parallelism),
        ("max_parallelism", old.max_parallelism, new.max_parallelism),
        ("key", _names(old.key), _names(new.key)),
        ("outputs", _outputs(old), _outputs(new)),
        ("state", str(old.kept), str(new.kept)),
    ]
    if not {old.kind, new.kind} <= ROW_WISE:  # these own nothing: what one was given the other takes as well
        fields.insert(0, ("kind", old.kind, new.kind))
    return next((f"{name} was {was}, is {now}" for name, was, now in fields if was != now), None)


def _names(key: Sequence[str]) -> str:
    return f"[{', '.join(key)}]"


def _outputs(operator: Operator) -> str:
    return ", ".join(map(str, operator.aggregates)) or "none"


def _tasks(topology: Topology) -> dict[str, int]:
    return {op.id: op.parallelism for op in topology.operators}


def _shape(edge: Edge) -> tuple[str, str, str, tuple[str, ...]]:
    """What decides which channels an edge has, and which record goes on which."""
    return edge.source, edge.target, edge.partition, edge.key


def _carried(
    edge: Edge, new: Topology, heirs: Mapping[str, str], logged: Mapping[Ends, int], back: frozenset[Ends] | None
) -> Carried:
    records = logged.get((edge.source, edge.target), 0)
    ends = heirs.get(edge.source), heirs.get(edge.target)
    now = next((e for e in new.edges if (e.source, e.target) == ends), None)
    if now is not None and (now.partition, now.key) != (edge.partition, edge.key):
        why = f"was {_how(edge)} and is {_how(now)}"
        now = None
    elif now is not None and back is not None and (now.source, now.target) not in back:
        why = "closes no cycle any more, as the operators are declared now"
    else:
        why = "is no longer there" if now is None else ""
    why = f"edge {edge.name} {why}, and {records} records are on their way on it" if why else ""
    return Carried(edge, now, records, why if records and why else None)


def _how(edge: Edge) -> str:
    return f"{edge.partition} {_names(edge.key)}" if edge.key else str(edge.partition)


SIMILAR = 0.6
"""Ids that are alike, as `difflib` measures it."""


def _lines(unowned: Sequence[Operator], added: Sequence[Operator], changes: Changes) -> Changes:
    """What the file says, and what it would have to say of operators that are not explained: that they have moved to a
    new one that can have what was theirs, else that they are removed."""
    free = {op.id: op for op in added}
    moved, removed = list(changes.moved), list(changes.removed)
    for op in unowned:
        fitting = [id for id, other in free.items() if _difference(op, other) is None]
        alike = difflib.get_close_matches(op.id, fitting, n=1, cutoff=SIMILAR)
        heir = alike[0] if alike else fitting[0] if len(fitting) == 1 else None
        if heir is not None:
            moved.append(Move(op.id, heir))
            del free[heir]
        else:
            removed.append(op.id)
    return Changes(tuple(moved), tuple(removed))
