"""Files: present, of the size, digest and rows that were written, with keys where their task's are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from abscli.report.findings import Code, Finding
from formats.ids import ChannelId, TaskId
from formats.job.expand import tasks
from formats.job.model import Topology, key_group_range
from formats.native.evidence import EpochEvidence
from formats.native.facts import RowGroupFacts, StateFileFacts, staged_by
from formats.native.probe import KEYS, FileProbe
from formats.native.state.references import rows_in_reach
from formats.view import FileFacts


def check_files(evidence: EpochEvidence) -> Iterator[Finding]:
    """Every file that the epoch refers to, in the order of the manifest: its own facts, then part by part."""
    slices = _slices(evidence.topology) if evidence.topology else {}
    for file in evidence.files:
        yield from _file(file, evidence.probes[file.path], None, None)
    for part in evidence.parts or ():
        for file in part.state:
            probe = evidence.probes[file.path]
            yield from _file(file, probe, part.task, None)
            yield from _row_groups(file, probe, part.task)
            yield from _keys(file, part.task, slices.get(part.task), probe)
        for log in part.logs:
            if log.file is not None:
                yield from _file(log.file, evidence.probes[log.file.path], part.task, log.channel)
                if log.file.rows != log.records:
                    message = f"{log.records} records are logged, the file is said to have {log.file.rows}"
                    yield Finding(Code.ROW_MISMATCH, part.task, log.channel, log.file.path, message)
        for staged in staged_by(part):
            yield from _file(staged, evidence.probes[staged.path], part.task, None)
        rows = sum(rows_in_reach(file) for file in part.state)
        if part.rows is not None and part.rows > rows:
            message = f"{part.rows} live keys, and the state files have {rows} rows together"
            yield Finding(Code.ROW_MISMATCH, part.task, None, part.state[0].path if part.state else None, message)


def _file(file: FileFacts, probe: FileProbe, task: TaskId | None, channel: ChannelId | None) -> Iterator[Finding]:
    def finding(code: Code, message: str) -> Finding:
        return Finding(code, task, channel, file.path, message)

    if probe.error is not None:
        yield finding(Code.UNREADABLE, probe.error)
    elif probe.size is None:
        graph = file.path.startswith("topologies/")
        message = "the job graph that the epoch was taken of is not there" if graph else "is not there"
        yield finding(Code.TOPOLOGY_MISSING if graph else Code.MISSING_FILE, message)
    elif file.bytes is not None and probe.size != file.bytes:
        yield finding(Code.SIZE_MISMATCH, f"has {probe.size} bytes, {file.bytes} were written")
    elif probe.sha256 is not None and probe.sha256 != file.sha256:
        written = (file.sha256 or "unknown")[:12]
        place = "".join(f"; {where} is damaged" for where, _, _ in islice(_broken(file, probe), 1))
        yield finding(Code.DIGEST_MISMATCH, f"has SHA-256 {probe.sha256[:12]}…, {written}… was written{place}")
    elif probe.rows is not None and probe.rows != file.rows:
        yield finding(Code.ROW_MISMATCH, f"has {probe.rows} rows, {file.rows} were written")


def _row_groups(file: StateFileFacts, probe: FileProbe, task: TaskId) -> Iterator[Finding]:
    """Each row group that the part names is what the facts say: who reads a part of the file relies on that."""
    if probe.row_groups is None:
        return  # the file itself is not what was written, of which `_file` speaks

    def finding(code: Code, message: str) -> Finding:
        return Finding(code, task, None, file.path, message)

    for where, actual, written in _broken(file, probe):
        yield finding(Code.DIGEST_MISMATCH, f"{where} has SHA-256 {actual[:12]}…, the facts say {written[:12]}…")
    for group in file.row_groups:
        content = probe.row_groups.get(group.offset)
        if content is None:
            yield finding(Code.UNREADABLE, f"{_named(group)} is none: the footer has no row group there")
        elif content[:2] != (group.first, group.last):
            yield finding(Code.MISPLACED_KEY, f"{_named(group)} holds key groups {content[0]} to {content[1]}")
        elif content[2] != group.rows:
            yield finding(Code.ROW_MISMATCH, f"{_named(group)} has {content[2]} rows, {group.rows} were written")


def _broken(file: FileFacts, probe: FileProbe) -> Iterator[tuple[str, str, str]]:
    """Row groups, or the footer, that do not have the digest of the facts: which, the digest it has, the one it
    should have."""
    if not isinstance(file, StateFileFacts):
        return
    for group in file.row_groups:
        sha256 = probe.slices.get((group.offset, group.bytes))
        if sha256 is not None and sha256 != group.sha256:
            yield _named(group), sha256, group.sha256
    if file.bytes is not None:
        sha256 = probe.slices.get((file.footer.offset, file.bytes - file.footer.offset))
        if sha256 is not None and sha256 != file.footer.sha256:
            yield "the footer", sha256, file.footer.sha256


def _named(group: RowGroupFacts) -> str:
    return f"the row group of key groups {group.first} to {group.last} at byte {group.offset}"


def _keys(file: StateFileFacts, task: TaskId, own: range | None, probe: FileProbe) -> Iterator[Finding]:
    """Key groups lie in the task's slice, and keys in the group of their hash. Of a file that the task has by key group
    only these have to be its own."""
    if probe.strays:
        message = f"{probe.strays} of the {min(probe.rows or 0, KEYS)} keys that were hashed stand in another key group"
        yield Finding(Code.MISPLACED_KEY, task, None, probe.path, message)
    groups = file.key_groups or probe.key_groups
    if own is None or groups is None:
        return
    low, high = groups
    if low not in own or high not in own:
        verb = "holds" if file.key_groups is None else "is referred to for"
        message = f"{verb} key groups {low} to {high}, the task's are {own.start} to {own.stop - 1}"
        yield Finding(Code.MISPLACED_KEY, task, None, probe.path, message)


def _slices(topology: Topology) -> dict[TaskId, range]:
    return {
        TaskId(operator.id, index): key_group_range(index, operator.parallelism, operator.max_parallelism)
        for operator, index in tasks(topology)
    }
