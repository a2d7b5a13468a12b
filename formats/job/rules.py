"""What holds between operators: inputs that exist, partitions and keys that fit, and a way for every barrier."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from formats.job.model import KEYED, LATE, Edge, Kind, Partition, Side
from formats.job.operators import Draft, Input
from formats.user_file.mistakes import Mistakes, Place
from formats.user_file.nodes import shown


@dataclass(frozen=True, slots=True)
class OperatorFault:
    """What stands against an operator though its entry is well formed; who finds it knows no lines.

    keys: below the operator's id, such as `("source", "type")`, or `("from", "words")` for an input;
    hint: what to do.
    """

    operator: str
    keys: tuple[str, ...]
    message: str
    hint: str | None = None


def check_graph(drafts: dict[str, Draft], at: Place, mistakes: Mistakes) -> tuple[Edge, ...]:
    """The edges by target in declared order; mistakes for all that does not fit. at: where `operators` stands."""
    edges: list[Edge] = []
    for draft in drafts.values():
        _check_ends(draft, mistakes)
        for entry in draft.inputs:
            source = drafts.get(entry.source)
            if source is None:
                message = f"operator {draft.id}: input {shown(entry.source)} is not an operator of this file"
                mistakes.add(entry.at, message, mistakes.near(entry.source, drafts))
                draft.inputs_broken = True
                continue
            if source.kind is Kind.SINK:
                mistakes.add(entry.at, f"operator {draft.id} reads from {source.id}, and a sink has no outputs")
            partition, key = _partition(source, draft, entry, mistakes)
            outputs = _outputs(source)
            if entry.output is not None and entry.output not in outputs:
                message = f"operator {draft.id}: input {source.id} has no windows, for which rows could be late"
                hint = "remove output, or give it a window"
                if outputs:
                    message = f"operator {draft.id}: input {source.id} has no output {entry.output}"
                    hint = f"write {' or '.join(outputs)}"
                mistakes.add(entry.place("output"), message, hint)
            output = entry.output or msgspec.UNSET
            edges.append(Edge(source.id, draft.id, partition, key, entry.replayable, output))
    _check_reach(drafts, edges, at, mistakes)
    return tuple(edges)


def _outputs(source: Draft) -> tuple[str, ...]:
    """Those of an operator beside the one that it mainly has."""
    if source.window is not None:
        return (LATE,)
    return tuple(side.late for side in Side) if source.kind is Kind.JOIN and source.function is None else ()


def _check_ends(draft: Draft, mistakes: Mistakes) -> None:
    if draft.kind is Kind.SOURCE and draft.inputs_at is not None:
        mistakes.add(draft.inputs_at, f"operator {draft.id} is a source, and a source has no inputs", "remove from")
    elif draft.kind not in (Kind.SOURCE, Kind.OPAQUE, None) and draft.inputs_at is None:
        message = f"operator {draft.id}: a {draft.kind} needs inputs; without them no barrier can reach it"
        mistakes.add(draft.at, message, "add from: ID")
        draft.inputs_broken = True


def _partition(source: Draft, target: Draft, entry: Input, mistakes: Mistakes) -> tuple[Partition, tuple[str, ...]]:
    """Partition and key of one edge, with the defaults filled in; what was found wrong gets a harmless stand-in."""
    where = f"operator {target.id}: input {source.id}"
    alike = source.parallelism == target.parallelism
    default = Partition.FORWARD if alike else Partition.REBALANCE
    unknown = source.parallelism is None or target.parallelism is None
    if entry.broken or target.key is None:
        return default, ()
    keyed = target.kind in KEYED and bool(target.key)
    partition = entry.partition or (Partition.HASH if keyed else default)
    at = entry.place("partition")
    if keyed and partition is not Partition.HASH:
        message = f"{where}: a {target.kind} keyed by {_columns(target.key)} needs hash, not {partition}"
        mistakes.add(at, message, f"leave partition out: it is hash on {_columns(target.key)} by itself")
    elif partition is Partition.HASH and entry.key is None:
        if entry.partition is not None:
            example = _columns(target.key) if keyed else "[column, ...]"
            mistakes.add(at, f"{where}: hash without key columns", f"add key: {example}")
        return partition, target.key
    elif partition is Partition.HASH and keyed and entry.key != target.key:
        message = f"{where}: hash on {_columns(entry.key or ())}, but {target.id} is keyed by {_columns(target.key)}"
        mistakes.add(entry.place("key"), message, "name the same columns in the same order")
    elif partition is not Partition.HASH and entry.key is not None:
        message = f"{where}: key columns are for hash, and its partition is {partition}"
        mistakes.add(entry.place("key"), message, "add partition: hash, or remove key")
    elif partition is Partition.FORWARD and not alike and not unknown:
        message = f"{where}: forward from parallelism {source.parallelism} to {target.parallelism}"
        mistakes.add(at, message, "use rebalance, or give both the same parallelism")
    return partition, (entry.key or ()) if partition is Partition.HASH else ()


def _columns(key: tuple[str, ...]) -> str:
    return f"[{', '.join(key)}]"


def _check_reach(drafts: dict[str, Draft], edges: list[Edge], at: Place, mistakes: Mistakes) -> None:
    """Barriers start at sources. An operator whose inputs are broken counts as reached: it has its mistake."""
    sources = [d for d in drafts.values() if d.kind is Kind.SOURCE or (d.kind is Kind.OPAQUE and not d.inputs_at)]
    reached = {d.id for d in drafts.values() if d.inputs_broken} | {d.id for d in sources}
    if not reached:
        mistakes.add(at, "no source: no operator reads from outside the job", "add one with source: {type: ...}")
        return
    outputs: dict[str, list[str]] = {id: [] for id in drafts}
    for edge in edges:
        outputs[edge.source].append(edge.target)
    waiting = list(reached)
    while waiting:
        for target in outputs[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    for draft in drafts.values():
        if draft.id not in reached:
            message = f"operator {draft.id}: no path leads to it from a source, so no barrier can reach it"
            mistakes.add(draft.at, message, "give it an input outside its own cycle")
