"""Topology files (YAML or JSON) -> a job graph and what became of operators, or all that is wrong at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from formats.bounds import read_user_file
from formats.job import changes
from formats.job.changes import Changes, read_changes
from formats.job.model import Kind, Operator, Topology
from formats.job.operators import DEFINITIONS, OPERATORS_SCHEMA, Draft, read_operator
from formats.job.rules import OperatorFault, check_graph
from formats.user_file import values as read
from formats.user_file.mistakes import BadFile, Mistake, Mistakes
from formats.user_file.nodes import Mapping, Node, Scalar, Spot, read_nodes
from formats.user_file.values import Schema

__all__ = [
    "MAX_BYTES",
    "MAX_PARALLELISM",
    "SCHEMA",
    "VERSION",
    "BadFile",
    "Job",
    "Mistake",
    "job_of",
    "parse_job",
    "parse_job_bytes",
    "parse_topology",
    "parse_topology_bytes",
]

VERSION = 1
MAX_PARALLELISM = 128
MAX_BYTES = 64 * 2**20

KEYS: Schema = {
    "version": {"const": VERSION},
    "job": read.string.reference(),
    "parallelism": read.positive.reference("Default of every operator; 1 if left out."),
    "max_parallelism": read.positive.reference(f"How many key groups; {MAX_PARALLELISM} if left out."),
    "operators": OPERATORS_SCHEMA,
    **changes.KEYS,
}
SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "topology-file.json",
    "title": "A topology file",
    "description": "A job graph as a user writes it, in YAML or JSON. What holds between operators (inputs that exist, "
    "keys that agree, parallelisms that fit, a way for every barrier) is beyond this schema; `abs topology` checks it.",
    "type": "object",
    "required": ["version", "job", "operators"],
    "properties": KEYS,
    "additionalProperties": False,
    "$defs": DEFINITIONS,
}
"""The JSON Schema of a topology file, from the shapes that read it."""

Check = Callable[[Topology], Iterable[OperatorFault]]
"""What else must hold of a topology, such as that it can be run. It is asked also where the file has mistakes of its
own, of the operators and edges that are whole, so that everything is said at once."""


class Job(NamedTuple):
    """What a topology file says. changes: of operators since the last run."""

    topology: Topology
    changes: Changes


def parse_job(path: str | os.PathLike[str], check: Check | None = None) -> Job:
    """The job in the file `path`; check: mistakes beyond those of the file itself.

    Raises BadFile with every mistake, UnsupportedVersion, and FormatError for a file that is missing or cannot
    be read (not NotFound: that speaks of stores and epochs).
    """
    name = os.fspath(path)
    data = read_user_file(name, MAX_BYTES, hint="give a topology file, YAML or JSON")
    return parse_job_bytes(data, name, check)


def parse_topology(path: str | os.PathLike[str], check: Check | None = None) -> Topology:
    """The job graph alone; see `parse_job`."""
    return parse_job(path, check).topology


def parse_topology_bytes(data: bytes, name: str, check: Check | None = None) -> Topology:
    """The job graph that `data` holds; name: of the file, for messages. The rest is as of `parse_job`."""
    return parse_job_bytes(data, name, check).topology


def parse_job_bytes(data: bytes, name: str, check: Check | None = None) -> Job:
    """The job that `data` holds; name: of the file, for messages. The rest is as of `parse_job`."""
    mistakes = Mistakes(name)
    if len(data) > MAX_BYTES:
        mistakes.fatal(Spot(1, 1), f"more than {MAX_BYTES} bytes, too many for a topology")
    return job_of(read_nodes(data, mistakes), mistakes, check)


def job_of(root: Node | None, mistakes: Mistakes, check: Check | None = None) -> Job:
    """The job that a tree of nodes says, wherever it comes from; mistakes: found in it so far. The rest is as of
    `parse_job`."""
    if not isinstance(root, Mapping):
        content = read.describe(root) if root and not (isinstance(root, Scalar) and root.value is None) else "nothing"
        mistakes.fatal(root or Spot(1, 1), f"a topology must be a mapping, not {content}", "begin with version: 1")
    read.check_version(root, VERSION, "topology", mistakes)
    read.only(root, tuple(KEYS), "topology", mistakes)
    job = _required(root, "job", mistakes)
    job_name = read.string.read(job, "job", mistakes) if job else None
    drafts = _read_operators(root, mistakes)
    at = root.pairs["operators"][0] if "operators" in root.pairs else root
    edges = check_graph(drafts, at, mistakes) if drafts else ()
    lines = read_changes(root, drafts, mistakes)
    if check is not None:
        whole = {id: draft for id, draft in drafts.items() if _is_whole(draft)}
        between = tuple(edge for edge in edges if edge.source in whole and edge.target in whole)
        for fault in check(Topology(job_name or "", tuple(map(_operator, whole.values())), between, VERSION)):
            mistakes.add(drafts[fault.operator].place(fault.keys), fault.message, fault.hint)
    mistakes.raise_any()
    return Job(Topology(job_name or "", tuple(map(_operator, drafts.values())), edges, VERSION), lines)


def _required(root: Mapping, key: str, mistakes: Mistakes) -> Node | None:
    if key in root.pairs:
        return root.pairs[key][1]
    mistakes.add(root, f"topology: {key} is missing", mistakes.near(key, [k for k in root.pairs if k not in KEYS]))
    return None


def _read_operators(root: Mapping, mistakes: Mistakes) -> dict[str, Draft]:
    """Drafts by id in declared order, with parallelism checked."""
    defaults: dict[str, int | None] = {"parallelism": 1, "max_parallelism": MAX_PARALLELISM}
    for name in defaults.keys() & root.pairs.keys():
        defaults[name] = read.positive.read(root.pairs[name][1], name, mistakes)
    parallelism, max_parallelism = defaults.values()
    if parallelism is not None and max_parallelism is not None and parallelism > max_parallelism:
        mistakes.add(root.pairs["parallelism"][1], *_too_many("parallelism", parallelism, max_parallelism))
    node = _required(root, "operators", mistakes)
    operators = read.mapping(node, "operators", mistakes) if node else None
    if operators is None:
        return {}
    if not operators.pairs:
        mistakes.add(operators, "operators is empty: a job has at least a source")
    drafts: dict[str, Draft] = {}
    for key, value in operators.pairs.values():
        draft = drafts[key.text] = read_operator(key, value, parallelism, max_parallelism, mistakes)
        own = [mark for mark in ("parallelism", "max_parallelism") if draft.entry and mark in draft.entry.pairs]
        if own and draft.parallelism and draft.max_parallelism and draft.parallelism > draft.max_parallelism:
            name = f"operator {draft.id}: parallelism"
            mistakes.add(draft.place((own[0],)), *_too_many(name, draft.parallelism, draft.max_parallelism))
    return drafts


def _too_many(name: str, parallelism: int, limit: int) -> tuple[str, str]:
    return f"{name} {parallelism} is above max_parallelism {limit}", f"set max_parallelism to {parallelism} or more"


def _is_whole(draft: Draft) -> bool:
    """Whether an operator can be made of it, though it may have mistakes."""
    needed = (draft.kind, draft.parallelism, draft.max_parallelism, draft.key)
    broken = draft.inputs_broken or draft.outputs_broken or draft.join_broken
    lacks_table = draft.kind is Kind.LOOKUP and draft.lookup is None
    lacks_connector = draft.kind in (Kind.SOURCE, Kind.SINK) and draft.connector is None
    return all(value is not None for value in needed) and not broken and not lacks_table and not lacks_connector


def _operator(draft: Draft) -> Operator:
    """A draft without mistakes is whole."""
    assert draft.kind is not None
    assert draft.parallelism is not None
    assert draft.max_parallelism is not None
    assert draft.key is not None
    return Operator(
        id=draft.id,
        kind=draft.kind,
        parallelism=draft.parallelism,
        max_parallelism=draft.max_parallelism,
        function=draft.function,
        key=draft.key,
        aggregates=draft.aggregates,
        emit=draft.emit,
        connector=draft.connector,
        deterministic=draft.deterministic,
        ordered_output=draft.ordered_output,
        window=draft.window or msgspec.UNSET,
        ttl=draft.ttl or msgspec.UNSET,
        join=draft.join or msgspec.UNSET,
        lookup=draft.lookup or msgspec.UNSET,
        on_error=draft.on_error,
        keeping=draft.keeping or msgspec.UNSET,
    )
