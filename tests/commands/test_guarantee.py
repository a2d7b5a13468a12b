"""`abs topology --guarantee`, and the line that `abs run` begins with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abscli.cli.main import main
from tests.support.jobs.small import write_words
from tests.support.schemas import checked

JOB = """version: 1
job: words
parallelism: 2
operators:
  lines: {source: {type: text, path: in/*.txt}}
  counts: {from: lines, reduce: {key: [line], n: {count: "*"}}}
  out: {from: counts, sink: {type: jsonl, path: out}}
"""
PYTHON = """
from abscli import Job, count
job = Job("words", parallelism=2)
job.text("in/*.txt", id="lines").group_by("line").agg(n=count(), id="counts").to_jsonl("out", id="out")
"""
PLAN = """{"jid": "1", "name": "clicks", "nodes": [
    {"id": "a", "parallelism": 1, "description": "Source: clicks"},
    {"id": "b", "parallelism": 1, "description": "Sink: out",
     "inputs": [{"num": 0, "id": "a", "ship_strategy": "FORWARD", "exchange": "pipelined_bounded"}]}]}"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_words(tmp_path, files=2, lines=5)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_a_job_of_python_has_the_guarantee_of_the_same_job_in_yaml(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "guaranteed_words.py").write_text(PYTHON)
    values = []
    for name in ("job.yaml", "guaranteed_words.py"):
        words = ["topology", str(job / name), "--guarantee", "--policy", "at-least-once", "-o", "json"]
        assert main(words) == 0
        values.append(checked(capsys.readouterr().out))
    assert values[0] == values[1]
    assert (values[0]["state"], values[0]["output"]) == ("at-least-once", "at-least-once")
    assert [link["weakness"] for link in values[0]["links"]] == ["policy"]


def test_each_form(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", str(job / "job.yaml"), "--guarantee", "-o", "ndjson"]) == 0
    header, sink = capsys.readouterr().out.splitlines()
    assert (checked(header)["policy"], json.loads(sink)["type"]) == ("aligned", "sink")
    assert main(["topology", str(job / "job.yaml"), "--guarantee", "--check"]) == 0
    shown = capsys.readouterr()
    assert "exactly-once" in shown.out
    assert "can be run" in shown.err


def test_of_a_job_of_flink_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text(PLAN)
    assert main(["topology", str(tmp_path / "plan.json"), "--guarantee", "-o", "json"]) == 0
    value = checked(capsys.readouterr().out)
    assert (value["state"], value["output"]) == (None, None)


@pytest.mark.parametrize(
    ("more", "option"), [(["--policy", "aligned"], "--policy"), (["--guarantee", "-o", "svg"], "--output")]
)
def test_what_means_nothing_is_refused(
    job: Path, more: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", str(job / "job.yaml"), *more]) == 2
    assert option in capsys.readouterr().err


def test_a_run_says_the_guarantee_of_the_policy_that_it_has(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--resume goes on under the policy of the last attempt, which is not named again."""
    words = ["run", str(job / "job.yaml"), "--store", str(job / "store"), "--engine", "inline"]
    assert main([*words, "--policy", "at-least-once"]) == 0
    first = capsys.readouterr()
    assert main([*words, "--resume"]) == 0
    again = capsys.readouterr()
    weak = "guarantee: at-least-once from end to end, policy at-least-once (counts: several inputs under"
    for shown in (first, again):
        (line,) = [line for line in shown.err.splitlines() if line.startswith("guarantee: ")]
        assert line.startswith(weak)
        assert "guarantee" not in shown.out


def test_a_restore_and_a_drill_say_it_as_the_run_does(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, store, plan = str(job / "job.yaml"), str(job / "store"), str(job / "plan.json")
    assert main(["run", file, "--store", store, "--engine", "inline", "--policy", "at-least-once"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("guarantee: ")]
    assert main(["plan-recovery", store, "--out", plan]) == 0
    capsys.readouterr()
    for words in (["drill", store, "--job", file], ["restore", plan, "--job", file, "--yes"]):
        assert main([*words, "--engine", "inline"]) == 0
        shown = capsys.readouterr()
        assert [text for text in shown.err.splitlines() if text.startswith("guarantee: ")] == [line], shown.err
        assert "guarantee" not in shown.out


def test_quiet_says_nothing_of_it(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(job / "job.yaml"), "--store", str(job / "store"), "--engine", "inline", "--quiet"]
    assert main(words) == 0
    assert "guarantee" not in capsys.readouterr().err


def test_in_a_log_for_programs_it_is_an_event(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(job / "job.yaml"), "--store", str(job / "store"), "--engine", "inline", "--log-format", "json"]
    assert main(words) == 0
    lines = [checked(line, "abs.log") for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line.get("event") == "guarantee"]
    assert (line["policy"], line["state"], line["output"]) == ("aligned", "exactly-once", "exactly-once")


def test_a_run_that_is_refused_promises_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(job / "job.yaml"), "--store", str(job / "store"), "--engine", "inline"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert "guarantee" not in capsys.readouterr().err


RUNNING_TOP = JOB.replace("out: {from: counts", "top: {from: counts, reduce: {key: [line], most: {top_n: n, n: 3}}}\n"
                          "  out: {from: top")  # fmt: skip


def test_a_check_names_what_weakens_the_guarantee(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "job.yaml").write_text(RUNNING_TOP)
    assert main(["topology", str(job / "job.yaml"), "--check"]) == 0
    assert "top: counts each update of a reduce as a row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("reduce: {", "window: {time: at, tumbling: 1m}, reduce: {", "source lines has no event time"),
        ("key: [line]", "key: [word]", "no column 'word'"),
        ("out: {from: counts", "steps: {from: counts, map: 'steps_of_topology:none'}\n  out: {from: steps", "steps_of"),
    ],
)
def test_a_topology_is_not_shown_if_no_input_would_let_it_run(
    job: Path, before: str, after: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of_json = JOB.replace("{type: text, path: in/*.txt}", "{type: jsonl, path: nowhere, schema: {line: string}}")
    (job / "job.yaml").write_text(of_json.replace(before, after))
    (job / "steps_of_topology.py").write_text("")
    assert main(["topology", str(job / "job.yaml")]) == 2
    assert message in capsys.readouterr().err
    assert main(["topology", str(job / "job.yaml"), "--no-check"]) == 0


def test_modules_elsewhere_and_graphs_of_other_systems_are_not_checked(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = JOB.replace("out: {from: counts", "steps: {from: counts, map: 'elsewhere:f'}\n  out: {from: steps")
    foreign = JOB.replace("out: {from: counts", "steps: {from: counts}\n  out: {from: steps").replace("[line]", "[x]")
    for text in (elsewhere, foreign):
        (job / "job.yaml").write_text(text)
        assert main(["topology", str(job / "job.yaml")]) == 0


def test_a_dry_run_shows_the_interval_and_warns_of_a_job_without_a_sink(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job)
    words = ["run", "job.yaml", "--store", "store", "--engine", "inline", "--dry-run"]
    for given, shown in (([], "every 1s"), (["--interval", "90"], "every 1m30s"), (["--interval", "50ms"], "0.05s")):
        assert main([*words, *given]) == 0
        said = capsys.readouterr()
        assert shown in said.out
        assert "has no sink" not in said.err
    Path("job.yaml").write_text(JOB.replace("  out: {from: counts, sink: {type: jsonl, path: out}}\n", ""))
    assert main(words) == main(["run", "job.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().err.count("words has no sink: its rows are written nowhere") == 2
