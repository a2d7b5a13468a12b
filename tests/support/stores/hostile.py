"""Stores changed as a stranger who knows the format could: what is changed is sealed again, and named anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from formats.native import layout
from formats.native.facts import SEAL, digest

ROOT = Path(__file__).resolve().parents[3]


def sealed(facts: dict[str, Any]) -> bytes:
    """A fact file that holds these members."""
    body = json.dumps({name: value for name, value in facts.items() if name != "sha256"}).encode()[:-1]
    return body + SEAL + digest(body).encode() + b'"}\n'


def change(file: Path, changes: Callable[[dict[str, Any]], object]) -> None:
    """Change one fact file."""
    facts = json.loads(file.read_bytes())
    changes(facts)
    file.write_bytes(sealed(facts))


def tasks_file(store: Path, epoch: int) -> Path:
    """That of a complete epoch."""
    (found,) = (store / layout.epoch_dir(epoch)).glob("*/tasks.json")
    return found


def ack(store: Path, epoch: int, task: str) -> Path:
    """That of a task of an epoch that is not complete."""
    (found,) = (store / layout.epoch_dir(epoch)).glob(f"*/parts/{task}/ack.json")
    return found


def change_tasks(store: Path, epoch: int, changes: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the parts of a complete epoch; its manifest names the tasks file that this makes."""
    tasks = tasks_file(store, epoch)
    change(tasks, lambda facts: changes(facts["parts"]))
    point_at_tasks(store, epoch)


def point_at_tasks(store: Path, epoch: int) -> None:
    """Let the manifest name the tasks file as it is now."""
    data = tasks_file(store, epoch).read_bytes()
    named = {"bytes": len(data), "sha256": digest(data)}
    change(store / layout.outcome(epoch), lambda facts: facts["tasks_file"].update(named))


def change_graph(store: Path, changes: Callable[[dict[str, Any]], object]) -> str:
    """Change the job graph, under the digest that it then has, and let every fact file name that one."""
    (old,) = (store / "topologies").iterdir()
    graph = json.loads(old.read_bytes())
    changes(graph)
    data = json.dumps(graph, sort_keys=True, separators=(",", ":")).encode()
    new = digest(data)
    (store / layout.topology(new)).write_bytes(data)
    old.unlink()
    for pattern in ("attempts/*.json", "epochs/*/*.json", "epochs/*/*/trigger.json"):
        for file in store.glob(pattern):
            name_graph(file, new)
    return new


def name_graph(file: Path, sha256: str) -> None:
    """Let a fact file that names a job graph name this one."""
    if "topology_sha256" in json.loads(file.read_bytes()):
        change(file, lambda facts: facts.update(topology_sha256=sha256))


def replace_file(store: Path, epoch: int, suffix: str, data: bytes, rows: int) -> str:
    """Put other bytes in place of the first file that an epoch wrote and whose name ends so; its facts agree."""
    named = {"bytes": len(data), "rows": rows, "sha256": digest(data)}
    paths: list[str] = []

    def point(parts: list[dict[str, Any]]) -> None:
        for part in parts:
            for file in (*part["state"], *(log["file"] for log in part["logs"])):
                if not paths and file["path"].endswith(suffix) and layout.epoch_of(file["path"]) == epoch:
                    paths.append(file["path"])
                    file.update(named)

    change_tasks(store, epoch, point)
    (store / paths[0]).write_bytes(data)
    return paths[0]


MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as peak:
    peak.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""Stands between: a process counts as its own what the one that it was forked from had in memory."""


class Ran(NamedTuple):
    """A command that has ended. peak: bytes that it had in memory at most."""

    code: int
    out: str
    err: str
    peak: int


def measured(*arguments: object, timeout: float = 300, stdin: int | None = subprocess.DEVNULL) -> Ran:
    """Run `abs` in a process of its own, and see how much memory it takes."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}
    with tempfile.NamedTemporaryFile("r") as peak:
        done = subprocess.run(
            [sys.executable, "-S", "-c", MEASURE, peak.name, sys.executable, "-m", "abscli.cli.main",
             *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout, stdin=stdin, env=environment,
        )  # fmt: skip
        ran = Ran(done.returncode, done.stdout, done.stderr, int(peak.read()) * 1024)
    assert "Traceback" not in ran.err + ran.out, ran.err[-3000:]
    return ran
