"""One operator of a real Flink with 52 states: `abs` opens the RocksDB instance of each of its subtasks once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.flink.java import compiled
from tests.support.flink.starts import held_checkpoint

pytestmark = [
    pytest.mark.soak,
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

STATES, SUBTASKS = 52, 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    options = [
        "state.backend.type=rocksdb", "execution.checkpointing.incremental=true", f"touch.parallelism={SUBTASKS}",
        "pipeline.max-parallelism=16",
    ]  # fmt: skip
    return held_checkpoint(compiled(folder / "classes", "ManyJob.java"), folder, "ManyJob", STATES, *options)


@pytest.mark.parametrize(
    ("command", "opens"),
    [(["inspect", "HELD"], 1), (["validate", "HELD"], 1), (["state", "HELD", "--all", "--out", "NEW"], 1),
     (["diff", "HELD", "HELD"], 2), (["drill", "HELD"], 4)],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)  # fmt: skip
def test_the_instance_of_a_subtask_is_opened_once_per_reading(
    command: list[str], opens: int, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`diff` reads two snapshots. `drill` reads the snapshot and its copy twice each."""
    rocksdict = pytest.importorskip("rocksdict", reason="needs the package rocksdict")
    opened, real = [0], rocksdict.Rdict

    def counted(*args: object, **options: object) -> object:
        opened[0] += 1
        return real(*args, **options)

    monkeypatch.setattr(rocksdict, "Rdict", counted)
    paths = {"HELD": str(checkpoint), "NEW": str(tmp_path / "new")}
    assert run_command(command[0], capsys, *(paths.get(word, word) for word in command[1:]))[0] == 0
    assert opened[0] <= opens * SUBTASKS
