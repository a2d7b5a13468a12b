"""`abs doctor`: what is not right is named with what to do, whatever else is wrong; nothing is harmed by looking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from abscli.engine.drivers import java, machine
from abscli.stores import place
from formats.storage import local
from tests.commands.test_jobs import ABS, PATIENCE, ROOT
from tests.support.commands import answer_of, run_command
from tests.support.stores.small import make_store

Capture = pytest.CaptureFixture[str]
doctor = partial(run_command, "doctor")
CHECKPOINTS = Path(__file__).parents[1] / "data" / "flink" / "hashmap-checkpoint"
FLINK = CHECKPOINTS / "10d2f428c00a04dfaad672ff7b7e0dbc" / "chk-2"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs: no file of defaults, a Java that will do, nothing that points elsewhere."""
    for name in ("ABS_CONFIG", "SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "java-21" / "bin" / "java", 'openjdk version "21.0.1"')))
    return tmp_path


def program(path: Path, line: str) -> Path:
    """A program that prints a line; the folder that its own lies in."""
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{line}'\n")
    path.chmod(0o755)
    return path.parent.parent


def checks(capsys: Capture, *words: object, code: int = 0) -> dict[str, dict[str, Any]]:
    """Each check by its name."""
    answer = answer_of("doctor", capsys, *words, code=code)
    assert answer["healthy"] == (code == 0)
    return {check["name"]: check for check in answer["checks"]}


def verdicts(capsys: Capture, *words: object, code: int = 0) -> dict[str, str]:
    return {name: check["verdict"] for name, check in checks(capsys, *words, code=code).items()}


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def test_a_machine_on_which_jobs_run_is_well(capsys: Capture) -> None:
    assert set(verdicts(capsys)) == {
        "python", "packages", "java", "spark", "workers", "slots", "memory", "scratch", "abs.toml",
    }  # fmt: skip
    code, out, err = doctor(capsys)
    assert (code, err) == (0, "")
    assert "✓ java" in out
    lines = doctor(capsys, "-o", "ndjson")[1].splitlines()
    assert [json.loads(line).get("type") for line in lines] == [None, *["check"] * 9]


def test_java_that_spark_does_not_run_on(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(folder / "java-8" / "bin" / "java", 'java version "1.8.0_1"')
    good = os.environ["JAVA_HOME"]
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{good}/bin", prepend=os.pathsep)
    by_name = checks(capsys)["java"]
    assert (by_name["verdict"], by_name["hint"]) == ("warning", f"export JAVA_HOME={good}")
    monkeypatch.setenv("JAVA_HOME", str(folder / "nowhere"))
    assert "where no Java runs" in checks(capsys)["java"]["message"]
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    code, out, _ = doctor(capsys)
    assert code == 3
    assert "✗ java" in out
    assert "--engine inline, which needs no Java" in " ".join(out.split())


def test_java_that_spark_is_not_documented_for(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(program(folder / "java-25" / "bin" / "java", 'openjdk version "25"')))
    assert checks(capsys)["java"]["verdict"] == "warning"


def test_jars_of_another_spark(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(folder))
    assert "no jar of Spark's" in checks(capsys, code=3)["spark"]["message"]
    (folder / "jars").mkdir()
    (folder / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    by_name = checks(capsys, code=3)["spark"]
    assert "are 3.5.1" in by_name["message"]
    assert "unset SPARK_HOME" in by_name["hint"]
    (folder / "jars" / "spark-core_2.12-3.5.1.jar").rename(
        folder / "jars" / f"spark-core_2.13-{machine.metadata.version('pyspark')}.jar"
    )
    assert checks(capsys)["spark"]["verdict"] == "ok"


def test_workers_of_another_python(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder / "python" / "bin" / "python", "3.9")
    monkeypatch.setenv("PYSPARK_PYTHON", str(folder / "python" / "bin" / "python"))
    assert "which is Python 3.9" in checks(capsys, code=3)["workers"]["message"]
    monkeypatch.setenv("PYSPARK_PYTHON", str(folder / "nowhere"))
    assert "No such file" in checks(capsys, code=3)["workers"]["message"]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checks(capsys)["workers"]["verdict"] == "ok"


def test_packages_that_are_missing_or_too_old(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["pyspark>=99.1", "pyarrow", "no-such-package>=2", "left-out>=1; extra == 'flink'"]
    monkeypatch.setattr(machine.metadata, "requires", lambda name: wanted)
    found = checks(capsys, code=3)["packages"]
    assert "is older than 99.1" in found["message"]
    assert "no-such-package is not installed" in found["message"]
    assert "left-out" not in found["message"]
    assert found["hint"].endswith("pip install --upgrade 'pyspark>=99.1' 'no-such-package>=2'")


def test_little_memory_and_no_room_are_said(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_available", lambda: 1 << 29)
    little = SimpleNamespace(f_bavail=10, f_frsize=4096, f_files=100, f_favail=100)
    monkeypatch.setattr(machine.os, "statvfs", lambda path: little)
    by_name = checks(capsys, "new", code=3)
    assert [by_name[name]["verdict"] for name in ("memory", "scratch", "room")] == ["warning", "warning", "problem"]
    assert "abs gc" in by_name["room"]["hint"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no toml", "is not TOML"),
        ("[runn]\n", "[runn] is not a command"),
        ('[run]\ninterval = "soon"\n', "[run] interval: 'soon' is not a duration"),
        ('[run]\npolicy = "best"\n', "[run] policy: 'best'"),
        ("[gc]\nkeeep = 1\n", "[gc] keeep is not an option of 'abs gc'"),
        ("keeep = 1\n", "keeep is an option of no command"),
        ("[doctor]\nspurk = true\n", "[doctor] spurk is not an option of 'abs doctor'"),
    ],
)
def test_a_file_of_defaults_that_does_not_hold_is_named(
    text: str, message: str, folder: Path, capsys: Capture
) -> None:
    (folder / "abs.toml").write_text(text)
    assert message in checks(capsys, code=3)["abs.toml"]["message"]


def test_a_file_of_defaults_that_holds(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "abs.toml").write_text('verbose = 1\n[run]\ninterval = "5s"\nparallelism = ["counts=4"]\n')
    assert "[run]" in checks(capsys)["abs.toml"]["message"]
    monkeypatch.setenv("ABS_CONFIG", "nowhere.toml")
    assert "nowhere.toml" in checks(capsys, code=3)["abs.toml"]["message"]


def test_an_empty_place_is_tried_and_left_as_it_was(folder: Path, capsys: Capture) -> None:
    (folder / "place").mkdir()
    by_name = verdicts(capsys, "place")
    assert {name: by_name[name] for name in ("store", "permissions", "room", "create-only", "clock")} == dict.fromkeys(
        ("store", "permissions", "room", "create-only", "clock"), "ok"
    )
    assert not list((folder / "place").iterdir())


def test_a_store_is_left_as_it_was(folder: Path, capsys: Capture) -> None:
    make_store("store")
    before = {path: path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file()}
    by_name = checks(capsys, "store")
    assert "a store of abs" in by_name["store"]["message"]
    assert by_name["create-only"]["verdict"] == "ok"
    assert {path: path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file()} == before
    untouched = listing(folder / "store")
    assert checks(capsys, "store", "--read-only")["create-only"]["verdict"] == "unknown"
    assert listing(folder / "store") == untouched


def test_nothing_is_written_among_files_that_are_not_of_abs(folder: Path, capsys: Capture) -> None:
    untouched = listing(FLINK)
    by_name = checks(capsys, FLINK)
    assert "a store of flink" in by_name["store"]["message"]
    assert "clock" not in by_name
    (folder / "somebody's").mkdir()
    (folder / "somebody's" / "letter").touch()
    before = listing(folder / "somebody's")
    assert checks(capsys, "somebody's")["store"]["verdict"] == "warning"
    assert listing(folder / "somebody's") == before
    assert listing(FLINK) == untouched


def test_a_folder_in_which_a_refused_run_has_left_its_lock_is_empty(folder: Path, capsys: Capture) -> None:
    (folder / "place").mkdir()
    (folder / "place" / "lock").touch()
    by_name = checks(capsys, "place")
    assert "is empty" in by_name["store"]["message"]
    assert by_name["create-only"]["verdict"] == "ok"


def test_a_place_that_is_not_there_yet_is_not_made(folder: Path, capsys: Capture) -> None:
    assert "is not there yet" in checks(capsys, "a/b/c")["store"]["message"]
    assert not (folder / "a").exists()
    (folder / "file").touch()
    assert "is a file" in checks(capsys, "file/store", code=3)["store"]["message"]
    (folder / "link").symlink_to("nowhere")
    assert "leads nowhere" in checks(capsys, "link", code=3)["store"]["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written(folder: Path, capsys: Capture) -> None:
    (folder / "place").mkdir(mode=0o555)
    assert verdicts(capsys, "place", code=3)["permissions"] == "problem"
    assert verdicts(capsys, "place/below", code=3)["store"] == "problem"


def test_a_place_that_lets_a_second_writer_win(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "place").mkdir()

    def copy(temporary: str, full: str) -> None:
        Path(full).write_bytes(Path(temporary).read_bytes())

    monkeypatch.setattr(local, "_give_name", copy)
    by_name = checks(capsys, "place", code=3)["create-only"]
    assert "two attempts could both complete an epoch" in by_name["message"]
    assert not list((folder / "place").iterdir())


@pytest.mark.parametrize(("by", "side"), [(-3600.0, "3599 s behind"), (3600.0, "3599 s ahead of")])
def test_a_clock_that_goes_wrong_is_said(
    by: float, side: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "place").mkdir()
    clock = place._written
    monkeypatch.setattr(place, "_written", lambda storage, path: (clock(storage, path) or 0.0) + by)
    by_name = checks(capsys, "place")["clock"]
    assert by_name["verdict"] == "warning"
    assert side in by_name["message"] or side.replace("3599", "3598") in by_name["message"]


def test_a_server_that_is_not_there(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    by_name = checks(capsys, "s3://bucket/store", "--endpoint", "http://127.0.0.1:1", "--region", "x", code=3)
    assert by_name["store"]["hint"].startswith("check the endpoint (--endpoint or AWS_ENDPOINT_URL for S3)")
    assert by_name["java"]["verdict"] == "ok"


@pytest.mark.usefixtures("jvm")
def test_spark_is_started_when_asked_for(folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [*ABS, "doctor", "--spark", "--master", "local[1]", "-o", "json"],
        env=environment | {"PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    starts = json.loads(done.stdout)["checks"][-1]
    assert (starts["name"], starts["verdict"]) == ("spark starts", "ok")
