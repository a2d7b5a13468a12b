"""Workers of a job with poison records are killed while it runs: each good row and each dead letter is shown once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.job.model import DeadLetter, Topology
from tests.engine.recovering.alone import local
from tests.engine.recovering.test_live import survive
from tests.support.jobs.kills import Due, after, pipelines, write_rows
from tests.support.jobs.small import inline, output_rows

pytestmark = pytest.mark.minutes

POISON = """

def refuse(batch):
    if any(id % 50 == 7 for id in batch.column("id").to_pylist()):
        raise ValueError("a poison record")
    return pass_on(batch)
"""
TEXT = 30
"""A line in so many is none of these columns."""


def poisoned(folder: Path) -> tuple[Topology, list[int], list[int]]:
    """The job, the ids that pass, and those that are dead letters of its map."""
    count = sum(write_rows(folder).values())
    with (folder / "slow.py").open("a") as file:
        file.write(POISON)
    for path in sorted((folder / "in").iterdir()):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({"key": [] if not row["id"] % TEXT else "k", **_id(row)}) + "\n"
                                for row in lines))  # fmt: skip
    rows, same, out = pipelines().operators
    schema = {"key": "string", "id": "int64"}
    operators = (
        msgspec.structs.replace(
            rows, connector={**(rows.connector or {}), "schema": schema}, on_error=DeadLetter("unread")
        ),
        msgspec.structs.replace(same, function="slow:refuse", on_error=DeadLetter("dead")),
        out,
    )
    read = [id for id in range(count) if id % TEXT]
    topology = msgspec.structs.replace(pipelines(), operators=operators)
    return topology, [id for id in read if id % 50 != 7], [id for id in read if id % 50 == 7]


def _id(row: dict[str, Any]) -> dict[str, int]:
    return {"id": int(row["id"])}


def letters(folder: Path) -> list[int]:
    lines = [line for part in folder.glob("part-*.jsonl") for line in part.read_text().splitlines()]
    return sorted(int(json.loads(json.loads(line)["record"])["id"]) for line in lines)


@pytest.mark.sample(2)
@pytest.mark.parametrize("policy", ["aligned", "unaligned"])
@pytest.mark.parametrize("alone", [True, False])
def test_each_is_shown_once(tmp_path: Path, policy: str, alone: bool) -> None:
    topology, good, poison = poisoned(tmp_path)
    options = inline(tmp_path, policy=policy, **(local if alone else {}))
    moments: list[tuple[Due, list[int]]] = [(after(2, open_epoch=True), [0]), (after(5, open_epoch=True), [1])]
    outcome, recoveries = survive(topology, tmp_path, options, moments)
    assert [recovery.again is not None for recovery in recoveries] == [alone, alone]
    assert sorted(int(str(row["id"])) for row in output_rows(tmp_path)) == good
    assert letters(tmp_path / "dead") == poison
    assert letters(tmp_path / "unread") == list(range(0, max(good) + 1, TEXT))
    assert outcome.skipped == {"rows": len(letters(tmp_path / "unread")), "same": len(poison)}
