"""Files that commands write with --out: foreign files stay as they are, earlier outputs are replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.stores.small import make_store

Capture = pytest.CaptureFixture[str]
COMMANDS = [
    (("plan-recovery", "snapshots"), "plan.json", True),
    (("report", "snapshots", "--no-stats"), "page.html", True),
    (("simulate", "--example", "single-token"), "token.html", True),
    (("simulate", "--example", "single-token"), "token.svg", True),
    (("state", "snapshots", "seen"), "rows.parquet", True),
    (("state", "snapshots", "seen"), "rows.arrow", True),
    (("state", "snapshots", "seen"), "rows.csv", False),
    (("state", "snapshots", "seen"), "rows.jsonl", False),
    (("diff", "snapshots@2", "snapshots@4"), "changes.parquet", True),
    (("diff", "snapshots@2", "snapshots@4"), "changes.jsonl", False),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_store("snapshots")
    return tmp_path


@pytest.mark.parametrize(("words", "name", "recognised"), COMMANDS)
def test_a_foreign_file_stays_and_an_earlier_output_is_replaced(
    words: tuple[str, ...], name: str, recognised: bool, folder: Path, capsys: Capture
) -> None:
    command, *others = words
    out = Path(name)
    out.write_bytes(b"mine")
    code, _, err = run_command(command, capsys, *others, "--out", name)
    assert (code, out.read_bytes()) == (2, b"mine")
    assert f"{name}: exists already and is not replaced" in err
    again = f"abs {' '.join(words)} --out {name} --force"
    assert f"`{again}`" in err
    assert run_command(command, capsys, *again.split()[2:])[0] == 0
    assert out.read_bytes() != b"mine"
    os.utime(out, (0, 0))
    code, _, err = run_command(command, capsys, *others, "--out", name)
    assert (code, out.stat().st_mtime == 0) == ((0, False) if recognised else (2, True)), err
    out.write_bytes(b"")
    assert run_command(command, capsys, *others, "--out", name)[0] == 0
    assert out.stat().st_size > 0
    assert sorted(os.listdir()) == sorted([name, "snapshots"])


def test_an_output_of_another_kind_stays(folder: Path, capsys: Capture) -> None:
    assert run_command("plan-recovery", capsys, "snapshots", "--out", "out")[0] == 0
    before = Path("out").read_bytes()
    assert run_command("report", capsys, "snapshots", "--out", "out")[0] == 2
    assert Path("out").read_bytes() == before
