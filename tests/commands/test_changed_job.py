"""A job that has changed, on the command line: what is said before, what a run, a restore and `inspect` say of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from formats.native.sink import SinkFolder
from tests.support.commands import result_of, run_command
from tests.support.schemas import checked

JOB = """
version: 1
job: words
max_parallelism: 8
operators:
  lines: {source: {type: text, path: in/*.txt}}
  words: {from: lines, flat_map: mine:split}
  counts: {from: words, reduce: {key: [word], n: {count: "*"}}}
  out: {from: counts, sink: {type: jsonl, path: out}}
"""
RENAMED = JOB.replace("counts", "tally")
EXPLAINED = RENAMED.replace("operators:", "moved: [{from: counts, to: tally}]\noperators:")
MINE = "from abscli.engine.functions import words as split\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A job that has run to its end, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a b a\nc\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "job.yaml").write_text(JOB)
    code, _, err = run_command("run", capsys, "job.yaml", "--store", "store", "--engine", "inline")
    assert code == 0, err
    return tmp_path


Diff = partial(result_of, "diff")


def test_diff_of_a_store_and_the_job_that_made_it_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Diff(capsys, "store", "job.yaml")
    assert (result["compatible"], result["generation"], result["new_generation"]) == (True, 1, False)
    assert {row["outcome"] for row in result["operators"]} == {"kept"}
    assert result["code"] == []
    assert run_command("diff", capsys, "store", "job.yaml", "--exit-code")[0] == 0


def test_diff_says_before_what_a_run_would_be_refused_for_and_what_would_let_it_pass(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.yaml").write_text(RENAMED)
    code, out, err = run_command("diff", capsys, "store", "job.yaml", "--exit-code")
    assert (code, err) == (3, "")
    assert "It cannot go on so: a run would be refused." in out
    assert "hint: add `moved: [{from: counts, to: tally}]` at the top level of the job file" in " ".join(out.split())
    result = Diff(capsys, "store", "job.yaml")
    fates = {row["operator"]: (row["outcome"], row["rows"]) for row in result["operators"]}
    assert fates["counts"] == ("orphaned", 3)
    assert fates["tally"] == ("added", None)
    assert result["moved"] == [{"from": "counts", "to": "tally"}]
    before = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    code, _, err = run_command("run", capsys, "job.yaml", "--store", "store", "--engine", "inline", "--resume")
    assert code == 2
    assert result["hint"] in err.replace("\n", " ")
    assert {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    (folder / "job.yaml").write_text(EXPLAINED)
    _, out, _ = run_command("diff", capsys, "store", "job.yaml", "--exit-code")
    assert "It goes on; generation 2 would begin." in out
    assert "moves to tally" in out


def test_a_job_of_another_name_is_no_change_of_this_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.yaml").write_text(JOB.replace("job: words", "job: others"))
    code, _, err = run_command("diff", capsys, "store", "job.yaml")
    assert code == 2
    assert "is the store of job 'words', not of 'others'" in err


def test_an_epoch_is_compared_with_a_job_as_a_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command("diff", capsys, "store", "job.yaml", "--rows")
    assert code == 2
    assert "as a whole" in err


def test_run_and_inspect_say_what_has_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.yaml").write_text(EXPLAINED)
    (folder / "mine.py").write_text(MINE + "# otherwise\n")
    visible = SinkFolder("out").visible()
    words = ("job.yaml", "--store", "store", "--engine", "inline", "--resume")
    _, _, rehearsed = run_command("run", capsys, *words, "--dry-run")
    code, _, err = run_command("run", capsys, *words)
    assert code == 0
    notes = [line for line in err.splitlines() if "changed" in line]
    assert len(notes) == 2
    assert "mine.py has changed since attempt 1" in notes[0]
    assert "counts is tally now" in notes[1]
    assert "generation 2 begins with epoch" in notes[1]
    assert set(notes) <= set(rehearsed.splitlines())
    epoch = int(notes[1].rsplit(" ", 1)[1])
    first: dict[str, Any] = result_of("inspect", capsys, f"store@{epoch}")
    assert (first["raw"]["generation"], first["raw"]["moved"]) == (2, {"counts": "tally"})
    _, out, _ = run_command("inspect", capsys, f"store@{epoch}")
    assert "Since its parent: counts became tally" in out
    assert "Code that made it: mine.py " in out
    assert SinkFolder("out").visible() == visible  # as the sink of another id showed it
    assert run_command("validate", capsys, "store", "-q")[0] == 0


def test_a_plan_is_restored_with_a_job_that_says_what_became_of_its_operators(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("plan-recovery", capsys, "store", "--out", "plan.json")[0] == 0
    restore = ("plan.json", "--engine", "inline", "--yes", "--job")
    (folder / "job.yaml").write_text(RENAMED)
    code, _, err = run_command("restore", capsys, *restore, "job.yaml", "--dry-run")
    assert code == 2
    assert "moved: [{from: counts, to: tally}]" in err
    other = EXPLAINED.replace("path: out", "path: elsewhere")
    (folder / "job.yaml").write_text(other)  # an operator that goes on is as the plan has it
    code, _, err = run_command("restore", capsys, *restore, "job.yaml")
    assert code == 2
    assert "the plan is for" in err
    (folder / "job.yaml").write_text(EXPLAINED)
    code, out, err = run_command("restore", capsys, *restore, "job.yaml", "-o", "json")
    assert code == 0, err
    assert checked(out)["state_rows"] == 3
    assert "generation 2 begins" in err
    state = result_of("state", capsys, "store", "tally")
    assert {row["word"]: row["n"] for row in state["rows"]} == {"a": 2, "b": 1, "c": 1}


def test_a_copy_may_be_restored_for_a_job_that_has_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("plan-recovery", capsys, "store", "--out", "plan.json")
    (folder / "job.yaml").write_text(EXPLAINED)
    words = ("plan.json", "--engine", "inline", "--yes", "--job", "job.yaml", "--to", "copy")
    code, _, err = run_command("restore", capsys, *words)
    assert code == 0, err
    assert run_command("validate", capsys, "copy", "-q")[0] == 0
    inspected = result_of("inspect", capsys, "copy@latest")
    assert [row["id"] for row in inspected["operators"]] == ["lines", "words", "tally", "out"]
    assert inspected["raw"]["generation"] == 2
