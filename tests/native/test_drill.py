"""`abs drill`: what is restorable is proved, what is not is named, and nothing outside of a scratch folder changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abscli.engine.job import JobOptions
from abscli.engine.state.keyed_state import KeyedState
from abscli.stores.drills import Drilled, text
from abscli.stores.native.drill import replayed_into
from abscli.stores.native.restore import NativeRestored, restore
from formats.job.model import Topology
from formats.native import layout, lock
from formats.native.plan import NativePlan
from formats.native.store import NativeStore
from formats.plan import Plan
from formats.storage import LocalStorage
from tests.commands.test_jobs import (
    ABS,
    JOB,
    PATIENCE,
    ROOT,
    abs_,
    finished,
    job,
    make_job,
    make_turning_job,
    newest,
    run,
)
from tests.support.commands import answer_of, run_command
from tests.support.flink.cases import HASHMAP, latest
from tests.support.jobs.small import open_gate
from tests.support.spark.data import copy_of
from tests.support.stores.small import make_store

__all__ = ("finished", "job")
Capture = pytest.CaptureFixture[str]
drilled = partial(answer_of, "drill")
INLINE = ("--engine", "inline")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drills have their folders, which must be gone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("formats.scratch._mine", None)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """All of them, but for what Python compiles."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def left(scratch: Path) -> list[str]:
    """What is in the folders of processes, beside their lock."""
    return [str(path) for path in scratch.glob("*/*") if path.name != "owner.lock"]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_sound_store_is_proved_and_nothing_else_changes(job: Path, scratch: Path, capsys: Capture) -> None:
    before = files(job)
    result = drilled(capsys, job / "store", "--job", job / "job.yaml", *INLINE)
    assert (result["proved"], result["epoch"], result["problems"]) == (True, newest(job), [])
    assert [(one["operator"], one["same"]) for one in result["compared"]] == [("counts", True)]
    assert result["rows"] > 0
    assert files(job) == before
    assert left(scratch) == []
    code, out, _ = run_command("drill", capsys, f"{job / 'store'}@1", "--job", job / "job.yaml", *INLINE)
    assert code == 0
    assert "epoch 1 is restorable, proved in " in out
    assert "Not proved: that sources" in " ".join(out.split())


def test_state_that_has_no_room_in_memory_is_drilled_from_disk(
    job: Path, scratch: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JobOptions] = []

    def restored(plan: Plan[NativePlan], topology: Topology, options: JobOptions, **others: Any) -> NativeRestored:
        asked.append(options)
        return restore(plan, topology, options, **others)

    monkeypatch.setattr("abscli.stores.native.drill.restore", restored)
    bounded = drilled(capsys, job / "store", "--job", job / "job.yaml", *INLINE, "--state-memory", "1M")
    assert (bounded["proved"], [options.state_memory for options in asked]) == (True, [1 << 20])
    assert left(scratch) == []


def test_a_store_in_use_is_drilled(job: Path, capsys: Capture) -> None:
    with lock.exclusive(LocalStorage(job / "store")):
        assert drilled(capsys, job / "store", "--job", job / "job.yaml", *INLINE)["proved"]


def test_the_newest_epoch_that_is_damaged_is_a_finding_though_an_older_one_is_proved(
    tmp_path: Path, scratch: Path, capsys: Capture
) -> None:
    folder = tmp_path / "job"
    make_job(folder)
    assert run(folder).returncode == 0
    shutil.copy(folder / "in" / "0.txt", folder / "in" / "9.txt")
    assert run(folder, "--resume").returncode == 0
    epoch = newest(folder)
    damage(folder / "store" / NativeStore(LocalStorage(folder / "store")).manifest(epoch).tasks_file.path)
    arguments = (folder / "store", "--job", folder / "job.yaml", *INLINE)
    result = drilled(capsys, *arguments, code=3)
    assert (result["proved"], result["epoch"] < epoch) == (True, True)
    assert [row["epoch"] for row in result["passed_over"]] == [epoch]
    assert "has SHA-256" in result["passed_over"][0]["reason"]
    code, _, err = run_command("drill", capsys, f"{folder / 'store'}@{epoch}", *arguments[1:])
    assert code == 3
    assert "has SHA-256" in err
    for older in range(1, epoch):
        shutil.rmtree(folder / "store" / layout.epoch_dir(older), ignore_errors=True)
    code, _, err = run_command("drill", capsys, *arguments)
    assert code == 4
    assert "no epoch can be restored" in err
    assert left(scratch) == []


def test_code_that_does_not_restore_is_no_proof(job: Path, scratch: Path, capsys: Capture) -> None:
    arguments = (job / "store", "--job", job / "job.yaml", *INLINE)
    (job / "job.yaml").write_text(JOB.replace("job: words", "job: others"))
    code, _, err = run_command("drill", capsys, *arguments)
    assert code == 2
    assert "'others'" in err
    (job / "job.yaml").write_text(JOB.replace("key: [word]", "key: [other]"))
    assert run_command("drill", capsys, *arguments)[0] == 2
    assert run_command("drill", capsys, job / "store")[0] == 2
    assert run_command("drill", capsys, job / "nowhere", *arguments[1:])[0] == 10
    assert left(scratch) == []


def test_a_restore_that_makes_other_state_is_found_out(
    job: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = KeyedState.load

    def forgetful(self: KeyedState, table: pa.Table) -> None:
        load(self, table.slice(1))

    monkeypatch.setattr(KeyedState, "load", forgetful)
    result = drilled(capsys, job / "store", "--job", job / "job.yaml", *INLINE, code=3)
    assert result["proved"] is False
    (counts,) = result["compared"]
    assert (counts["same"], "lost" in counts["reason"]) == (False, True)
    page = text(
        Drilled("s", "abs", 1, False, 1, 1, 0, {"restored": 1.0}, (), ("a problem",), {}, ()), "epoch", width=80
    )
    assert "NOT restorable" in page


def test_what_was_on_its_way_reaches_what_comes_after_it(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    assert replayed_into(NativeStore(LocalStorage(tmp_path / "store")), 4) == {"seen": 8, "out": 8}


def test_a_job_with_records_on_their_way_is_drilled_and_shows_nothing(tmp_path: Path, scratch: Path) -> None:
    make_turning_job(tmp_path / "job")
    folder = tmp_path / "job"
    running = subprocess.Popen(
        [*ABS, "run", str(folder / "job.yaml"), "--store", str(folder / "store"), "--engine", "inline"],
        env=os.environ | {"ABS_RUN_INTERVAL": "20ms", "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    while not any((folder / "store").glob("epochs/*/outcome.json")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 143
    open_gate(folder)
    before = files(folder)
    done = abs_("drill", folder / "store", "--job", folder / "job.yaml", *INLINE, "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["replayed"] > 0
    assert any("were replayed" in (one["reason"] or "") for one in result["compared"])
    assert files(folder) == before
    assert left(scratch) == []


def test_checkpoints_of_others_are_copied_checked_and_compared(
    tmp_path: Path, scratch: Path, capsys: Capture
) -> None:
    checkpoint = copy_of("words", tmp_path / "spark")
    before = files(checkpoint)
    result = drilled(capsys, checkpoint)
    assert (result["proved"], result["system"], result["replayed"]) == (True, "spark", None)
    assert result["compared"]
    assert any("Spark is not run here" in text for text in result["not_proved"])
    assert files(checkpoint) == before
    flink = drilled(capsys, latest(HASHMAP))
    assert (flink["proved"], flink["system"]) == (True, "flink")
    assert run_command("drill", capsys, checkpoint, "--job", "job.yaml")[0] == 2
    assert run_command("drill", capsys, latest(HASHMAP), "--deep")[0] == 2
    assert left(scratch) == []
