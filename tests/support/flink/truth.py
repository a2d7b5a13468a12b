"""What Flink's own loader says of a `_metadata`, held against what is read here, field by field.

The truth files are written by a Java program that walks what `Checkpoints.loadCheckpointMetadata` returns; `describe`
makes the same tree of ours. Blocks named `meta` are about serializers, which are compared elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from formats.flink import facts
from formats.flink.metadata.handles import (
    ChangelogHandle,
    ChannelHandle,
    EmptySegmentHandle,
    FileHandle,
    IncrementalHandle,
    InlineHandle,
    InMemoryChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
    Metadata,
    OperatorState,
    OperatorStateHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    Subtask,
    checkpointed_size,
    state_size,
)
from formats.flink.store import FlinkStore

DATA = Path(__file__).parents[2] / "data" / "flink"

MADE_UP: Any = object()
"""A field that is not in the file: Flink makes it up when it loads it."""


def load(name: str, folder: Path = DATA / "truth") -> Any:
    """A truth file: one line of text, then JSON, or JSON whole."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def differences(metadata: Metadata, truth: Any) -> list[str]:
    """Every field that disagrees: path, what Flink says, what is read."""
    ours = describe(metadata, truth["path"])
    theirs = {key: value for key, value in truth.items() if key not in ("how", "flink_version")}
    root: list[str] = []
    return list(_compare("", _without_meta(theirs), ours, root))


def _without_meta(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_meta(part) for key, part in value.items() if key != "meta"}
    return [_without_meta(part) for part in value] if isinstance(value, list) else value


def _compare(at: str, theirs: Any, ours: Any, root: list[str]) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            if key not in theirs or key not in ours:
                yield f"{at}.{key}: only {'Flink' if key in theirs else 'we'} have it"
            else:
                yield from _compare(f"{at}.{key}", theirs[key], ours[key], root)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield f"{at}: {len(theirs)} items in Flink, {len(ours)} here"
        for i, (a, b) in enumerate(zip(theirs, ours, strict=False)):
            yield from _compare(f"{at}[{i}]", a, b, root)
    elif isinstance(theirs, str) and "$ROOT" in theirs and isinstance(ours, str) and "$ROOT" not in ours:
        if not root:
            pattern = re.escape(theirs).replace(re.escape("$ROOT"), "(.*)")
            found = re.fullmatch(pattern, ours)
            root.append(found[1] if found else "?")
        if theirs.replace("$ROOT", root[0]) != ours:
            yield f"{at}: {theirs} in Flink, {ours} here"
    elif ours is not MADE_UP and (theirs != ours or type(theirs) is not type(ours)):
        yield f"{at}: {theirs!r} in Flink, {ours!r} here"


def describe(metadata: Metadata, path: str) -> dict[str, Any]:
    """Our metadata in the shape of the truth. path: the directory, as the truth names it."""
    return {
        "path": path,
        "metadata_version": metadata.version,
        "checkpoint_id": metadata.checkpoint_id,
        "properties": _properties(metadata),
        "master_states": [{"name": m.name, "version": m.version} for m in metadata.master_states],
        "operators": [_operator(operator, path) for operator in metadata.operators],
    }


def _properties(metadata: Metadata) -> dict[str, Any] | None:
    p = metadata.properties
    if p is None:
        return None
    text = (
        f"SavepointType{{name='{p.name}', postCheckpointAction={p.after}, formatType={p.layout}}}"
        if p.kind == "SavepointType"
        else f"CheckpointType{{name='{p.name}', sharingFilesStrategy={p.sharing}}}"
    )
    kind = {"name": p.name, "is_savepoint": p.kind == "SavepointType", "text": text, "class": p.kind}
    return {
        "checkpointType": kind,
        "forced": p.forced,
        "discardSubsumed": p.discard_subsumed,
        "discardFinished": p.discard_finished,
        "discardCancelled": p.discard_cancelled,
        "discardFailed": p.discard_failed,
        "discardSuspended": p.discard_suspended,
        "unclaimed": p.unclaimed,
    }


def _operator(operator: OperatorState, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operator_id": operator.id,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "fully_finished": operator.finished,
        "state_size": facts.operator_size(operator),
        "checkpointed_size": facts.operator_checkpointed(operator),
        "subtasks": [_subtask(s, path) for s in sorted(operator.subtasks, key=lambda s: s.index)],
    }
    if operator.name is not None:
        found["name"] = operator.name
    if operator.uid is not None:
        found["uid"] = operator.uid
    if isinstance(operator.coordinator, InlineHandle):
        found["coordinator_state"] = {"size": operator.coordinator.size, "hex": operator.coordinator.data.hex()}
    return found


def _subtask(subtask: Subtask, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "subtask": subtask.index,
        "finished": subtask.finished,
        "state_size": facts.subtask_size(subtask),
        "checkpointed_size": facts.subtask_checkpointed(subtask),
        "managed_operator_state": _operator_state(subtask.managed_operator, path),
        "raw_operator_state": _operator_state(subtask.raw_operator, path),
        "managed_keyed_state": [_keyed(subtask.managed_keyed, path)] if subtask.managed_keyed else [],
        "raw_keyed_state": [_keyed(subtask.raw_keyed, path)] if subtask.raw_keyed else [],
        "input_channel_state": [_channel(h, path, output=False) for h in subtask.input_channels],
        "result_subpartition_state": [_channel(h, path, output=True) for h in subtask.output_channels],
    }
    return {key: value for key, value in found.items() if value != []}


def _operator_state(handle: OperatorStateHandle | None, path: str) -> list[dict[str, Any]]:
    if handle is None:
        return []
    name = "OperatorStreamStateHandle"
    if handle.folders is not None:
        name = "EmptyFileMerging" * handle.folders.empty + "FileMerging" * (not handle.folders.empty) + name
    states = [
        {"name": state.name, "mode": state.mode.name, "offsets": list(state.offsets)}
        for state in sorted(handle.states, key=lambda state: state.name)
    ]
    return [{"class": name, "size": state_size(handle), "states": states, "delegate": _stream(handle.stream, path)}]


def _keyed(handle: KeyedHandle | None, path: str) -> dict[str, Any]:
    assert handle is not None
    found: dict[str, Any] = {
        "key_groups": [handle.first, handle.first + handle.count - 1],
        "size": state_size(handle),
        "checkpointed_size": checkpointed_size(handle),
    }
    match handle:
        case KeyGroupsHandle():
            found["class"] = "KeyGroupsSavepointStateHandle" if handle.tag == 7 else "KeyGroupsStateHandle"
            found["offsets"] = list(handle.offsets)
            found["delegate"] = _stream(handle.stream, path)
        case IncrementalHandle():
            found["class"] = "IncrementalRemoteKeyedStateHandle"
            found["backend_id"] = handle.backend
            found["checkpoint_id"] = handle.checkpoint_id
            found["meta_handle"] = _stream(handle.meta, path)
            for key, files in (("shared", handle.shared), ("private", handle.private)):
                names = sorted(files, key=lambda file: file.name)
                found[key] = [{"local_path": f.name, "handle": _stream(f.stream, path)} for f in names]
        case ChangelogHandle():
            found["class"] = "ChangelogStateBackendHandleImpl"
            found["materialization_id"] = handle.materialization_id
            found["checkpoint_id"] = handle.checkpoint_id
            found["materialized"] = [_keyed(part, path) for part in handle.materialized]
            found["non_materialized"] = [_keyed(part, path) for part in handle.changes]
        case InMemoryChangelogHandle():
            del found["checkpointed_size"]
            found["class"] = "InMemoryChangelogStateHandle"
            found |= {"from": handle.start, "to": handle.end, "changes": len(handle.changes)}
    found["state_handle_id"] = handle.id if handle.id is not None else MADE_UP
    return found


def _channel(handle: ChannelHandle, path: str, *, output: bool) -> dict[str, Any]:
    def info(gate: int, channel: int) -> str:
        if output:
            return f"ResultSubpartitionInfo{{partitionIdx={gate}, subPartitionIdx={channel}}}"
        return f"InputChannelInfo{{gateIdx={gate}, inputChannelIdx={channel}}}"

    name = "ResultSubpartitionStateHandle" if output else "InputChannelStateHandle"
    found: dict[str, Any] = {
        "class": name,
        "subtask": handle.subtask,
        "size": handle.size,
        "delegate": _stream(handle.stream, path),
    }
    if handle.merged is None:
        part = handle.parts[0]
        return found | {"info": info(part.gate, part.channel), "offsets": list(part.offsets)}
    parts = [
        {"info": info(part.gate, part.channel), "offsets": list(part.offsets), "size": part.size}
        for part in handle.parts
    ]
    return found | {"class": f"Merged{name}", "unmerged": parts, "serialized_channel_offsets": handle.merged.hex()}


def _stream(handle: StreamHandle | None, path: str) -> dict[str, Any] | None:
    match handle:
        case InlineHandle():
            digest = hashlib.sha1(handle.data).hexdigest()
            found = {"class": "ByteStreamStateHandle", "handle_name": handle.name, "data_sha1": digest}
        case FileHandle():
            found = {"class": "FileStateHandle", "path": handle.path}
        case RelativeHandle():
            at = f"file:{path}/{handle.path}"
            found = {"class": "RelativeFileStateHandle", "relative_path": handle.path, "path": at}
        case SegmentHandle():
            found = {"class": "SegmentFileStateHandle", "path": handle.path, "start": handle.start}
            found |= {"scope": ("EXCLUSIVE", "SHARED")[handle.scope], "logical_file_id": handle.logical_file}
        case EmptySegmentHandle():
            found = {"class": "EmptySegmentFileStateHandle", "path": "empty", "start": 0}
            found |= {"scope": "EXCLUSIVE", "logical_file_id": "DUMMY"}
        case _:
            return None
    return {**found, "size": handle.size}


def folder(case: str) -> Path:
    """Of a snapshot whose rows Flink has said: a name, or a name and a checkpoint."""
    name, _, checkpoint = case.rpartition(".") if ".chk-" in case else (case, "", "")
    inner = next(path for path in (DATA / name).iterdir() if path.is_dir())
    return inner / checkpoint if checkpoint else inner


def opened(path: Path) -> tuple[FlinkStore, int]:
    """A store, and its newest epoch."""
    store = FlinkStore(str(path))
    return store, store.epoch_numbers()[-1]
