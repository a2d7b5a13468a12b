"""`--job` of `validate`, `report` and `gc`: only a job file that the user names says whose targets are asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli import open_store, read_plan
from abscli.cli.main import main
from formats.plan import encode
from tests.support.commands import answer_of, run_command
from tests.support.jobs.small import write_words
from tests.support.schemas import checked

JOB = """version: 1
job: words
parallelism: 2
operators:
  lines: {source: {type: text, path: in/*.txt}}
  counts: {from: lines, reduce: {key: [line], n: {count: "*"}}}
  out: {from: counts, sink: {type: jsonl, path: out}}
  also: {from: counts, sink: {type: delta, path: table}}
"""
NOT_NAMED = "target not named (--job)"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that has run to its end, in the current folder."""
    write_words(tmp_path, files=2, lines=5)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "job.yaml", "--store", "store", "--engine", "inline", "--quiet"]) == 0
    return tmp_path


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    capsys.readouterr()
    return partial(answer_of, "validate", capsys)


def sinks(answer: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {sink["sink"]: (sink["verdict"], sink["reason"]) for sink in answer["sinks"]}


@pytest.mark.parametrize("options", [[], ["--quick"], ["--strict"]])
def test_without_a_job_file_every_sink_is_unchecked(
    job: Path, answer: Callable[..., dict[str, Any]], options: list[str]
) -> None:
    shutil.rmtree(job / "out")
    result = answer("store", *options)
    assert sinks(result) == {"also": ("unchecked", NOT_NAMED), "out": ("unchecked", NOT_NAMED)}
    reasons = [epoch["why_unchecked"] for epoch in result["epochs"] if epoch["why_unchecked"]]
    assert reasons
    assert {reason for why in reasons for reason in why.values()} == {
        f"sink out: {NOT_NAMED}", f"sink also: {NOT_NAMED}"
    }  # fmt: skip


def test_with_the_job_file_the_targets_are_asked(job: Path, answer: Callable[..., dict[str, Any]]) -> None:
    result = answer("store", "--job", "job.yaml", "--strict")
    assert sinks(result) == {"also": ("exact", None), "out": ("exact", None)}
    assert {sink["target"] for sink in result["sinks"]} == {str(job / "out"), str(job / "table")}
    assert all(not epoch["why_unchecked"] for epoch in result["epochs"])


def test_a_missing_part_makes_the_target_incomplete(job: Path, answer: Callable[..., dict[str, Any]]) -> None:
    next((job / "out").glob("part-*")).unlink()
    assert sinks(answer("store", "--job", "job.yaml", code=3))["out"] == ("incomplete", None)
    assert sinks(answer("store"))["out"] == ("unchecked", NOT_NAMED)


def test_a_part_that_no_epoch_names_makes_the_target_foreign(job: Path, answer: Callable[..., dict[str, Any]]) -> None:
    (job / "out" / "part-00007-0000000001.jsonl").write_text("{}\n")
    assert sinks(answer("store", "--job", "job.yaml", code=3))["out"] == ("foreign", None)


def test_strict_fails_for_a_target_that_was_named_and_cannot_be_asked(
    job: Path, answer: Callable[..., dict[str, Any]]
) -> None:
    shutil.rmtree(job / "out")
    reason = f"{job / 'out'} is missing"
    assert sinks(answer("store", "--job", "job.yaml"))["out"] == ("unknown", reason)
    strict = answer("store", "--job", "job.yaml", "--strict", code=3)
    assert strict["unsatisfied"] == [f"--strict: the target of sink out could not be checked: {reason}"]


def test_the_place_of_a_sink_is_that_of_the_job_file(job: Path, answer: Callable[..., dict[str, Any]]) -> None:
    """A moved output folder is found where the job file now says that it is, not where the store says."""
    shutil.move(job / "out", job / "moved")
    (job / "job.yaml").write_text(JOB.replace("path: out", "path: moved"))
    assert sinks(answer("store", "--job", "job.yaml", "--strict"))["out"] == ("exact", None)


def test_a_sink_that_the_job_file_has_no_longer_is_unchecked(job: Path, answer: Callable[..., dict[str, Any]]) -> None:
    (job / "job.yaml").write_text("".join(line for line in JOB.splitlines(True) if not line.startswith("  also:")))
    assert sinks(answer("store", "--job", "job.yaml"))["also"] == ("unchecked", "the job file has no such sink")


def test_a_renamed_sink_is_found_by_what_the_job_file_says_of_it(
    job: Path, answer: Callable[..., dict[str, Any]]
) -> None:
    renamed = JOB.replace("  out:", "  shown:").replace("operators:", "moved: [{from: out, to: shown}]\noperators:")
    (job / "job.yaml").write_text(renamed)
    assert sinks(answer("store", "--job", "job.yaml", "--strict"))["shown"] == ("exact", None)


@pytest.mark.parametrize("command", ["validate", "report", "gc"])
def test_the_file_of_another_job_is_refused(job: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (job / "other.yaml").write_text(JOB.replace("job: words", "job: letters"))
    more = ["--out", "r.html"] if command == "report" else []
    code, out, err = run_command(command, capsys, "store", "--job", "other.yaml", *more)
    assert (code, out) == (2, "")
    assert "job 'words'" in err
    assert "other.yaml describes job 'letters'" in err


def test_a_report_lists_what_was_not_checked_and_with_the_job_file_asks(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next((job / "out").glob("part-*")).unlink()
    capsys.readouterr()
    plain = checked(_json(capsys, "report", "store"))
    assert f"sink out: {NOT_NAMED}" in {one["reason"] for one in plain["unchecked"]}
    assert not {trouble["code"] for trouble in plain["problems"]} & {"sink-part-missing"}
    asked = checked(_json(capsys, "report", "store", "--job", "job.yaml"))
    assert {trouble["code"] for trouble in asked["problems"]} >= {"sink-part-missing"}


def test_a_report_of_a_saved_file_takes_no_job_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "v.json").write_text(_json(capsys, "validate", "store"))
    code, _, err = run_command("report", capsys, "v.json", "--job", "job.yaml", "--out", "r.html")
    assert code == 2
    assert "--job" in err


def test_a_checkpoint_of_another_system_takes_no_job_file(
    job: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "spark" / "commits").mkdir()
    (tmp_path / "spark" / "metadata").write_text('{"id":"b1ea62f2-3b6a-4a4e-9f5b-7f1f4f7c2f10"}')
    code, _, err = run_command("validate", capsys, "spark", "--job", "job.yaml")
    assert code == 2, err
    assert "--job" in err


@pytest.fixture
def remote_plan(job: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan that names a store on another host, which a test fails if it contacts."""
    plan = open_store("store").plan().plan
    (job / "plan.json").write_bytes(encode(msgspec.structs.replace(plan, store="hdfs://127.0.0.1:9/store")))

    def contacted(*args: object, **options: object) -> None:
        raise AssertionError(f"{args} was opened")

    monkeypatch.setattr("abscli.stores.plans.open_storage", contacted)
    return "plan.json"


def test_the_store_of_a_plan_on_another_host_is_contacted_only_if_it_is_named(
    remote_plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_command("restore", capsys, remote_plan, "--job", "job.yaml", "--dry-run")
    assert code == 2
    assert "only if you name it: --store hdfs://127.0.0.1:9/store" in err
    code, _, err = run_command("restore", capsys, remote_plan, "--job", "job.yaml", "--store", "store", "--dry-run")
    assert code == 2
    with pytest.raises(AssertionError, match="was opened"):
        read_plan(remote_plan).prepare(job="job.yaml", store="hdfs://127.0.0.1:9/store")


def test_the_command_that_carries_out_a_plan_of_another_host_names_its_store(
    remote_plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = read_plan(remote_plan)
    assert "abs restore plan.json --store hdfs://127.0.0.1:9/store --job JOB" in plan.text(plan_file="plan.json")


def test_hints_name_the_job_file_that_was_given(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "out" / "part-00007-0000000001.jsonl").write_text("{}\n")
    _, out, _ = run_command("validate", capsys, "store", "--job", "job.yaml")
    assert "abs run job.yaml --store store --resume" in out


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words, "-o", "json"]) in (0, 3)
    return capsys.readouterr().out
