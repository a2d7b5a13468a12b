"""A job in Python as the tree of nodes that its YAML would be read to: one reader says what holds, and of both."""

from __future__ import annotations

from collections.abc import Mapping as Map
from typing import Any

from abscli.jobs.drafts import DraftOperator, Drafts, Input
from abscli.jobs.lines import Line, refused
from formats.job.file import VERSION, Check, Job, job_of
from formats.user_file.mistakes import Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Sequence


def read_drafts(drafts: Drafts, check: Check | None = None) -> Job:
    """The job; BadFile with every mistake, each at its line of the Python file. check: as of `parse_job`."""
    mistakes = Mistakes(drafts.line.file)
    for line, message, hint in drafts.faults():
        mistakes.add(_place(line, drafts), message, hint)
    return job_of(_tree(drafts, mistakes), mistakes, check)


def _place(line: Line, drafts: Drafts) -> Line:
    """Mistakes of a job are told in its own file: what another one says of it counts as where it begins."""
    return line if line.file == drafts.line.file else drafts.line


def _tree(drafts: Drafts, mistakes: Mistakes) -> Mapping:
    top = drafts.line
    pairs: dict[str, tuple[Scalar, Node]] = {}

    def put(key: str, node: Node) -> None:
        pairs[key] = _scalar(key, top), node

    put("version", _scalar(VERSION, top))
    put("job", node_of(drafts.name, top))
    for key, value in drafts.marks.items():
        put(key, node_of(value, top))
    if drafts.moved:
        moves = [node_of({"from": before, "to": after}, _place(line, drafts)) for line, before, after in drafts.moved]
        put("moved", Sequence(moves, top.line, top.column))
    if drafts.removed:
        ids = [node_of(id, _place(line, drafts)) for line, id in drafts.removed]
        put("removed", Sequence(ids, top.line, top.column))
    operators = {}
    for operator in drafts.operators.values():
        line = _place(operator.line, drafts)
        operators[operator.id] = _scalar(operator.id, line), node_of(_entry(operator, drafts, mistakes), line)
    put("operators", Mapping(operators, top.line, top.column))
    return Mapping(pairs, top.line, top.column)


def _entry(operator: DraftOperator, drafts: Drafts, mistakes: Mistakes) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for given in drafts.inputs_of(operator):
        if str(given.source) in inputs:
            message = f"operator {operator.id} reads {given.source} twice"
            mistakes.add(_place(operator.line, drafts), message, "read it once")
        inputs[str(given.source)] = _options(given)
    return {**({"from": inputs} if inputs else {}), operator.kind.value: operator.work, **operator.marks}


def _options(given: Input) -> dict[str, Any]:
    return {
        **({"partition": given.partition.value} if given.partition is not None else {}),
        **({"key": given.key} if given.key is not None else {}),
        **({"replayable": True} if given.replayable else {}),
        **({"output": given.output} if given.output is not None else {}),
    }


def node_of(value: object, line: Line) -> Node:
    """The node of a plain value, all of it at one line; BadFile for what no job file can say."""
    if isinstance(value, Map):
        pairs = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise refused(line, f"{key!r} is not a name: a job file has text there")
            pairs[key] = _scalar(key, line), node_of(inner, line)
        return Mapping(pairs, line.line, line.column)
    if isinstance(value, list | tuple):
        return Sequence([node_of(inner, line) for inner in value], line.line, line.column)
    if value is None or isinstance(value, str | bool | int | float):
        return _scalar(value, line)
    raise refused(line, f"{value!r} is nothing that a job file can say", "give text, a number, a list or a mapping")


def _scalar(value: str | int | float | bool | None, line: Line) -> Scalar:
    return Scalar("" if value is None else str(value), value, False, line.line, line.column)
