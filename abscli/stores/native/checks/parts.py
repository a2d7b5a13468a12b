"""Completeness: the parts of an epoch are those of its tasks, each once, each what it claims to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from abscli.report.findings import Code, Finding
from formats.ids import ends_of, operator_of
from formats.job.expand import task_names
from formats.job.model import Topology
from formats.native import layout
from formats.native.evidence import EpochEvidence
from formats.native.facts import PartFacts
from formats.view import Status


def check_parts(evidence: EpochEvidence) -> Iterator[Finding]:
    """Missing, unknown and double parts. An epoch in progress may lack some."""
    topology, parts = evidence.topology, evidence.parts
    if topology is None or parts is None:
        return
    complete = evidence.manifest is not None
    tasks = dict.fromkeys(task_names(topology))
    counts = Counter(part.task for part in parts)
    unread = {problem.task for problem in evidence.problems}

    def finding(code: Code, task: str, message: str) -> Finding:
        home = evidence.home
        path = layout.tasks_file(evidence.epoch, home) if complete else layout.ack(evidence.epoch, task, home)
        return Finding(code, task, None, path, message)

    if evidence.status is not Status.IN_PROGRESS:
        message = "has no part in the tasks file" if complete else "has not acked"
        for task in tasks:
            if task not in counts and task not in unread:
                yield finding(Code.MISSING_ACK, task, message)
    for task, count in counts.items():
        if task not in tasks:
            yield finding(Code.UNREADABLE, task, "a part of a task that the job graph does not have")
        elif count > 1:
            yield finding(Code.UNREADABLE, task, f"{count} parts of one task")
    for part in parts:
        if part.epoch != evidence.epoch:
            yield finding(Code.UNREADABLE, part.task, f"is of epoch {part.epoch}, not of {evidence.epoch}")
    if evidence.manifest is not None and evidence.manifest.tasks != len(parts):
        message = f"counts {evidence.manifest.tasks} tasks, the tasks file has {len(parts)} parts"
        yield Finding(Code.UNREADABLE, None, None, evidence.outcome, message)


def check_logs(topology: Topology, parts: tuple[PartFacts, ...]) -> Iterator[Finding]:
    """Every log that is claimed is named, and belongs to an input of its task."""
    inputs: dict[str, set[str]] = {op.id: set() for op in topology.operators}
    for edge in topology.edges:
        inputs[edge.target].add(edge.source)
    for part in parts:
        seen: set[str] = set()
        for log in part.logs:
            sender, receiver = ends_of(log.channel)
            path = log.file.path if log.file else None
            if receiver != part.task or operator_of(sender) not in inputs.get(operator_of(part.task), ()):
                message = "logged on a channel that the task does not have"
                yield Finding(Code.MISSING_LOG, part.task, log.channel, path, message)
            elif log.channel in seen:
                yield Finding(Code.UNREADABLE, part.task, log.channel, path, "two logs of one channel")
            if log.records > 0 and log.file is None:
                message = f"{log.records} records are logged, and no file is named that holds them"
                yield Finding(Code.MISSING_LOG, part.task, log.channel, None, message)
            seen.add(log.channel)
