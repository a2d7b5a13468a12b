"""The guide's page for systemd, Kubernetes and Prometheus: its files are valid, and what they name exists."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from abscli.cli import exits
from abscli.cli.main import main
from abscli.engine.drivers.spark import SparkWorkers
from abscli.engine.telemetry.metrics import JobMetrics
from tests.support.guide.blocks import PAGES

SECTION = (PAGES / "operations" / "service.md").read_text()
(UNIT,) = re.findall(r"```ini\n(.*?)```", SECTION, re.DOTALL)
BLOCKS: list[dict[str, Any]] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)]
KINDS = {block["kind"]: block for block in BLOCKS if "kind" in block}
LOOK = [exits.USAGE, exits.FINDING, exits.NO_RECOVERY, exits.JOB_FAILED, exits.NOT_FOUND, exits.UNSUPPORTED]
"""Exit codes that starting again would not mend."""


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT)
    return parser


def rehearsed(args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the command with --dry-run, where its job file lies."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a word\n")
    (tmp_path / "job.yaml").write_text(
        "version: 1\njob: wordcount\noperators:\n  lines:\n    source: {type: text, path: in/*.txt}\n"
        "  out:\n    from: lines\n    sink: {type: jsonl, path: out}\n"
    )
    monkeypatch.chdir(tmp_path)
    return main([*args, "--dry-run"])


def test_the_unit_of_systemd_starts_a_command_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *args = shlex.split(unit()["Service"]["ExecStart"])
    assert Path(program).name == "abs"
    assert rehearsed(args, tmp_path, monkeypatch) == 0


def test_the_unit_is_not_started_again_where_that_would_not_help() -> None:
    service = unit()["Service"]
    assert [int(code) for code in service["RestartPreventExitStatus"].split()] == LOOK
    assert int(service["SuccessExitStatus"]) == exits.TERMINATED
    assert service["KillMode"] == "mixed"  # or systemd ends the JVM with the first signal


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here (Debian: systemd)")
    path = tmp_path / "wordcount.service"
    path.write_text(re.sub("(?m)^(ExecStart=)[^ ]+", rf"\g<1>{shutil.which('true')}", UNIT))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "wordcount.service" not in done.stderr, "it warns of the unit"


def test_the_job_of_kubernetes_runs_a_command_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = KINDS["Job"]
    assert (job["apiVersion"], set(job["spec"])) == ("batch/v1", {"backoffLimit", "podFailurePolicy", "template"})
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": LOOK}}
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a podFailurePolicy asks for it
    (container,) = pod["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    (variable,) = container["env"]
    abs_, *args = container["command"]
    assert abs_ == "abs"
    assert {"/job", args[args.index("--store") + 1], variable["value"]} == mounts
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert args[args.index("--metrics") + 1].endswith(f":{annotations['prometheus.io/port']}")
    args[1], args[args.index("--store") + 1] = "job.yaml", "snapshots"
    assert rehearsed(args, tmp_path, monkeypatch) == 0


def test_executors_of_kubernetes_mount_the_store_where_the_driver_does() -> None:
    lines = KINDS["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()
    conf = dict(line.split() for line in lines)
    (container,) = KINDS["Job"]["spec"]["template"]["spec"]["containers"]
    assert conf["spark.kubernetes.container.image"] == container["image"]
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.snapshots"
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in KINDS["Job"]["spec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert conf[f"{volume}.mount.path"] == mounted["snapshots"]
    assert conf[f"{volume}.options.claimName"] == claims["snapshots"]


def test_alerts_ask_for_figures_that_are_served() -> None:
    shown = generate_latest(JobMetrics("words").registry).decode()
    names = {sample.name for family in text_string_to_metric_families(shown) for sample in family.samples}
    names |= {family.name for family in text_string_to_metric_families(shown)}
    (rules,) = (group["rules"] for block in BLOCKS if "groups" in block for group in block["groups"])
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "annotations"}
        assert set(re.findall(r"abs_\w+", rule["expr"])) <= names, rule["alert"]
        assert set(re.findall(r"abs_\w+", rule["annotations"]["summary"])) <= names, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_the_page_shows_what_is_served() -> None:
    shown = {line.partition(" ")[0] for line in re.findall(r"^    (abs_.*)$", SECTION, re.MULTILINE)}
    served = {
        line.partition(" ")[0].replace('job="words"', 'job="wordcount"')
        for line in generate_latest(JobMetrics("words").registry).decode().splitlines()
    }
    assert shown <= served


def test_spark_on_kubernetes_encrypts_so_that_the_run_is_not_refused() -> None:
    conf = dict(line.split() for line in KINDS["ConfigMap"]["data"]["spark-defaults.conf"].splitlines())
    (container,) = KINDS["Job"]["spec"]["template"]["spec"]["containers"]
    master = container["command"][container["command"].index("--master") + 1]
    context = SimpleNamespace(master=master, getConf=lambda: conf)
    assert SparkWorkers(master, context).in_clear is None
    assert SparkWorkers(master, SimpleNamespace(master=master, getConf=dict)).in_clear is not None
