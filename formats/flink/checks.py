"""Everything that reads streams to the end, for `evidence.gather`."""

from __future__ import annotations

from formats.codec.sst import check_sst
from formats.errors import FormatError, UnsupportedVersion
from formats.flink.evidence import StreamCheck
from formats.flink.files.streams import Streams
from formats.flink.metadata.handles import (
    ChangelogHandle,
    Handle,
    IncrementalHandle,
    OperatorState,
    StreamHandle,
    Subtask,
)
from formats.flink.problems import StreamProblem, StreamResult
from formats.ids import TaskId

BUDGET = 256 << 20
"""Bytes of table files whose blocks are checked, up to half a minute's work; what is beyond is said to be unchecked."""


def stream_checks() -> tuple[StreamCheck, ...]:
    """All checks, with a budget of their own: make them anew for each run."""
    from formats.flink.stream_check import check_state

    return (check_state, TableCheck())


class TableCheck:
    """The checksums of the blocks of RocksDB's table files, each file once."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget
        self.seen: set[StreamHandle] = set()

    def __call__(
        self, task: TaskId, operator: OperatorState, subtask: Subtask, field: str, handle: Handle, streams: Streams
    ) -> StreamResult:
        problems: list[StreamProblem] = []
        unchecked: list[tuple[str, str]] = []
        for name, stream in _tables(handle):
            if stream in self.seen:
                continue
            self.seen.add(stream)
            if stream.size > self.left:
                unchecked.append(("unreadable", f"blocks of table files beyond {BUDGET >> 20} MiB"))
                continue
            self.left -= stream.size
            try:
                check_sst(streams.read(stream), streams.name(stream))
            except UnsupportedVersion as error:
                unchecked.append(("unreadable", f"table file {name} {error.message}"))
            except FormatError as error:
                problems.append(StreamProblem("digest-mismatch", task, None, error.path, f"is {name}: {error.message}"))
        return StreamResult(tuple(problems), tuple(unchecked))


def _tables(handle: Handle) -> list[tuple[str, StreamHandle]]:
    if isinstance(handle, ChangelogHandle):
        return [table for part in handle.materialized if part is not None for table in _tables(part)]
    if not isinstance(handle, IncrementalHandle):
        return []
    files = (*handle.shared, *handle.private)
    return [(file.name, file.stream) for file in files if file.stream is not None and file.name.endswith(".sst")]
