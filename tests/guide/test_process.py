"""The guide's page of keyed process functions: its job reports silent users, also through kills."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from abscli import Job, try_job
from abscli.engine.operators.keyed_process import KeyedProcess
from abscli.engine.operators.making import in_memory
from formats.ids import TaskId
from formats.job.file import parse_job
from formats.job.model import Keeping, Kind, Operator
from tests.support.guide.blocks import PAGES

SECTION = (PAGES / "jobs" / "process.md").read_text()
(YAML,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
SILENCE, PASSING = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(YAML)
    (tmp_path / "silence.py").write_text(SILENCE)
    (tmp_path / "passing.py").write_text(PASSING)
    return tmp_path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def click(user: str, minute: int) -> dict[str, Any]:
    return {"user": user, "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"}


@pytest.mark.minutes
def test_users_that_are_silent_are_shown_once_whatever_is_killed(folder: Path) -> None:
    minutes = {"ann": [0, 3, 9, 30, 31], "bob": [1, 11, 20, 29, 30, 60], "eve": [60]}
    rows = sorted((click(user, minute) for user, each in minutes.items() for minute in each), key=lambda row: row["at"])
    shown = try_job(folder / "job.yaml", {"clicks": rows}, kills=3, timeout="10m")["printed"]
    found = sorted((row["user"], row["silent_since"][11:16], row["clicks"]) for row in shown)
    assert found == [
        ("ann", "00:09", 3), ("ann", "00:31", 2), ("bob", "00:01", 1), ("bob", "00:30", 4), ("bob", "01:00", 1),
        ("eve", "01:00", 1),
    ]  # fmt: skip


def test_the_job_in_python_is_the_same(folder: Path) -> None:
    job = Job("silence")
    clicks = job.jsonl(
        "clicks/*.jsonl", schema={"user": "string", "at": "timestamp"}, event_time="at", delay="5s", id="clicks"
    )
    state = {"clicks": "int64", "last_at": "timestamp"}
    clicks.group_by("user").process("silence:track", state=state, time="at").to_jsonl("out", id="printed")
    assert job.read() == parse_job(folder / "job.yaml")


def test_the_function_of_all_keys_puts_each_out_once(folder: Path) -> None:
    keeping = Keeping((("total", "int64"),))
    operator = Operator("passing", Kind.PROCESS, 1, 8, key=("user",), function="passing:passing", keeping=keeping)
    process = KeyedProcess(operator, TaskId("passing", 0), in_memory(operator), loaded(folder / "passing.py").passing)
    out: list[str] = []
    for users, amounts in ((["a", "b", "a"], [60, 10, 30]), (["b", "a"], [89, 10]), (["b", "a"], [1, 200])):
        shown = process.process(pa.record_batch([users, amounts], names=["user", "amount"]), 1)
        out += shown["user"].to_pylist() if shown is not None else []
    assert out == ["a", "b"]
