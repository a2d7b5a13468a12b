"""Topology files (YAML or JSON) -> `formats.job.model.Topology`, or all that is wrong with one at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from formats.bounds import read_user_file
from formats.errors import UnsupportedVersion
from formats.job import values as read
from formats.job.errors import Findings, OperatorFault, TopologyError, TopologyErrors
from formats.job.model import Operator, Topology
from formats.job.nodes import Mapping, Node, Scalar, Spot, read_nodes
from formats.job.operators import DEFINITIONS, OPERATORS_SCHEMA, Draft, read_operator
from formats.job.rules import check_graph
from formats.job.values import Schema

__all__ = [
    "MAX_BYTES", "SCHEMA", "VERSION", "TopologyError", "TopologyErrors", "parse_topology", "parse_topology_bytes",
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
"""What else must hold of a topology, such as that it can be run. It is asked also where the file has findings of its
own, of the operators and edges that are whole, so that everything is said at once."""


def parse_topology(path: str | os.PathLike[str], check: Check | None = None) -> Topology:
    """The topology in the file `path`; check: findings beyond those of the file itself.

    Raises TopologyErrors with every finding, UnsupportedVersion, and FormatError for a file that is missing or cannot
    be read (not NotFound: that speaks of stores and epochs).
    """
    name = os.fspath(path)
    data = read_user_file(name, MAX_BYTES, hint="give a topology file, YAML or JSON")
    return parse_topology_bytes(data, name, check)


def parse_topology_bytes(data: bytes, name: str, check: Check | None = None) -> Topology:
    """The topology that `data` holds; name: of the file, for messages. The rest is as of `parse_topology`."""
    findings = Findings(name)
    if len(data) > MAX_BYTES:
        findings.fatal(Spot(1, 1), f"more than {MAX_BYTES} bytes, too many for a topology")
    root = read_nodes(data, findings)
    if not isinstance(root, Mapping):
        content = read.describe(root) if root and not (isinstance(root, Scalar) and root.value is None) else "nothing"
        findings.fatal(root or Spot(1, 1), f"a topology must be a mapping, not {content}", "begin with version: 1")
    _check_version(root, findings)
    read.only(root, tuple(KEYS), "topology", findings)
    job = _required(root, "job", findings)
    job_name = read.string.read(job, "job", findings) if job else None
    drafts = _read_operators(root, findings)
    at = root.pairs["operators"][0] if "operators" in root.pairs else root
    edges = check_graph(drafts, at, findings) if drafts else ()
    if check is not None:
        whole = {id: draft for id, draft in drafts.items() if _is_whole(draft)}
        between = tuple(edge for edge in edges if edge.source in whole and edge.target in whole)
        for fault in check(Topology(job_name or "", tuple(map(_operator, whole.values())), between, VERSION)):
            findings.add(drafts[fault.operator].place(fault.keys), fault.message, fault.hint)
    findings.raise_any()
    return Topology(job_name or "", tuple(map(_operator, drafts.values())), edges, VERSION)


def _required(root: Mapping, key: str, findings: Findings) -> Node | None:
    if key in root.pairs:
        return root.pairs[key][1]
    findings.add(root, f"topology: {key} is missing", findings.near(key, [k for k in root.pairs if k not in KEYS]))
    return None


def _check_version(root: Mapping, findings: Findings) -> None:
    if "version" not in root.pairs:
        findings.add(root, "topology: version is missing", f"add version: {VERSION}")
        return
    node = root.pairs["version"][1]
    version = read.integer(node, "version", findings)
    if version is not None and version > VERSION:
        raise UnsupportedVersion(
            f"topology version {version}; this program reads version {VERSION}",
            path=f"{findings.file}:{node.line}:{node.column}",
            hint="upgrade abs",
        )
    if version is not None and version < VERSION:
        findings.add(node, f"version must be {VERSION}, not {version}")


def _read_operators(root: Mapping, findings: Findings) -> dict[str, Draft]:
    """Drafts by id in declared order, with parallelism checked."""
    defaults: dict[str, int | None] = {"parallelism": 1, "max_parallelism": MAX_PARALLELISM}
    for name in defaults.keys() & root.pairs.keys():
        defaults[name] = read.positive.read(root.pairs[name][1], name, findings)
    parallelism, max_parallelism = defaults.values()
    if parallelism is not None and max_parallelism is not None and parallelism > max_parallelism:
        findings.add(root.pairs["parallelism"][1], *_too_many("parallelism", parallelism, max_parallelism))
    node = _required(root, "operators", findings)
    operators = read.mapping(node, "operators", findings) if node else None
    if operators is None:
        return {}
    if not operators.pairs:
        findings.add(operators, "operators is empty: a job has at least a source")
    drafts: dict[str, Draft] = {}
    for key, value in operators.pairs.values():
        draft = drafts[key.text] = read_operator(key, value, parallelism, max_parallelism, findings)
        own = [mark for mark in ("parallelism", "max_parallelism") if draft.entry and mark in draft.entry.pairs]
        if own and draft.parallelism and draft.max_parallelism and draft.parallelism > draft.max_parallelism:
            name = f"operator {draft.id}: parallelism"
            findings.add(draft.place((own[0],)), *_too_many(name, draft.parallelism, draft.max_parallelism))
    return drafts


def _too_many(name: str, parallelism: int, limit: int) -> tuple[str, str]:
    return f"{name} {parallelism} is above max_parallelism {limit}", f"set max_parallelism to {parallelism} or more"


def _is_whole(draft: Draft) -> bool:
    """Whether an operator can be made of it, though it may have findings."""
    needed = (draft.kind, draft.parallelism, draft.max_parallelism, draft.key)
    return all(value is not None for value in needed) and not draft.inputs_broken and not draft.outputs_broken


def _operator(draft: Draft) -> Operator:
    """A draft without findings is whole."""
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
        emit=draft.emit.value if draft.emit else None,
        connector=draft.connector,
        deterministic=draft.deterministic,
        ordered_output=draft.ordered_output,
    )
