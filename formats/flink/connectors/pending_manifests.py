"""Manifests that Iceberg reads when a job starts from a checkpoint: those whose commit the table does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from formats.errors import FormatError
from formats.flink.connectors import committables, iceberg
from formats.flink.connectors.iceberg import Commit, Tables
from formats.flink.connectors.pending_files import MISSING, by_root
from formats.flink.files.resolve import plain
from formats.flink.files.streams import Streams
from formats.flink.ids import Names, SubtaskId
from formats.flink.metadata.handles import Metadata, OperatorState, Subtask
from formats.flink.problems import StreamProblem, StreamResult
from formats.flink.state.operator import raw_elements
from formats.ids import TaskId


def check_manifests(metadata: Metadata, names: Names, streams: Streams, tables: Tables) -> StreamResult:
    """Check that the manifests of pending commits exist, as far as the user named the directories of the tables."""
    checker = _Checker(tables)
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for commit in pending_commits(operator, subtask, streams):
                checker.check(SubtaskId(operator.id, subtask.index).task(names), commit)
    return StreamResult(tuple(checker.problems), tuple(checker.unchecked()))


class _Checker:
    """Check commits one after the other.

    unseen: manifests that were not looked for. unknown: missing ones of a table whose metadata was not found.
    """

    def __init__(self, tables: Tables) -> None:
        self.problems: list[StreamProblem] = []
        self._tables = tables
        self._read: dict[str, list[iceberg.Table]] = {}
        self._unseen: set[str] = set()
        self._unknown: set[str] = set()

    def check(self, task: TaskId, commit: Commit) -> None:
        for manifest in commit.manifests:
            path = plain(manifest.path)
            looked, size = self._tables.look_for(path)
            if not looked:
                self._unseen.add(path)
            elif size is None or size < manifest.size:
                last = self._last_checkpoint(path.rpartition("/")[0], commit)
                if last is None:
                    self._unknown.add(path)
                elif last < commit.checkpoint:
                    message = _message(commit, size, manifest.size, last)
                    self.problems.append(StreamProblem(MISSING, task, None, path, message))

    def _last_checkpoint(self, directory: str, commit: Commit) -> int | None:
        """Return the last checkpoint that the table has; None if its metadata is not in the directory."""
        if directory not in self._read:
            self._read[directory] = iceberg.read_tables(self._tables, directory)
        tables = self._read[directory]
        return max((iceberg.last_checkpoint(table, commit.job, commit.operator) for table in tables), default=None)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield why manifests could not be checked, as codes with reasons."""
        for root, count in by_root(self._unseen):
            yield MISSING, f"{count} manifests of Iceberg commits in {root} were not looked for: --search {root}"
        for root, count in by_root(self._unknown):
            yield MISSING, (
                f"{count} manifests of Iceberg commits in {root} do not exist, and neither does metadata of the table,"
                " which tells whether they were committed"
            )


def _message(commit: Commit, size: int | None, wanted: int, last: int) -> str:
    lacks = "is missing" if size is None else f"has {size} bytes, {wanted} were written"
    until = f"commits of job {commit.job} up to checkpoint {last}" if last >= 0 else f"no commit of job {commit.job}"
    return (
        f"the manifest of the commit of checkpoint {commit.checkpoint} {lacks}, and the table has {until}: a job that"
        " starts from the checkpoint fails"
    )


def pending_commits(operator: OperatorState, subtask: Subtask, streams: Streams) -> list[Commit]:
    """Return the commits that an Iceberg committer makes when a job starts; none if they cannot be read, which is
    reported where the state is read."""
    try:
        return list(_pending_commits(operator, subtask, streams))
    except FormatError:
        return []


def _pending_commits(operator: OperatorState, subtask: Subtask, streams: Streams) -> Iterator[Commit]:
    handle = subtask.managed_operator
    names: Final = {part.name for part in handle.states} if handle is not None else set()
    if handle is None or handle.stream is None:
        return
    if committables.STATE in names:
        for element in committables.elements_of(committables.STATE, handle, streams):
            for one in committables.requests(element):
                commit = iceberg.known_commit(one.version, one.body)
                if commit is not None and one.state in committables.PENDING:
                    yield commit
    if iceberg.STATE in names:
        elements = raw_elements(handle, streams)
        job = next(map(iceberg.read_job, elements.get(iceberg.JOB, ())), None)
        for stored in elements[iceberg.STATE]:
            yield from iceberg.read_commits(stored, job or "", operator.id)
