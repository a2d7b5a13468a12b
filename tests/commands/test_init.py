"""`abs init`: what it writes runs as its README says, passes its test, and is written over nothing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abscli.commands.init import init
from abscli.examples.starting import EXAMPLES
from abscli.jobs.files import read_job
from tests.support.commands import result_of, run_command

pytestmark = pytest.mark.integration

run = partial(run_command, "init")
IN_PYTHON = {"job.py", "test_job.py", "data/orders.jsonl", "README.md"}
IN_YAML = {"job.yaml", "functions.py", "test_job.py", "data/orders.jsonl", "README.md"}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def called(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("options", "written"), [((), IN_PYTHON), (("--yaml",), IN_YAML)], ids=["python", "yaml"])
def test_the_commands_of_its_readme_run_and_its_test_passes(
    options: tuple[str, ...], written: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my shop"
    code, out, err = run(capsys, folder, *options)
    assert code == 0
    assert {line.removeprefix(f"{folder}/") for line in out.splitlines()} == files(folder) == written
    commands = re.findall(r"(?m)^    (abs .*)$", (folder / "README.md").read_text())
    assert len(commands) == 3
    assert err == f"Next: cd '{folder}' && " + "\n      ".join(commands) + "\n"

    shown = [called(folder, "abscli", *shlex.split(command)[1:]) for command in commands]
    orders = lines(folder / "data" / "orders.jsonl")
    expected = {
        product: (
            sum(order["product"] == product for order in orders),
            sum(order["pieces"] * order["price"] for order in orders if order["product"] == product),
        )
        for product in {order["product"] for order in orders}
    }
    rows = [row for part in sorted((folder / "out").glob("part-*.jsonl")) for row in lines(part)]
    assert {row["product"]: (row["orders"], row["total"]) for row in rows} == expected
    assert "job my shop" in shown[1]
    assert set(expected) <= set(shown[2].split())

    before = files(folder)
    assert "1 passed" in called(folder, "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    assert {name for name in files(folder) - before if "__pycache__" not in name} == set()


def test_both_forms_are_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, options in (("a", ()), ("b", ("--yaml",))):
        assert run(capsys, tmp_path / folder, "--job", "sales", *options)[0] == 0
    python = called(tmp_path / "a", "abscli", "topology", "job.py", "-o", "yaml")
    (tmp_path / "b" / "same.yaml").write_text(python.replace("job:priced", "functions:priced"))
    assert read_job(tmp_path / "b" / "same.yaml") == read_job(tmp_path / "b" / "job.yaml")


@pytest.mark.parametrize("name", ['a "b" \\ $c: #é', "JOB_FILE", "no", "1e3"])
def test_the_job_has_the_name_that_was_given(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("init", capsys, tmp_path, "--yaml", "--job", name, "-q")
    assert result["job"] == read_job(tmp_path / "job.yaml").topology.job == name
    assert set(result["files"]) == files(tmp_path)
    assert (tmp_path / "README.md").read_text().startswith(f"# {name}\n\njob.yaml reads")
    python = tmp_path / "python"
    assert run(capsys, python, "--job", name)[0] == 0
    assert read_job(python / "job.py").topology.job == name


@pytest.mark.parametrize("name", ["", " ", "a\nb"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, tmp_path / "new", "--job", name)
    assert (code, (tmp_path / "new").exists()) == (2, False)
    assert "cannot be the name of a job" in err


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "job.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes").write_text("mine, too")
    code, out, err = run(capsys, tmp_path)
    assert (code, out) == (2, "")
    assert "already contains job.py, README.md" in err
    assert files(tmp_path) == {"README.md", "notes"}
    assert (tmp_path / "README.md").read_text() == "mine"


def test_beside_other_files_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys)
    assert (code, files(tmp_path)) == (0, IN_PYTHON | {"notes"})
    assert err.startswith("Next: abs run job.py ")


@pytest.mark.parametrize("obstacle", ["new", "new/data"])
def test_a_file_where_a_folder_has_to_be(obstacle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / obstacle).parent.mkdir(exist_ok=True)
    (tmp_path / obstacle).write_text("mine")
    code, _, err = run(capsys, tmp_path / "new")
    assert code == 2
    assert "is a file" in err
    assert files(tmp_path) == {obstacle}


def test_what_was_begun_and_fails_is_taken_away(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes between the look and the writing, as another init in the same folder would make it."""
    from abscli.examples import starting

    look = starting._refuse_what_is_there

    def then_comes_one(folder: str, names: list[str]) -> None:
        look(folder, names)
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "README.md").write_text("another's")

    monkeypatch.setattr(starting, "_refuse_what_is_there", then_comes_one)
    code, _, err = run(capsys, tmp_path / "new")
    assert (code, "README.md" in err) == (2, True)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["new", "new/README.md"]
    assert (tmp_path / "new" / "README.md").read_text() == "another's"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_its_readme_says(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "here"
    code, out, err = run(capsys, folder, "--example", example)
    assert code == 0
    assert {line.removeprefix(f"{folder}/") for line in out.splitlines()} == files(folder)
    assert files(folder) == {"job.py", "query.sql", "README.md"}
    commands = re.findall(r"(?m)^    (abs .*)$", (folder / "README.md").read_text())
    assert err == f"Next: cd {folder} && " + "\n      ".join(commands) + "\n"
    assert read_job(folder / "job.py").topology.job == example
    for words in re.findall(r"total=(500_000)", text := (folder / "job.py").read_text()):
        text = text.replace(words, "5_000")
    (folder / "job.py").write_text(text)
    shown = [called(folder, "abscli", *shlex.split(command)[1:]) for command in commands]
    assert f"job {example}" in shown[1]
    assert f"job: {example}" in shown[2]
    assert list((folder / "out").glob("part-*.jsonl"))


def test_the_help_names_every_example() -> None:
    """With what it asks, in other words."""
    assert set(re.findall(r"nexmark-q\d", init.__doc__ or "")) == set(EXAMPLES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--example", "nexmark-q6"), "'nexmark-q6' is none of nexmark-q0, "),
        (("--example", "nexmark-q5", "--yaml"), "an example cannot be changed: remove --yaml"),
        (("--example", "nexmark-q5", "--job", "mine"), "an example cannot be changed: remove --job"),
    ],
)
def test_an_example_that_is_not_there_or_that_is_to_be_another_is_refused(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, tmp_path / "new", *options)
    assert (code, (tmp_path / "new").exists()) == (2, False)
    assert message in " ".join(err.split())
