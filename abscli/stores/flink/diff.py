"""What changed between two of Flink's snapshots besides their rows: states, serializers, parallelism, files, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from abscli.diff.epochs import Besides, Change, Count, FilesDiff, TopologyDiff
from abscli.diff.state import Side
from formats.flink import facts
from formats.flink.facts import file_handles
from formats.flink.files.resolve import plain
from formats.flink.metadata.handles import Metadata, OperatorState, SegmentHandle
from formats.flink.store import FlinkStore

FileKey = tuple[str, int, int]
"""Name, start and size of a file, or of a segment of one: the same wherever the directory lies now."""


def compare(left: Side, right: Side) -> Besides:
    """What differs, and what that means for a restore."""
    before, after = _side(left), _side(right)
    return Besides(diff_states(before, after), diff_files(before, after))


def _side(side: Side) -> tuple[FlinkStore, int]:
    assert isinstance(side.store, FlinkStore)
    return side.store, side.epoch


def diff_states(left: tuple[FlinkStore, int], right: tuple[FlinkStore, int]) -> list[TopologyDiff]:
    """Operators that both have, with other names, max parallelism or states, and what that means for a restore."""
    sides = [{names[o.id]: (store, epoch, o) for o in metadata.operators}
             for store, epoch in (left, right)
             for metadata in (store.metadata(epoch),)
             for names in (store.names(metadata),)]  # fmt: skip
    changes: list[TopologyDiff] = []
    for id, before in sides[0].items():
        if id in sides[1]:
            changes += _operator(id, before, sides[1][id])
    return changes


def _operator(
    id: str, before: tuple[FlinkStore, int, OperatorState], after: tuple[FlinkStore, int, OperatorState]
) -> Iterator[TopologyDiff]:
    old, new = before[2], after[2]
    if old.max_parallelism != new.max_parallelism:
        consequence = "keyed state cannot be taken over: Flink refuses another max parallelism"
        yield TopologyDiff("max-parallelism", id, str(old.max_parallelism), str(new.max_parallelism), consequence)
    was, now = (
        {(s.keyed, s.name): s for s in facts.states(operator, store.streams(epoch))}
        for store, epoch, operator in (before, after)
    )
    for key, state in was.items():
        if key not in now:
            consequence = "nothing reads it any more; Flink drops it without a word"
            yield TopologyDiff("state-removed", f"{id} {key[1]}", state.kind, None, consequence)
        elif state.kind != now[key].kind:
            consequence = "Flink refuses state of another kind"
            yield TopologyDiff("state-kind", f"{id} {key[1]}", state.kind, now[key].kind, consequence)
        elif state.serializers != now[key].serializers:
            for role in sorted({*state.serializers, *now[key].serializers}):
                one, other = state.serializers.get(role), now[key].serializers.get(role)
                if one != other:
                    migrates = "Flink migrates it if the new serializer allows that"
                    consequence = migrates if role == "value" else "Flink refuses"
                    yield TopologyDiff(f"{role}-serializer", f"{id} {key[1]}", _text(one), _text(other), consequence)
    for key, state in now.items():
        if key not in was:
            yield TopologyDiff("state-added", f"{id} {key[1]}", None, state.kind, "it would start empty")


def _text(described: Any) -> str | None:
    if not isinstance(described, dict):
        return None if described is None else str(described)
    inner = ", ".join(filter(None, (_text(part) for part in described.get("nested", ()))))
    name = str(described.get("class") or described.get("serializer"))
    return f"{name}<{inner}>" if inner else name


def diff_files(left: tuple[FlinkStore, int], right: tuple[FlinkStore, int]) -> FilesDiff:
    """Files of either side by whether both refer to them, and both of Flink's sizes."""
    metadata = [store.metadata(epoch) for store, epoch in (left, right)]
    before, after = (_files(one) for one in metadata)
    states = [sum(facts.operator_size(operator) for operator in one.operators) for one in metadata]
    return FilesDiff(
        shared=_sum(before & after),
        new=_sum(after - before),
        removed=_sum(before - after),
        state_size=Change(*states),
        checkpointed_size=Change(*(facts.total_checkpointed(one) for one in metadata)),
    )


def _files(metadata: Metadata) -> set[FileKey]:
    return {
        (plain(h.path).rpartition("/")[2], h.start if isinstance(h, SegmentHandle) else 0, h.size)
        for _, _, h in file_handles(metadata)
    }


def _sum(files: set[FileKey]) -> Count:
    return Count(len({name for name, _, _ in files}), sum(size for _, _, size in files))
