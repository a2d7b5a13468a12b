"""Stores changed as a stranger who knows the format could: what is changed is sealed again, and named anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.native import layout
from formats.native.facts import SEAL, digest


def sealed(facts: dict[str, Any]) -> bytes:
    """A fact file that holds these members."""
    body = json.dumps({name: value for name, value in facts.items() if name != "sha256"}).encode()[:-1]
    return body + SEAL + digest(body).encode() + b'"}\n'


def change(file: Path, changes: Callable[[dict[str, Any]], object]) -> None:
    """Change one fact file."""
    facts = json.loads(file.read_bytes())
    changes(facts)
    file.write_bytes(sealed(facts))


def change_tasks(store: Path, epoch: int, changes: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the parts of a complete epoch; its manifest names the tasks file that this makes."""
    tasks = store / layout.tasks_file(epoch)
    change(tasks, lambda facts: changes(facts["parts"]))
    point_at_tasks(store, epoch)


def point_at_tasks(store: Path, epoch: int) -> None:
    """Let the manifest name the tasks file as it is now."""
    data = (store / layout.tasks_file(epoch)).read_bytes()
    named = {"bytes": len(data), "sha256": digest(data)}
    change(store / layout.manifest(epoch), lambda facts: facts["tasks_file"].update(named))


def change_graph(store: Path, changes: Callable[[dict[str, Any]], object]) -> str:
    """Change the job graph, under the digest that it then has, and let every fact file name that one."""
    (old,) = (store / "topologies").iterdir()
    graph = json.loads(old.read_bytes())
    changes(graph)
    data = json.dumps(graph, sort_keys=True, separators=(",", ":")).encode()
    new = digest(data)
    (store / layout.topology(new)).write_bytes(data)
    old.unlink()
    for file in (*store.glob("attempts/*.json"), *store.glob("epochs/*/*.json")):
        if "topology_sha256" in json.loads(file.read_bytes()):
            change(file, lambda facts: facts.update(topology_sha256=new))
    return new
