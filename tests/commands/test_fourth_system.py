"""A system that nobody planned for: put into the table by one line, every command that reads works on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abscli.cli.main import main
from tests.support.schemas import checked
from tests.support.stores.json_system import file_of, put_into_the_table, write_epoch, write_store


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_into_the_table(monkeypatch)
    return write_store(tmp_path / "ledger")


def shown(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    assert main([str(word) for word in words]) == code
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    return checked(shown(capsys, *words, "-o", "json", code=code))


def test_inspect_shows_its_epochs_and_one_of_them(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, "inspect", ledger)
    assert (page["format"], page["job"], page["latest_complete"]) == ("ledger", "sums", 3)
    text = shown(capsys, "inspect", ledger)
    assert text.split("\n\n")[1].split()[:2] == ["Ledger", f"{ledger},"]
    assert "Newest complete: epoch 3." in text
    epoch = told(capsys, "inspect", f"{ledger}@2", "--operator", "totals")
    assert [(one["id"], one["rows"]) for one in epoch["operators"]] == [("totals", 2)]
    assert epoch["raw"] == {"settings": {"codec": "none"}}
    assert "As Ledger says it\n  settings:\n    codec: none\n" in shown(capsys, "inspect", f"{ledger}@2")
    assert main(["inspect", f"{ledger}@9"]) == 10
    assert "it has 1 to 3" in capsys.readouterr().err


def test_state_shows_rows_and_finds_them_by_key_and_condition(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "state", ledger)["rows"] == [
        {"word": "a", "n": 2}, {"word": "b", "n": 4}, {"word": "c", "n": 1},
    ]  # fmt: skip
    assert told(capsys, "state", f"{ledger}@2", "totals", "--key", "b")["rows"] == [{"word": "b", "n": 1}]
    assert told(capsys, "state", ledger, "--where", "n >= 2", "--columns", "word")["rows"] == [
        {"word": "a"}, {"word": "b"},
    ]  # fmt: skip


def test_validate_judges_it(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "validate", ledger)
    assert (report["restorable"], report["unchecked"]) == ([1, 2, 3], ["conservation"])
    path = ledger / file_of(3)
    path.write_text(path.read_text().replace('"n": 4', '"n": 5'))
    report = told(capsys, "validate", ledger, code=3)
    assert report["latest_restorable"] == 2
    assert [finding["path"] for finding in report["epochs"][2]["findings"]] == [file_of(3)]
    text = shown(capsys, "validate", ledger, code=3)
    assert "digest-mismatch in epoch 3" in text
    assert f"Next: abs inspect {ledger}@3\n" in text


def test_diff_compares_rows_positions_and_what_only_the_system_knows(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = told(capsys, "diff", f"{ledger}@2", f"{ledger}@3", "--rows")
    (totals,) = [one for one in page["operators"] if one["id"] == "totals"]
    assert [totals[name] for name in ("added", "removed", "changed", "unchanged")] == [1, 0, 1, 1]
    assert sorted(row["key"]["word"] for row in page["rows"]) == ["b", "c"]
    assert [one["moved"]["offset"] for one in page["positions"]] == [8]
    assert [(one["subject"], one["from"], one["to"]) for one in page["topology"]] == [("codec", "none", "zstd")]
    assert "\nSettings, and what it means" in shown(capsys, "diff", f"{ledger}@2", f"{ledger}@3")
    write_epoch(ledger, 4, {"a": 2, "b": 4, "c": 1}, offset=14, codec="zstd")
    assert told(capsys, "diff", f"{ledger}@3", ledger, "--exit-code")["identical"] is True


def test_a_plan_goes_back_to_the_newest_whole_epoch_and_a_copy_of_it_is_validated(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (ledger / file_of(3)).write_text("{}")
    plan, copy = tmp_path / "plan.json", tmp_path / "copy"
    assert "ends with epoch 2\nepoch 3 is no epoch" in shown(capsys, "plan-recovery", ledger, "--out", plan)
    page = json.loads(plan.read_text())
    assert (page["system"], page["body"]["epoch"]) == ("ledger", 2)
    assert main(["restore", str(plan), "--dry-run"]) == 0
    assert main(["restore", str(plan)]) == 2
    assert "--to" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "..")
    assert json.loads(shown(capsys, "restore", plan, "--to", copy, "-o", "json")) == {
        "epoch": 2, "to": str(copy), "files": 3,
    }  # fmt: skip
    assert told(capsys, "validate", copy)["restorable"] == [1, 2]
    write_epoch(ledger, 2, {"a": 9}, offset=6)
    assert main(["restore", str(plan), "--to", str(tmp_path / "other")]) == 5
    assert main(["plan-recovery", str(ledger), "--query-id", "a"]) == 2


def test_an_option_of_another_system_is_refused(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["inspect", "--uid", "a"], ["state", "--engine", "spark"], ["validate", "--deep"],
                  ["diff", "--uids", file_of(1)]):  # fmt: skip
        command, *options = words
        assert main([command, str(ledger), *options, "-o", "json"]) == 2
        error = json.loads(capsys.readouterr().err)
        assert f"{options[0]} means nothing to a store of format ledger; only " in error["message"]
