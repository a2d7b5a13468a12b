"""Whose state a snapshot of Flink holds, asked before a deployment: which of it no operator of the new job would own,
and which operators would begin without any.

Flink gives state to the operator with the same id, which is the hash of its uid. Names do not count, but where a plan
has no ids (operators within a chain, execution plans) they are all there is to go by.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.bounds import read_user_file
from formats.flink.facts import operator_size
from formats.flink.ids import Names, OperatorHash, hash_in, proved
from formats.flink.metadata.handles import Metadata, OperatorState, handles
from formats.flink.plan_json import JobPlan, is_plan, read_plan
from formats.job.file import MAX_BYTES


class Wanted(msgspec.Struct, frozen=True):
    """One operator of the new job.

    uid: None where it is not known.
    name: what people call it.
    """

    uid: str | None = None
    hash: OperatorHash | None = None
    name: str | None = None

    @property
    def shown(self) -> str:
        """What it is called."""
        return self.uid or self.name or self.hash or "?"


class Owned(msgspec.Struct, frozen=True):
    """State of one operator in the snapshot.

    owner: who would get it, None: nobody.
    by: `uid`, `id` or `name`.
    reason: why nobody.
    """

    operator: str
    name: str | None
    bytes: int
    owner: str | None
    by: str | None
    reason: str | None


class Owners(msgspec.Struct, frozen=True):
    """Which operator of a new job would get which state.

    owned, orphans: operators of the snapshot with state.
    new: operators of the job that the snapshot does not know.
    empty: those that it knows without state.
    """

    owned: tuple[Owned, ...]
    orphans: tuple[Owned, ...]
    new: tuple[str, ...]
    empty: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether all state has an owner and every operator is known."""
        return not self.orphans and not self.new


def of_file(path: str) -> list[Wanted]:
    """Operators of a job, from a file with their uids, one a line, or from Flink's plan of it as JSON."""
    data = read_user_file(path, MAX_BYTES)
    return of_plan(read_plan(data, path)) if is_plan(data) else of_uids(read_uids(data))


def of_uids(uids: Sequence[str]) -> list[Wanted]:
    """Operators by uid."""
    return [Wanted(uid=uid) for uid in dict.fromkeys(uids)]


def of_plan(plan: JobPlan) -> list[Wanted]:
    """Operators of a plan: the first of each chain by its id, where the plan has ids; the others by name."""
    wanted = []
    for node in plan.nodes:
        wanted.append(Wanted(hash=node.hash, name=node.names[0]))
        if node.hash is not None:
            wanted += [Wanted(name=name) for name in node.names[1:]]
    return wanted


def read_uids(data: bytes) -> list[str]:
    """One uid a line; empty lines and what begins with # are left out."""
    lines = (line.strip() for line in data.decode("utf-8", "surrogateescape").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def owners(metadata: Metadata, wanted: Sequence[Wanted], names: Names) -> Owners:
    """Who would own what."""
    ids = {operator.id for operator in metadata.operators}
    by_uid = dict(proved([w.uid for w in wanted if w.uid], ids))
    by_uid |= {hash: hash for w in wanted if w.uid and (hash := hash_in(w.uid)) in ids}  # a hash given for a uid
    by_hash = {w.hash: w for w in wanted if w.hash is not None}
    by_name = {w.name: w for w in wanted if w.uid is None and w.hash is None and w.name is not None}
    owned, orphans, empty, matched = [], [], [], set()
    for operator in metadata.operators:
        owner, by = None, None
        if operator.id in by_uid:
            owner, by = by_uid[operator.id], "uid"
        elif operator.id in by_hash:
            owner, by = by_hash[operator.id].shown, "id"
        elif operator.name and operator.name in by_name:
            owner, by = by_name[operator.name].shown, "name"
        if owner is not None:
            matched.add((by, owner))
        called, size = names[operator.id], operator_size(operator)
        if not _has_state(operator):
            if owner is not None:
                empty.append(owner)
        elif owner is not None:
            owned.append(Owned(called, operator.name, size, owner, by, None))
        else:
            orphans.append(Owned(called, operator.name, size, None, None, _why(operator, by_hash, by_name)))
    named = any(operator.name for operator in metadata.operators)  # else nothing is known of names
    new = [
        w.shown
        for w in wanted
        if not {("uid", w.shown), ("id", w.shown), ("name", w.shown)} & matched and (named or w.uid or w.hash)
    ]
    return Owners(tuple(owned), tuple(orphans), tuple(dict.fromkeys(new)), tuple(empty))


def _has_state(operator: OperatorState) -> bool:
    return operator.coordinator is not None or any(True for subtask in operator.subtasks for _ in handles(subtask))


def _why(operator: OperatorState, by_hash: dict[OperatorHash, Wanted], by_name: dict[str, Wanted]) -> str:
    if operator.name and any(w.name == operator.name for w in by_hash.values()):
        return "the job has an operator of this name with another id: its uid or its place in the graph has changed"
    if by_name and not operator.name:
        return "the plan has no ids of operators within chains, and this snapshot no names: it may be one of them"
    return "no operator of the job has its id"
