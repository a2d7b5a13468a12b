"""Files of file sinks that a job looks for when it starts from a checkpoint: closed and not committed, or under way.

Flink does not check that they exist. If a file to commit is missing, and so is the file that it becomes, its rows are
lost without an error (`LocalRecoverableFsDataOutputStream.LocalCommitter.commitAfterRecovery`, Flink 2.3.0). If a file
under way is missing, the job fails with `FileNotFoundException`.

HDFS and Azure behave alike (`HadoopRecoverableFsDataOutputStream`). In S3 the bytes are parts of a multipart upload,
which no list of objects contains: only the object that it becomes can be looked for. Without the upload the job fails.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Protocol

from formats.errors import FormatError
from formats.flink.connectors import committables, writers
from formats.flink.connectors.committables import PENDING, Committable
from formats.flink.connectors.files import UPLOAD
from formats.flink.files.resolve import plain, search_roots
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, SubtaskId
from formats.flink.metadata.handles import Metadata, Subtask
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.state.operator import raw_elements
from formats.ids import TaskId

MISSING: Final = "sink-part-missing"


class SinkFile(NamedTuple):
    """A file that a checkpoint refers to outside of its own directories.

    path: where its bytes are; None if these are parts of an upload.
    target: the file that it becomes if it is to be committed; None if it is under way.
    size: bytes that it must have at least, if that is stored.
    """

    task: TaskId
    path: str | None
    target: str | None
    size: int | None


class Lookup(Protocol):
    """Look for a file in directories that the user named: whether it would be there, and its bytes if it is."""

    def __call__(self, path: str) -> tuple[bool, int | None]: ...


def check_sink_files(metadata: Metadata, names: Names, streams: Streams, look: Lookup) -> StreamResult:
    """Check that the pending files of file sinks exist, as far as the user named their directories."""
    problems: list[StreamProblem] = []
    unseen: set[str] = set()
    uploads: set[str] = set()
    for file in sink_files(metadata, names, streams):
        if file.path is None:
            if file.target is not None and look(file.target)[1] is None:
                uploads.add(file.target)
            continue
        looked, size = look(file.path)
        if not looked:
            unseen.add(file.path)
            continue
        is_committed = size is None and file.target is not None and look(file.target)[1] is not None
        problem = None if is_committed else _problem(file, size)
        if problem is not None:
            problems.append(StreamProblem(MISSING, file.task, None, file.path, problem))
    unchecked = [
        (MISSING, f"{count} pending files of sinks in {root} were not looked for: --search {root}")
        for root, count in by_root(unseen)
    ] + [
        (MISSING, f"{count} pending files of sinks in {root} are multipart uploads, which abs does not list:"
                  f" {_list(root)}")
        for root, count in by_root(uploads)
    ]  # fmt: skip
    return StreamResult(tuple(problems), tuple(unchecked))


def by_root(paths: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the fewest directories to name with `--search`, each with how many of the files it contains."""
    for root in search_roots(path.rpartition("/")[0] for path in paths):
        yield root, sum(path.startswith(f"{root}/") for path in paths)


def _list(root: str) -> str:
    """Return the command that lists the uploads below a directory. root: of S3."""
    bucket, _, prefix = root.partition("://")[2].partition("/")
    return f"aws s3api list-multipart-uploads --bucket {shlex.quote(bucket)} --prefix {shlex.quote(prefix)}"


def _problem(file: SinkFile, size: int | None) -> str | None:
    """Return what is wrong with a file of this size, None if it does not exist; None if nothing is."""
    if size is not None and (file.size is None or size >= file.size):
        return None
    lacks = "is missing" if size is None else f"has {size} bytes, {file.size} were written"
    if file.target is None:
        return f"the file under way {lacks}: a job that starts from the checkpoint fails"
    rows = "its rows" if file.size is None else f"its rows ({file.size} bytes)"
    return f"the file to commit {lacks}, and {file.target} does not exist: {rows} are lost without an error"


def sink_files(metadata: Metadata, names: Names, streams: Streams) -> Iterator[SinkFile]:
    """Yield the files that file sinks commit, or go on with, when a job starts from the checkpoint."""
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            task = SubtaskId(operator.id, subtask.index).task(names)
            for one in committables.readable(subtask, streams) or ():
                if one.kind == "file" and one.state in PENDING and _has_bytes(one):
                    yield SinkFile(task, _path(str(one.detail)), plain(str(one.name)), one.size)
            for path in _under_way(subtask, streams):
                yield SinkFile(task, _path(path), None, None)


def _path(detail: str) -> str | None:
    return None if detail.startswith(UPLOAD) else plain(detail)


def _has_bytes(one: Committable) -> bool:
    """Tell whether a request has a file to commit; some only remove files that were compacted."""
    return one.name is not None and one.detail is not None and not one.detail.endswith(committables.REMOVED)


def _under_way(subtask: Subtask, streams: Streams) -> Iterator[str]:
    handle = subtask.managed_operator
    if handle is None or handle.stream is None or not {part.name for part in handle.states} & {*writers.STATES}:
        return
    try:
        elements = raw_elements(handle, streams)
        for state in writers.STATES:
            for element in elements.get(state, ()):
                writer = writers.read_writer(element[4:])  # after the length of the array
                if writer.kind == "file" and writer.open is not None:
                    yield writer.open
    except FormatError:  # reported where the state is read
        return
