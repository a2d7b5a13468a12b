"""The guide's page of jobs in Python: its job is the YAML that it shows, and its test passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from abscli.examples.inputs import write_job
from formats.job.file import parse_job
from tests.support.guide.blocks import PAGES

SECTION = (PAGES / "jobs" / "python.md").read_text()
WORDS, LOOP, TEST = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
(YAML,) = re.findall(r"(?m)^    \$ abs topology wordjob.py -o yaml\n((?:    .*\n)+)", SECTION)
(DIFFERS,) = re.findall(r"(?m)^    (AssertionError: .*\n(?:    .*\n)+)", SECTION)

NUMBERED = """
import pyarrow as pa
from abscli import Job

seen = 0

def number(batch):
    global seen
    numbers = pa.array(range(seen, seen + batch.num_rows))
    seen += batch.num_rows
    return pa.record_batch([batch["line"], numbers], names=["line", "number"])

job = Job("numbered")
job.text("corpus/*.txt", id="lines").map(number).to_jsonl("out", id="printed")
if __name__ == "__main__":
    job.test({"lines": ["a b a", "c a", "b"]})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wordjob.py").write_text(WORDS)
    return tmp_path


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)


def test_the_file_is_the_yaml(folder: Path) -> None:
    done = called(folder, "-m", "abscli.cli.main", "topology", "wordjob.py", "-o", "yaml")
    assert done.stdout == re.sub("(?m)^    ", "", YAML)


@pytest.mark.integration
def test_the_loop_is_the_one_that_is_shipped(tmp_path: Path) -> None:
    yaml = write_job("imports", tmp_path / "example")
    python = yaml.with_name("loopjob.py")
    python.write_text(LOOP)
    done = called(python.parent, "-m", "abscli.cli.main", "topology", "loopjob.py", "-o", "yaml")
    (tmp_path / "printed.yaml").write_text(done.stdout)
    assert parse_job(tmp_path / "printed.yaml") == parse_job(yaml)


def test_the_test_passes_and_leaves_nothing(folder: Path) -> None:
    (folder / "test_wordjob.py").write_text(TEST)
    done = called(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"wordjob.py", "test_wordjob.py"}


def test_what_does_not_pass_is_shown_as_the_page_does(folder: Path) -> None:
    (folder / "numbered.py").write_text(NUMBERED)
    done = called(folder, "numbered.py")
    shown = [line for line in done.stderr.splitlines() if not line.startswith(("Traceback", "  File", "    "))]
    first, counts, gone, _, new = re.sub("(?m)^    ", "", DIFFERS).splitlines()
    pattern = re.sub(r"\d+", r"\\d+", re.escape(first)).replace(r"\d+,\ \d+", r"[\d, ]+")
    for expected in (pattern, re.escape(counts), re.escape(gone), re.sub(r"\d+", r"\\d+", re.escape(new))):
        assert any(re.fullmatch(expected, line) for line in shown), done.stderr
