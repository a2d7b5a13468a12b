"""Plans for Flink's checkpoints and the copies that are made of them, through the commands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.commands import answer_of, result_of, run_command
from tests.support.flink.cases import CANONICAL, HASHMAP, OPEN, latest


def test_the_newest_whole_checkpoint_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    told = result_of("plan-recovery", capsys, OPEN)
    assert told["body"]["epoch"] == 2
    assert [row["epoch"] for row in told["body"]["skipped"]] == [3]
    assert told["body"]["command"].startswith("flink run -s file:///")
    code, out, _ = run_command("plan-recovery", capsys, OPEN)
    assert code == 0
    assert "never completed" in out


def test_a_lost_properties_tail_is_mended_in_a_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own, plan, copy = tmp_path / "own", tmp_path / "plan.json", tmp_path / "copy"
    shutil.copytree(CANONICAL, own)
    data = (own / "_metadata").read_bytes()
    (own / "_metadata").write_bytes(data[: data.rindex(b"\xac\xed\x00\x05") + 30])
    told = result_of("plan-recovery", capsys, own, "--out", plan)
    assert told["body"]["command"] is None
    assert "properties" in told["body"]["repairs"][0]
    assert result_of("restore", capsys, plan, "--to", copy)["command"] == f"flink run -s file://{copy} JOB.jar"
    assert result_of("validate", capsys, copy)["epochs"][0]["verdict"] == "complete"
    assert result_of("diff", capsys, copy, CANONICAL)["identical"] is True


def test_a_plan_that_was_changed_after_it_was_made_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    result_of("plan-recovery", capsys, CANONICAL, "--out", plan)
    text = plan.read_text()
    plan.write_text(re.sub(r'"files": \d+', '"files": 999', text))
    assert plan.read_text() != text
    for more in (("--dry-run",), ("--to", tmp_path / "copy")):
        code, _, err = run_command("restore", capsys, plan, *more)
        assert (code, "was changed after it was made" in err) == (2, True)


def test_a_dry_run_notices_a_file_that_has_gone_since(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own, plan = Path(shutil.copytree(CANONICAL, tmp_path / "own")), tmp_path / "plan.json"
    result_of("plan-recovery", capsys, own, "--out", plan)
    state = next(path for path in own.iterdir() if path.name != "_metadata")
    state.rename(tmp_path / "away")
    code, _, err = run_command("restore", capsys, plan, "--dry-run")
    assert (code, state.name in err) == (4, True)


@pytest.mark.parametrize("option", [["--failed", "a/0"], ["--distrust", "a/0"], ["--parallelism", "a=4"],
                                    ["--strategy", "repair"], ["--query-id", "x"], ["--keep-in-flight"]])  # fmt: skip
def test_options_that_mean_nothing_for_flink_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command("plan-recovery", capsys, CANONICAL, *option)
    assert code == 2
    assert f"'{option[0]}': means nothing for a checkpoint of Flink; there --search and --path-map do" in err


@pytest.mark.parametrize("option", [["--job", "job.yaml"], ["--until", "end"], ["--policy", "aligned"],
                                    ["--accept-missing-parts"]])  # fmt: skip
def test_what_is_of_a_job_means_nothing_for_a_copy(
    option: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    result_of("plan-recovery", capsys, CANONICAL, "--out", plan)
    code, _, err = run_command("restore", capsys, plan, "--to", tmp_path / "copy", *option)
    assert (code, f"'{option[0]}': means nothing for a plan of a checkpoint of Flink" in err) == (2, True)


def test_a_plan_is_carried_out_from_another_folder_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the store, the directories to search and the new places of files named from where it was made."""
    shutil.copytree(HASHMAP, tmp_path / "here/job")
    moved = sorted(path for path in (tmp_path / "here/job/chk-2").iterdir() if path.name != "_metadata")[:5]
    for number, path in enumerate(moved):
        folder = tmp_path / "here" / ("one" if number % 2 else "other")
        folder.mkdir(exist_ok=True)
        shutil.move(path, folder)
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = ("--search", "one", "--path-map", "/gone=other", "--out", "plan.json")
    made = result_of("plan-recovery", capsys, "job", *options)
    monkeypatch.chdir(tmp_path / "away")
    assert answer_of("restore", capsys, "../here/plan.json", "--dry-run") == made
    result_of("restore", capsys, "../here/plan.json", "--to", "copy")
    assert result_of("validate", capsys, "copy")["epochs"][0]["verdict"] == "complete"


def test_a_dry_run_shows_the_plan_in_the_form_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = result_of("plan-recovery", capsys, CANONICAL, "--out", plan)
    assert answer_of("restore", capsys, plan, "--dry-run") == made
    code, out, _ = run_command("restore", capsys, plan, "--dry-run", "-o", "ndjson")
    assert (code, json.loads(out.splitlines()[0])["schema"]) == (0, "abs.plan")


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_copy_may_go_to_a_local_uri(scheme: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    result_of("plan-recovery", capsys, CANONICAL, "--out", plan)
    result_of("restore", capsys, plan, "--to", f"{scheme}{tmp_path}/copy")
    assert (tmp_path / "copy/_metadata").exists()


def test_a_checkpoint_that_has_changed_makes_a_plan_stale(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own, plan = tmp_path / "own", tmp_path / "plan.json"
    shutil.copytree(CANONICAL, own)
    result_of("plan-recovery", capsys, own, "--out", plan)
    code, _, err = run_command("restore", capsys, plan)
    assert code == 2
    assert "--to" in err
    assert run_command("restore", capsys, plan, "--to", own)[0] == 2
    assert run_command("restore", capsys, plan, "--dry-run")[0] == 0
    shutil.copy(latest(HASHMAP) / "_metadata", own / "_metadata")
    assert run_command("restore", capsys, plan, "--to", tmp_path / "copy")[0] == 5
    (own / "_metadata").unlink()
    assert run_command("restore", capsys, plan, "--to", tmp_path / "copy")[0] in (5, 10)
    assert not (tmp_path / "copy").exists()


def test_a_checkpoint_with_a_lost_file_has_no_recovery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = Path(shutil.copytree(CANONICAL, tmp_path / "own"))
    max((path for path in own.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size).unlink()
    code, _, err = run_command("plan-recovery", capsys, own)
    assert code == 4
    assert "missing" in err
    assert "--search" in err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"schema": "abs.flink-plan", "version": "1.1", "store": "/data/job"}', 2),
        ('{"schema": "abs.plan", "version": "2.0", "store": "/data/job"}', 12),
        ('{"schema": "abs.plan", "version": "1.0", "store": "/data/job"}', 2),
    ],
)
def test_a_plan_that_is_invalid_exits_with_2_and_one_of_another_version_with_12(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, code: int
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    found, _, err = run_command("restore", capsys, plan, "--to", tmp_path / "copy")
    assert found == code
    if code == 12:
        assert f"hint: plan again: abs plan-recovery /data/job --out {plan}" in err
