"""Defaults of options: the command line, then variables, then the file, then the program's own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands.test_jobs import ABS, PATIENCE, ROOT
from tests.support.commands import run_command
from tests.support.stores.small import make_store

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run: with a store, and no file yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABS_CONFIG", raising=False)
    make_store("snapshots")
    return tmp_path


def kept(capsys: Capture, *words: str) -> list[int]:
    code, out, err = run_command("gc", capsys, "snapshots", "-o", "json", *words)
    assert code == 0, err
    result: list[int] = json.loads(out)["kept"]
    return result


def test_what_is_closer_goes_first(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(capsys) == [1, 2, 4, 5]
    (folder / "abs.toml").write_text("[gc]\nkeep = 1\n")
    assert kept(capsys) == [4, 5]
    monkeypatch.setenv("ABS_GC_KEEP", "2")
    assert kept(capsys) == [2, 4, 5]
    assert kept(capsys, "--keep", "3") == [1, 2, 4, 5]
    monkeypatch.setenv("ABS_CONFIG", "")
    monkeypatch.delenv("ABS_GC_KEEP")
    assert kept(capsys) == [1, 2, 4, 5]
    (folder / "other.toml").write_text("[gc]\nkeep-last = 1\nkeep-daily = 2\n")
    monkeypatch.setenv("ABS_CONFIG", "other.toml")
    assert kept(capsys) == [4, 5]


def test_a_value_without_a_table_is_of_every_command_that_has_the_option(folder: Path, capsys: Capture) -> None:
    (folder / "abs.toml").write_text('output = "json"\nquiet = true\n[validate]\noutput = "ndjson"\nstrict = true\n')
    assert json.loads(run_command("inspect", capsys, "snapshots")[1])["schema"] == "abs.inspect"
    code, out, _ = run_command("validate", capsys, "snapshots")
    assert (code, json.loads(out.splitlines()[0])["schema"]) == (3, "abs.validate")
    assert run_command("topology", capsys, "--help")[0] == 0


def test_lists_are_options_that_are_given_several_times(folder: Path, capsys: Capture) -> None:
    (folder / "abs.toml").write_text('[plan-recovery]\ndistrust = ["seen/0", "seen/1"]\n')
    code, out, err = run_command("plan-recovery", capsys, "snapshots", "-o", "json")
    assert code == 0, err
    assert json.loads(out)["body"]["epoch"] == 2
    (folder / "abs.toml").write_text('[plan-recovery]\ndistrust = "seen/0"\n')
    assert json.loads(run_command("plan-recovery", capsys, "snapshots", "-o", "json")[1])["body"]["epoch"] == 2


@pytest.mark.parametrize(("text", "message"), [
    ("[gc\n", "is not TOML"), ("[inspct]\n", "[inspct] is not a command"), ("[gc]\nkep = 1\n", "kep is not an option"),
    ("[gc]\nyes = true\n", "never as a default"), ("[gc]\nkeep = 0\n", "(from abs.toml)"),
    ("[gc]\nkeep = [1, 2]\n", "takes one value"), ("[gc]\nkeep = {a = 1}\n", "neither a text"),
    ("[gc]\nkeep = 1979-05-27\n", "neither a text"),
])  # fmt: skip
def test_a_file_that_does_not_hold_is_named(folder: Path, capsys: Capture, text: str, message: str) -> None:
    (folder / "abs.toml").write_text(text)
    code, out, err = run_command("gc", capsys, "snapshots")
    assert (code, out) == (2, "")
    assert message in err
    assert "abs.toml" in err


def test_a_file_that_is_named_and_not_there_is_an_error(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_CONFIG", "nowhere.toml")
    code, _, err = run_command("gc", capsys, "snapshots")
    assert code == 2
    assert "nowhere.toml" in err


def test_help_says_in_which_order_values_count(capsys: Capture) -> None:
    _, out, _ = run_command("run", capsys, "--help")
    text = " ".join(out.split())
    assert "in abs.toml under [run]. The command line overrides variables, and variables override abs.toml." in text


def test_a_store_that_is_not_there_yet_is_waited_for(folder: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ABS_")} | {"PYTHONPATH": str(ROOT)}
    watching = subprocess.Popen(
        [*ABS, "inspect", "later", "--watch"], env=environment, cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert watching.stderr is not None
        assert watching.stdout is not None
        assert "waiting until the store exists" in watching.stderr.readline()
        make_store("later")
        deadline = time.monotonic() + PATIENCE
        line = watching.stdout.readline()
        while "complete" not in line:
            assert time.monotonic() < deadline
            line = watching.stdout.readline()
    finally:
        watching.kill()  # not SIGINT, which a test run in the background of a shell ignores, and its children with it
        watching.communicate(timeout=PATIENCE)


def test_a_directory_of_stores_is_not_waited_for(folder: Path, capsys: Capture) -> None:
    assert run_command("inspect", capsys, folder, "--watch")[0] == 10
