"""Files of Python that are named as jobs: what is imported, how often, and what goes wrong in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import abscli
from abscli import BadFile, Job
from abscli.cli.main import main
from abscli.engine.drivers.spark import _zip_modules
from abscli.engine.functions import load
from abscli.jobs.files import read_job
from formats.job.file import parse_job_bytes
from tests.support.commands import result_of, run_command

FILE = """\
import pyarrow as pa
import pyarrow.compute as pc

from abscli import Job, count


def split(batch):
    return pa.record_batch([pc.split_pattern(batch["line"], " ").flatten()], names=["word"])


job = Job("wordcount", parallelism=2)
lines = job.text("in/*.txt", id="lines")
counts = lines.flat_map(split).group_by("word").agg(n=count(), id="counts")
counts.to_jsonl("out", id="printed")
"""
YAML = """version: 1
job: wordcount
parallelism: 2
operators:
  lines:
    source: {type: text, path: in/*.txt}
  split: {from: lines, flat_map: 'NAME:split'}
  counts:
    from: split
    reduce:
      key: [word]
      n: {count: '*'}
  printed:
    from: counts
    sink: {type: jsonl, path: out}
"""

topology = partial(run_command, "topology")


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports of its own is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder: Path, text: str = FILE, name: str = "wordjob") -> Path:
    """A job file, and an input beside it."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "in" / "a.txt").write_text("a b a\nc a\n")
    file = folder / f"{name}.py"
    file.write_text(text)
    return file


# -- the commands ----------------------------------------------------------------------------------------------


def test_topology_prints_it_as_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = topology(capsys, write(tmp_path), "-o", "yaml")
    assert (code, err) == (0, "")
    assert out == YAML.replace("NAME", "wordjob")
    (tmp_path / "job.yaml").write_text(out)
    assert topology(capsys, tmp_path / "job.yaml", "-o", "yaml")[1] == out
    of_python = result_of("topology", capsys, tmp_path / "wordjob.py")
    assert of_python == result_of("topology", capsys, tmp_path / "job.yaml")


def test_what_the_file_prints_is_no_result(tmp_path: Path) -> None:
    file = write(tmp_path, FILE + 'print("printed")\n')
    done = subprocess.run(
        [sys.executable, "-m", "abscli.cli.main", "topology", str(file), "-o", "json"], capture_output=True, text=True
    )
    assert json.loads(done.stdout)["job"] == "wordcount"
    assert done.stderr == "printed\n"


def test_every_command_that_takes_a_job_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    inline = ("--engine", "inline")
    for words in (
        ["topology", "wordjob.py", "--check"],
        ["run", "wordjob.py", "--store", "store", *inline, "--dry-run"],
        ["run", "wordjob.py", "--store", "store", *inline],
        ["run", "wordjob.py", "--store", "store", *inline, "--resume"],
        ["diff", "store", "wordjob.py", "--exit-code"],
        ["plan-recovery", "--topology", "wordjob.py", "--failed", "counts/0"],
        ["plan-recovery", "store", "--out", "plan.json"],
        ["restore", "plan.json", "--job", "wordjob.py", "--to", "again", *inline, "--yes"],
        ["drill", "store", "--job", "wordjob.py", *inline],
        ["rebuild", "store", "--job", "wordjob.py"],
        ["simulate", "wordjob.py", "--runs", "1"],
    ):
        assert main(words) == 0, f"{words}: {capsys.readouterr().err}"
    rows = [json.loads(line) for path in sorted(Path("out").glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert {row["word"]: row["n"] for row in rows} == {"a": 3, "b": 1, "c": 1}


def test_a_job_goes_on_from_its_yaml_to_python_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path)
    (tmp_path / "job.yaml").write_text(read_job_yaml(file))
    first = abscli.run_job("job.yaml", "store", engine="inline", interval="1h")
    second = abscli.run_job(file, "store", engine="inline", interval=None, resume=True)
    third = abscli.run_job("job.yaml", "store", engine="inline", interval=None, resume=True)
    assert (second.parent, third.parent) == (first.epoch, second.epoch)


def read_job_yaml(file: Path) -> str:
    from formats.job.written import job_yaml

    return job_yaml(*read_job(file))


def test_no_store_and_no_plan_has_the_file_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path)
    abscli.run_job(file, "store", engine="inline", interval=None)
    file.write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n" + FILE)
    for words in (
        ["inspect", "store"],
        ["inspect", "store@latest"],
        ["validate", "store"],
        ["state", "store", "counts"],
        ["diff", "store", "store"],
        ["plan-recovery", "store", "--out", "plan.json"],
        ["restore", "plan.json", "--dry-run"],
        ["gc", "store", "--keep", "1"],
        ["rebuild", "store"],
        ["copy", "store", "copied"],
    ):
        main(words)
    capsys.readouterr()
    assert not (tmp_path / "imported").exists()
    main(["topology", "wordjob.py"])
    assert (tmp_path / "imported").exists()


# -- from a program --------------------------------------------------------------------------------------------


def test_a_job_is_run_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    job = Job("copied")
    job.text("in/*.txt").to_jsonl("out")
    monkeypatch.setattr(job._drafts, "directory", str(tmp_path))
    outcome = abscli.run_job(job, "store", engine="inline", interval="500ms", worker_timeout="1m")
    assert (outcome.finished, outcome.records) == (True, 2)
    with pytest.raises(abscli.UsageError, match="interval: 'soon' is not a duration"):
        abscli.run_job(job, "store", engine="inline", interval="soon")
    with pytest.raises(abscli.UsageError, match="interval must be greater than zero, but is 0"):
        abscli.run_job(job, "store", engine="inline", interval=0)


def test_two_files_of_one_name_are_two_jobs(tmp_path: Path) -> None:
    one = write(tmp_path / "one")
    other = write(tmp_path / "other", FILE.replace("wordcount", "another").replace('"word"', '"token"'))
    assert read_job(one).topology.job == "wordcount"
    assert read_job(other).topology.operator("counts").key == ("token",)
    assert read_job(one).topology.operator("counts").key == ("word",)
    assert load("wordjob:split", str(tmp_path / "other")).__code__.co_filename == str(other)
    assert load("wordjob:split", str(tmp_path / "one")).__code__.co_filename == str(one)


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = write(tmp_path)
    before = read_job(file)
    assert read_job(file) == before
    stat = file.stat()
    file.write_text(FILE.replace("wordcount", "wordtotal"))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as within the grain of a file system's clock
    assert read_job(file).topology.job == "wordtotal"


def test_a_script_that_is_run_names_its_functions_as_workers_find_them(tmp_path: Path) -> None:
    file = write(tmp_path, FILE + 'if __name__ == "__main__":\n    print(job.yaml())\n')
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert parse_job_bytes(done.stdout.encode(), "out.yaml") == read_job(file)


def test_functions_of_packages_beside_the_file_are_named_from_there(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "__init__.py").write_text("def first(batch):\n    return batch\n")
    (tmp_path / "steps" / "more.py").write_text("def second(batch):\n    return batch\n")
    text = (
        "from steps import first\nfrom steps.more import second\nfrom abscli import Job\njob = Job('j')\n"
        "job.text('in/*.txt').map(first).map(second).to_jsonl('out')\n"
    )
    operators = read_job(write(tmp_path, text)).topology.operators
    assert [op.function for op in operators[1:3]] == ["steps:first", "steps.more:second"]


def test_a_cell_of_a_notebook_is_no_place_for_a_function(tmp_path: Path) -> None:
    cell = (
        "from abscli import BadFile, Job\n"
        "def split(batch):\n    return batch\n"
        "try:\n    Job('j').text('in').map(split)\n"
        "except BadFile as error:\n    print(error, '|', error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "split is in no file from which a worker could import it" in done.stdout
    assert f"put it into a module in {tmp_path}" in done.stdout


def test_workers_elsewhere_import_it_from_what_is_sent_to_them(tmp_path: Path) -> None:
    """With its job in it, which every worker then makes as well."""
    write(tmp_path)
    archive = _zip_modules(str(tmp_path))
    assert archive is not None
    function = load("wordjob:split", archive)
    assert function.__code__.co_filename == f"{archive}/wordjob.py"
    assert sys.modules["wordjob"].job.topology == read_job(tmp_path / "wordjob.py").topology
    del sys.modules["wordjob"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "call",
    [
        "run_job(job, 'store', engine='inline')",
        "run_job('job.yaml', 'store', engine='inline')",
        "run_job('wordjob.py', 'store', engine='inline')",
        "job.test({'lines': ['a']})",
    ],
)
def test_a_file_that_runs_its_job_when_it_is_imported_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Every worker would import it again: a job in each worker of the job, and so on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(YAML.replace("NAME", "wordjob"))
    file = write(tmp_path, f"{FILE}from abscli import run_job\n{call}\n")
    last = len(file.read_text().splitlines())
    code, _, err = topology(capsys, "wordjob.py")
    assert code == 2
    assert f"wordjob.py:{last}:1: UsageError: cannot run or test a job while its job file is being imported" in err
    assert 'hint: put the call under `if __name__ == "__main__":`' in err
    done = subprocess.run([sys.executable, "wordjob.py"], capture_output=True, text=True)
    assert "cannot run or test a job while its job file is being imported" in done.stderr
    assert done.returncode == 1


def test_a_file_that_fails_leaves_the_module_that_was_there(tmp_path: Path) -> None:
    file = write(tmp_path)
    read_job(file)
    module = sys.modules["wordjob"]
    file.write_text("1 / 0\n")
    with pytest.raises(BadFile, match="ZeroDivisionError"):
        read_job(file)
    assert sys.modules["wordjob"] is module


# -- what goes wrong in it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import json\nx = 1 +\n", 2, "invalid syntax"),
        ("x = 1\nraise ValueError('a\\nb')\n", 2, "ValueError: a"),
        ("def make():\n    return missing\nmake()\n", 2, "NameError: name 'missing' is not defined"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
        ("import nowhere.at_all\n", 1, "ModuleNotFoundError: No module named 'nowhere'"),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
        ("from abscli import Job\nJob('a').text('in').map(lambda b: b)\n", 2, "a lambda has no name"),
        ("from abscli import Job\nJob('a').lines('in')\n", 2, "AttributeError: 'Job' object has no attribute 'lines'"),
        ("from abscli import Job\nJob('a').text()\n", 2, "TypeError"),
        ("from abscli import Job\njob = Job('a')\njob.text('in', parallelism=0)\n", 3, "parallelism must be"),
        ("x = 1\n", 1, "this file has no job"),
        ("from abscli import Job\none = Job('a')\ntwo = Job('b')\n", 1, "this file has 2 jobs: one, two"),
        ("from abscli import Job\njob = Job('a')\n", 2, "operators is empty"),
    ],
)
def test_an_error_is_told_by_file_and_line_and_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, line: int,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code, out, err = topology(capsys, write(tmp_path, text).name)
    assert (code, out) == (2, "")
    (place,) = [row for row in err.splitlines() if row.startswith("wordjob.py:")]
    assert place.startswith(f"wordjob.py:{line}:")
    assert message in place


def test_an_error_in_a_module_of_the_job_is_told_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not_helping.py").write_text("x = 1\ny = x.z\n")
    code, _, err = topology(capsys, write(tmp_path, "import not_helping\n").name)
    assert code == 2
    assert "not_helping.py:2:1: AttributeError: 'int' object has no attribute 'z'" in err
    assert main(["topology", "wordjob.py"]) == 2  # it is no other error the second time


def test_one_of_several_jobs_is_called_job(tmp_path: Path) -> None:
    text = "from abscli import Job\nother = Job('other')\njob = same = Job('meant')\njob.text('in')\n"
    assert read_job(write(tmp_path, text)).topology.job == "meant"


@pytest.mark.parametrize("name", ["my-job", "json", "abscli", "pyarrow", "1st"])
def test_a_file_is_not_called_like_a_module_that_is_needed(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(name)
    with pytest.raises(BadFile, match=r"would hide it|cannot import a module called"):
        read_job(write(tmp_path, name=name))
    assert sys.modules.get(name) is before


def test_a_job_of_another_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "other")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path / 'other')!r})\nfrom wordjob import job\n"
    with pytest.raises(BadFile, match=r"its job is made by a file in .*other"):
        read_job(write(tmp_path, text, "mine"))


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = topology(capsys, tmp_path / "none.py")
    assert (code, "cannot be read: no such file" in err) == (2, True)
    (tmp_path / "folder.py").mkdir()
    assert topology(capsys, tmp_path / "folder.py")[0] == 2
