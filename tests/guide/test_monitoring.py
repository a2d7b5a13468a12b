"""The guide's page for CI, cron and Kubernetes: its files are valid, and its commands do what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from abscli.cli.main import main
from formats.job.written import job_yaml
from formats.native import layout
from tests.support.guide.blocks import PAGES
from tests.support.schemas import checked
from tests.support.stores.small import FIRST, loop_job, make_store

SECTION = (PAGES / "operations" / "monitoring.md").read_text()
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)]
CRON = [line[4:] for line in SECTION.splitlines() if re.match(r"    [*0-9/]+( |\t)+[*0-9]", line)]


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, Any]:
    """For `subprocess.run`: a shell that has `abs`, and a store with epochs 1, 2 and 4."""
    make_store(tmp_path / "store")
    write_job(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("abs", f"exec {sys.executable} -m abscli.cli.main"), ("pip", "exit 0 #")):
        (tools / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "STORE": str(tmp_path / "store"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip
    return {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}


def write_job(folder: Path) -> Path:
    """Write the job file of the store that `make_store` makes."""
    file = folder / "job.yaml"
    file.write_text(job_yaml(loop_job()))
    return file


def test_the_steps_of_github_actions_run_and_leave_what_they_upload(shell: dict[str, Any]) -> None:
    (steps,) = (block for block in BLOCKS if isinstance(block, list))
    assert all(set(step) <= {"name", "run", "uses", "if", "with"} and ("run" in step) != ("uses" in step)
               for step in steps)  # fmt: skip
    for step in steps:
        if "run" in step:  # GitHub's shell is `bash -e`
            script = step["run"].replace("@12", "@1").replace("@13", "@2")
            done = subprocess.run(["bash", "-e", "-c", script], **shell, check=False)
            assert done.returncode == 0, done.stderr
    (uploaded,) = (step["with"]["path"] for step in steps if "uses" in step)
    found = {path.name: path.read_text() for path in Path(shell["cwd"]).glob(uploaded)}
    assert set(found) == {"validate.json", "changes.ndjson"}
    assert checked(found["validate.json"])["latest_restorable"] == 4
    assert json.loads(found["changes.ndjson"].splitlines()[0])["schema"] == "abs.diff"


def test_the_lines_of_cron_are_silent_unless_something_is_wrong(shell: dict[str, Any], tmp_path: Path) -> None:
    assert len(CRON) == 2
    for line in CRON:
        *when, command = line.split(None, 5)
        assert all(re.fullmatch(r"\*(/\d+)?|\d+", field) for field in when)
        assert "%" not in command  # cron would make a line end of it
        command = command.replace("cd /srv/wordcount && ", "").replace("validate snapshots", "validate store")
        command = command.replace("/tmp/abs.out", "abs.out")
        assert "--max-age 10m" not in command or "--quick" in command
        young = command.replace("--max-age 10m", "--max-age 36500d")
        assert subprocess.run(["sh", "-c", young], **shell, check=False).stdout == ""
        (tmp_path / "store" / layout.tasks_file(4, FIRST)).rename(tmp_path / "away")
        done = subprocess.run(["sh", "-c", young], **shell, check=False)
        assert "missing-file" in done.stdout
        (tmp_path / "away").rename(tmp_path / "store" / layout.tasks_file(4, FIRST))


def test_the_cron_job_of_kubernetes_runs_a_command_that_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = (block for block in BLOCKS if isinstance(block, dict))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert set(job["spec"]) == {"schedule", "concurrencyPolicy", "jobTemplate"}
    assert len(job["spec"]["schedule"].split()) == 5
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a Job refuses the default
    (container,) = pod["containers"]
    store, job_folder = container["volumeMounts"]
    assert [store["name"], job_folder["name"]] == [volume["name"] for volume in pod["volumes"]]
    abs_, *args = container["command"]
    assert (abs_, args[1], all(isinstance(arg, str) for arg in args)) == ("abs", store["mountPath"], True)
    assert args[args.index("--job") + 1] == f"{job_folder['mountPath']}/job.yaml"
    make_store(tmp_path / "store")
    args[1] = str(tmp_path / "store")
    args[args.index("--job") + 1] = str(write_job(tmp_path))
    assert main(args) == 3
    assert [demand.split()[0] for demand in checked(capsys.readouterr().out)["unsatisfied"]] == ["--max-age"]
    args[args.index("10m")] = "36500d"
    assert main(args) == 0
    capsys.readouterr()
