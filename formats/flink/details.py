"""One checkpoint of Flink as the view has it: operators with their tasks, files and positions, and channels."""

from __future__ import annotations

from formats.errors import FormatError
from formats.flink import channels, facts
from formats.flink.connectors import splits
from formats.flink.files.folders import FolderStreams
from formats.flink.ids import Names, SubtaskId
from formats.flink.metadata.handles import (
    FileHandle,
    Metadata,
    OperatorState,
    RelativeHandle,
    SegmentHandle,
    Subtask,
    handles,
    streams,
)
from formats.ids import TaskId
from formats.view import (
    ChannelFacts,
    ChannelTable,
    EpochDetail,
    EpochFacts,
    FileFacts,
    OperatorFacts,
    Position,
    TaskFacts,
)


def detail(row: EpochFacts, metadata: Metadata, names: Names, at: FolderStreams) -> EpochDetail:
    """Everything about an epoch that was completed."""
    in_flight = _in_flight(metadata, at)
    waiting: dict[SubtaskId, int | None] = {}
    for channel in in_flight or ():
        if channel.receiver is not None:
            so_far = waiting.get(channel.receiver, 0)
            countable = so_far is not None and channel.records is not None
            waiting[channel.receiver] = (so_far or 0) + (channel.records or 0) if countable else None
    operators = tuple(
        OperatorFacts(
            id=names[operator.id],
            name=operator.name,
            parallelism=operator.parallelism,
            bytes=facts.operator_size(operator),
            rows=None,
            tasks=tuple(
                _task(at, (own := SubtaskId(operator.id, subtask.index)).task(names), subtask, waiting.get(own))
                for subtask in _subtasks(operator)
            ),
        )
        for operator in metadata.operators
    )
    logs = [(channel.id(names), channel.records) for channel in in_flight or ()]
    policy = "unaligned" if channels.has_channels(metadata) else None
    return EpochDetail(row, operators, ChannelTable(ChannelFacts(id, None, None, n) for id, n in logs), policy)


def _task(at: FolderStreams, task: TaskId, subtask: Subtask, waiting: int | None) -> TaskFacts:
    sizes: dict[str, int] = {}
    seen = set()
    for _, handle in handles(subtask):
        for stream in streams(handle):
            if isinstance(stream, FileHandle | RelativeHandle | SegmentHandle) and stream not in seen:
                seen.add(stream)
                sizes[at.name(stream)] = sizes.get(at.name(stream), 0) + stream.size
    source_splits = splits.readable(subtask, at)
    position = None
    if source_splits is not None:
        position = tuple(
            Position(split.id or "?", split.next if split.position is None else None, None, split.position)
            for split in source_splits
        )
    return TaskFacts(
        task=task,
        files=tuple(FileFacts(path, size, None, None) for path, size in sizes.items()),
        log_records=waiting,
        position=position,
        alignment=None,
        sync=None,
        finished=True if subtask.finished else None,
    )


def _in_flight(metadata: Metadata, at: FolderStreams) -> list[channels.Channel] | None:
    """None where channel state cannot be read, or is too much to be read for a look."""
    if channels.channel_bytes(metadata) > channels.MOST:
        return None
    try:
        return channels.in_flight(metadata, at)
    except FormatError:
        return None


def _subtasks(operator: OperatorState) -> list[Subtask]:
    """In order; of an operator that had ended as a whole, all of them."""
    if operator.finished:
        return [Subtask(i, True) for i in range(operator.parallelism)]
    return sorted(operator.subtasks, key=lambda subtask: subtask.index)
