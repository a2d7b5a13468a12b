"""A real Flink on state of another backend: it fails without the option that `abs` prints, and starts with it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import answer_of, run_command
from tests.support.flink.java import SOURCES
from tests.support.flink.releases import STARTED, compiled_for, run
from tests.support.flink.starts import as_told, held_checkpoint

pytestmark = [
    pytest.mark.usefixtures("jvm"),
    pytest.mark.minutes,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]

ROCKSDB = "state.backend.type=rocksdb"


@pytest.mark.parametrize("release", [pytest.param("1.20", marks=pytest.mark.soak), "2.3"])
def test_a_heap_checkpoint_starts_a_job_with_rocksdb_by_the_printed_option_or_as_a_canonical_copy(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SOURCES / "TtlJob.java").read_text()
    class_path = compiled_for(STARTED[release], tmp_path / "job", "flink-statebackend-rocksdb", TtlJob=source)
    words = ("value", "plain", "state.backend.type=hashmap")
    checkpoint = held_checkpoint(class_path, tmp_path, "TtlJob", *words)
    _, out, _ = run_command("plan-recovery", capsys, checkpoint.parent)
    (command,) = re.findall(r"^Next: (flink run .*)$", out, re.MULTILINE)
    assert " -Dstate.backend.type=hashmap " in command
    assert f"-s file://{checkpoint} " in command

    def start(name: str, *options: str) -> tuple[bool, str]:
        taken, log = run(class_path, tmp_path / name, "TtlJob", tmp_path / "savepoints", "value", "plain", ROCKSDB,
                         *options)  # fmt: skip
        return taken is not None, log

    told = as_told(command)
    started, log_text = start("without", *(option for option in told if "backend" not in option))
    assert (started, "BackendBuildingException" in log_text) == (False, True), log_text[-2000:]
    assert re.search(r"java\.(io\.EOFException|lang\.ArrayIndexOutOfBoundsException)", log_text), "as the guide says"
    started, log_text = start("with", *told)
    assert (started, set(re.findall(r"READ (\d+)", log_text))) == (True, {"1"}), log_text[-2000:]
    copy = tmp_path / "copy"
    done = answer_of("rewrite", capsys, checkpoint, "--layout", "canonical", "--to", copy)
    assert "backend" not in done["command"]
    started, log_text = start("canonical", *as_told(done["command"]))
    assert (started, set(re.findall(r"READ (\d+)", log_text))) == (True, {"1"}), log_text[-2000:]
