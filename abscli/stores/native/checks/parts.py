"""Completeness: the parts of an epoch are those of its tasks, each once, each what it claims to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from abscli.report.findings import Code, Finding
from formats.ids import ChannelId, TaskId
from formats.job.expand import task_ids
from formats.job.following import is_by_arrival, step_number
from formats.job.model import Topology
from formats.native import layout
from formats.native.evidence import EpochEvidence
from formats.native.facts import PartFacts
from formats.native.schedules import COPIED, RECORDS, TakenStep, read_steps
from formats.view import Status


def check_parts(evidence: EpochEvidence) -> Iterator[Finding]:
    """Missing, unknown and double parts. An epoch in progress may lack some."""
    topology, parts = evidence.topology, evidence.parts
    if topology is None or parts is None:
        return
    complete = evidence.manifest is not None
    tasks = dict.fromkeys(task_ids(topology))
    counts = Counter(part.task for part in parts)
    unread = {problem.task for problem in evidence.problems}

    def finding(code: Code, task: TaskId, message: str) -> Finding:
        home = evidence.home
        path = layout.tasks_file(evidence.epoch, home) if complete else layout.ack(evidence.epoch, str(task), home)
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
        seen: set[ChannelId] = set()
        for log in part.logs:
            channel = log.channel
            path = log.file.path if log.file else None
            if channel.receiver != part.task or channel.sender.operator not in inputs.get(part.operator, ()):
                message = "logged on a channel that the task does not have"
                yield Finding(Code.MISSING_LOG, part.task, channel, path, message)
            elif channel in seen:
                yield Finding(Code.UNREADABLE, part.task, channel, path, "two logs for the same channel")
            if log.records > 0 and log.file is None:
                message = f"{log.records} records are logged, and no file is named that holds them"
                yield Finding(Code.MISSING_LOG, part.task, channel, None, message)
            seen.add(channel)


def check_schedules(topology: Topology, parts: tuple[PartFacts, ...], path: str | None) -> Iterator[Finding]:
    """Every schedule can be read, takes from inputs that its task has, and ends with the copy of its epoch."""
    operators = {op.id: op for op in topology.operators}
    for part in parts:
        if part.schedule is None or part.operator not in operators:
            continue
        senders = [operators[edge.source].parallelism for edge in topology.edges if edge.target == part.operator]
        # A forward edge has one channel; the splits of a source are not numbered, but by their names where files come.
        most = sum(senders) or 1
        splits, last = set[int](), None
        try:
            if is_by_arrival(operator := operators[part.operator]):
                splits = {step_number(operator, position.split) for position in part.positions or ()}
            for step, _ in read_steps(part.schedule.steps):
                if splits and step.kind == RECORDS:
                    if step.channel not in splits:
                        raise ValueError(f"a determinant refers to split number {step.channel}, which the task does "
                            "not have")
                elif step.channel >= most:
                    raise ValueError(f"a determinant refers to input {step.channel}, but the inputs are 0 to "
                        f"{most - 1}")
                last = step
            if last != TakenStep(COPIED, 0, part.epoch):
                raise ValueError(f"the last determinant is not the state snapshot of epoch {part.epoch}")
        except ValueError as error:
            yield Finding(Code.UNREADABLE, part.task, None, path, f"its determinant log: {error}")
