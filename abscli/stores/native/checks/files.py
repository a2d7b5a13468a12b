"""Files: present, of the size, digest and rows that were written, with keys where their task's are."""

from __future__ import annotations

from collections.abc import Iterator

from abscli.report.findings import Code, Finding
from formats.ids import task_name
from formats.job.expand import tasks
from formats.job.model import Topology, key_group_range
from formats.native.evidence import EpochEvidence
from formats.native.probe import KEYS, FileProbe
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
            yield from _keys(part.task, slices.get(part.task), probe)
        for log in part.logs:
            if log.file is not None:
                yield from _file(log.file, evidence.probes[log.file.path], part.task, log.channel)
                if log.file.rows != log.records:
                    message = f"{log.records} records are logged, the file is said to have {log.file.rows}"
                    yield Finding(Code.ROW_MISMATCH, part.task, log.channel, log.file.path, message)
        rows = sum(file.rows or 0 for file in part.state)
        if part.rows > rows:
            message = f"{part.rows} live keys, and the state files have {rows} rows together"
            yield Finding(Code.ROW_MISMATCH, part.task, None, part.state[0].path if part.state else None, message)


def _file(file: FileFacts, probe: FileProbe, task: str | None, channel: str | None) -> Iterator[Finding]:
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
        yield finding(Code.DIGEST_MISMATCH, f"has SHA-256 {probe.sha256[:12]}…, {written}… was written")
    elif probe.rows is not None and probe.rows != file.rows:
        yield finding(Code.ROW_MISMATCH, f"has {probe.rows} rows, {file.rows} were written")


def _keys(task: str, own: range | None, probe: FileProbe) -> Iterator[Finding]:
    """Key groups lie in the task's slice, and keys in the group of their hash."""
    if probe.strays:
        message = f"{probe.strays} of the {min(probe.rows or 0, KEYS)} keys that were hashed stand in another key group"
        yield Finding(Code.MISPLACED_KEY, task, None, probe.path, message)
    if own is None or probe.key_groups is None:
        return
    low, high = probe.key_groups
    if low not in own or high not in own:
        message = f"holds key groups {low} to {high}, the task's are {own.start} to {own.stop - 1}"
        yield Finding(Code.MISPLACED_KEY, task, None, probe.path, message)


def _slices(topology: Topology) -> dict[str, range]:
    return {
        task_name(operator.id, index): key_group_range(index, operator.parallelism, operator.max_parallelism)
        for operator, index in tasks(topology)
    }
