"""A current folder that came from somebody else: its modules are not imported, and its settings name no target."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.guard.checkpoints import FLINK
from tests.guard.stores import evil_module
from tests.guard.victim import Victim
from tests.support.stores.small import make_store

PACKAGES = ("abscli", "formats", "msgspec", "numpy", "pyarrow", "typer", "click", "rich", "yaml", "obstore", "pyspark",
            "psycopg", "confluent_kafka", "pyiceberg", "deltalake", "jinja2", "sitecustomize", "usercustomize")  # fmt: skip  # noqa: E501
JOB = """version: 1
job: reach
operators:
  lines: {source: {type: text, path: in/*.txt}}
  out: {from: lines, sink: {type: jsonl, path: out}}
"""


@pytest.fixture(scope="module")
def hostile(somebody: Victim) -> Victim:
    """A victim whose current folder has a module in place of each that there is, a store, a job of Flink, and a job."""
    for name in (*sys.stdlib_module_names, *PACKAGES):
        evil_module(somebody.work / f"{name}.py")
    make_store(somebody.work / "store")
    (job,) = (FLINK / "hashmap-plain").glob("*/")
    shutil.copytree(job, somebody.work / "flink")
    (somebody.work / "job.yaml").write_text(JOB)
    return somebody


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "line",
    [
        "validate store", "report store --out OUT/r.html", "inspect flink@2 --stats", "copy store OUT/copy",
        "topology job.yaml", "drill store --job job.yaml --engine inline",
        "state flink@2 --all --out OUT/all", "simulate job.yaml --exhaustive --policy aligned --subtasks 1 --records 1",
    ],
)  # fmt: skip
def test_modules_in_the_current_folder_are_not_imported(hostile: Victim, line: str) -> None:
    out = hostile.place("out", str(len(list(hostile.out.iterdir()))))
    words = [word.replace("OUT", str(out)) for word in line.split()]
    reads = [hostile.work / name for name in ("store", "flink", "job.yaml")]
    ran = hostile.run(words, reads=reads, changes=[out, hostile.work / "store" / "lock"])
    ran_at_all = list(hostile.work.glob("*.ran"))
    for marker in ran_at_all:
        marker.unlink()
    assert ran_at_all == []
    assert [str(event) for event in ran.violations if event.target.endswith(".py")] == []
    assert ran.code != 1, ran.err


SETTINGS = """
[validate]
job = "evil_job.py"
broker = "{kafka}"
broker-config = "evil.properties"
endpoint = "http://{s3}"
[report]
job = "evil_job.py"
out = "{precious}"
[state]
out = "{precious}"
[plan-recovery]
out = "{precious}"
[gc]
job = "evil_job.py"
[drill]
job = "evil_job.py"
"""


def test_settings_in_the_current_folder_name_no_target(somebody: Victim) -> None:
    work = somebody.work
    shutil.rmtree(work / "mine", ignore_errors=True)
    make_store(work / "mine")
    precious = somebody.elsewhere / "precious.html"
    precious.write_text("mine")
    evil_module(work / "evil_job.py")
    at = somebody.listeners.at
    (work / "abs.toml").write_text(SETTINGS.format(kafka=at("kafka"), s3=at("s3"), precious=precious))
    reports = []
    for line in ("validate mine", "report mine", "plan-recovery mine", "gc mine", "drill mine"):
        ran = somebody.run(line.split(), reads=[work / "mine"], changes=[work / "mine" / "lock"])
        reports.append(ran.report())
    (work / "abs.toml").unlink()
    assert precious.read_text() == "mine"
    assert reports == [""] * len(reports)


def test_other_settings_in_the_current_folder_hold(somebody: Victim) -> None:
    (somebody.work / "abs.toml").write_text('output = "json"\n')
    shutil.rmtree(somebody.work / "mine", ignore_errors=True)
    make_store(somebody.work / "mine")
    ran = somebody.run(["inspect", "mine"], reads=[somebody.work / "mine"])
    (somebody.work / "abs.toml").unlink()
    assert ran.report() == ""
    assert ran.out.startswith("{")
