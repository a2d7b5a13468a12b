"""What has changed in a job since an epoch was taken: its graph, and its code."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from abscli.engine.generations.code import changed_modules, modules_of
from abscli.engine.telemetry.news import OtherCode
from abscli.graph.backedges import back_edges
from abscli.planner.succession import Fate, Succession, succession, written
from abscli.protocol.policy import Policy
from formats.errors import NoRecovery, OtherJob
from formats.job.changes import Changes
from formats.job.model import Topology
from formats.native.facts import PartFacts
from formats.native.store import NativeStore


def change_of(store: NativeStore, epoch: int, topology: Topology, changes: Changes) -> Succession:
    """What becomes of an epoch in the job as it is now, and what stands against it. Raises Damaged."""
    policy = store.manifest(epoch).policy
    # Under unaligned any channel may have a log; else one that is no back edge now would be damage.
    back = None if policy == Policy.UNALIGNED else frozenset(back_edges(topology))
    return succession(store.topology(epoch), topology, changes, logged_by_edge(store.parts(epoch)), back)


def change_since(store: NativeStore, epoch: int, topology: Topology, changes: Changes) -> Succession:
    """The same, where nothing stands against it.

    OtherJob for what the job file does not explain, with the lines to add; NoRecovery where records would be lost.
    """
    change = change_of(store, epoch, topology, changes)
    if change.refused:
        reasons = "; ".join(row.reason or "" for row in change.refused)
        raise OtherJob(reasons, path=store.path, hint=way_out(store, change))
    if change.stranded:
        reasons = "; ".join(edge.why or "" for edge in change.stranded)
        message = f"epoch {epoch} cannot be resumed by the changed job: {reasons}"
        raise NoRecovery(message, path=store.path, hint=way_out(store, change))
    return change


def logged_by_edge(parts: Iterable[PartFacts]) -> dict[tuple[str, str], int]:
    """Records that belong to the cut, by the two operators of their edge."""
    logged: dict[tuple[str, str], int] = {}
    for log in (log for part in parts for log in part.logs if log.records):
        ends = log.channel.edge
        logged[ends] = logged.get(ends, 0) + log.records
    return logged


def way_out(store: NativeStore, change: Succession) -> str | None:
    """What to do where something stands against a change; None where nothing does."""
    if (lines := change.suggestion()) is not None:
        return lines
    if change.refused:
        first = change.refused[0]
        if first.outcome is Fate.CONFLICT:
            return "an epoch has what both had: move only one of them there, and list the other in removed"
        if first.width is not None:
            before, now = (f"`--parallelism {first.successor}={number}`" for number in first.width)
            return f"`abs run` and `abs plan-recovery` rescale it with {now}, and go on as it was with {before}"
        drop = written(Changes((), (*change.lines.removed, first.operator)))[0]
        return f"run the unchanged job; or give the operator another id and add {drop}, which drops its state"
    if change.stranded:
        return (
            f"drain the unchanged job first, with `abs plan-recovery {shlex.quote(store.path)} --out "
            "plan.json` and `abs restore plan.json --job OLD-JOB --until drained`; then resume from there"
        )
    return None


def other_code(store: NativeStore, epoch: int, topology: Topology, directory: str) -> OtherCode | None:
    """What has changed in the modules of the job since the epoch was made; None also where that is not known.

    directory: of the job file.
    """
    number = store.manifest(epoch).attempt
    maker = next((life for life in store.attempts() if life.attempt == number), None)
    if maker is None or maker.code is None:
        return None
    files = changed_modules(maker.code, modules_of(topology, directory))
    return OtherCode(epoch, maker.attempt, tuple(files)) if files else None
