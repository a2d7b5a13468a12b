"""The Containerfile, as far as it can be held without a container engine: what it copies and calls is there, and fits.

Its steps that pip takes are run by `.ci/packages containerfile`.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import tomllib
from typing import NamedTuple

import pytest
from packaging.specifiers import SpecifierSet

from tests.house.test_setup import locked
from tests.support.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLACES = ("abscli", "formats", "tests", "man", "completions", ".ci")
FILES = ("BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "Makefile",
         "Containerfile", "pyproject.toml", ".gitignore", ".dockerignore")  # fmt: skip


class Step(NamedTuple):
    """One instruction, in which stage it stands, and its words."""

    stage: int
    name: str
    words: list[str]


def steps() -> list[Step]:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    stage, listed = 0, []
    for line in lines:
        if line and not line.startswith("#"):
            name, *words = line.split()
            stage += name == "FROM"
            listed.append(Step(stage, name, words))
    return listed


STEPS = steps()


def of(name: str, stage: int | None = None) -> list[list[str]]:
    return [step.words for step in STEPS if step.name == name and stage in (None, step.stage)]


def test_the_top_level_has_what_belongs_there() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no clone of the repository")
    there = {name.split("/")[0] for name in done.stdout.split("\0") if name}
    assert there <= {*PLACES, *FILES}


def test_both_stages_have_one_python_that_abs_runs_on() -> None:
    defaults = dict(word.split("=", 1) for (word,) in of("ARG", 0))
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(defaults["PYTHON"])
    assert defaults["BASE"] == "docker.io/library/python:${PYTHON}-slim"
    assert [words[0] for words in of("FROM")] == ["${BASE}"] * 2


def test_the_comment_on_a_pinned_base_image_names_the_image_that_is_built_on() -> None:
    text = (ROOT / "Containerfile").read_text()
    (python,) = (word for (word,) in of("ARG", 0) if word.startswith("PYTHON="))
    image = f"docker.io/library/python:{python.removeprefix('PYTHON=')}-slim"
    assert f"podman pull {image}\n" in text
    assert "--build-arg BASE=docker.io/library/python@sha256:" in text


def test_what_is_copied_is_there_and_is_not_ignored() -> None:
    sources = [word for words in of("COPY", 1) for word in words[:-1]]
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line[0] == "!"}
    assert kept == set(sources)
    assert all((ROOT / source).exists() for source in sources)


def test_all_that_the_wheel_is_made_of_is_copied() -> None:
    sources = {word for words in of("COPY", 1) for word in words[:-1]}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *(path.split("/")[0] for path in wheel["shared-data"]), PROJECT["project"]["readme"]}
    assert needed <= sources


def test_only_what_is_locked_is_installed_and_nothing_without_a_hash() -> None:
    installs = [" ".join(words) for words in of("RUN", 1) if "install" in words]
    assert len(installs) >= 3
    for line in installs:
        assert "--require-hashes" in line or ("--no-deps" in line and "--no-index" in line), line
    wanted, tested = locked("runtime.txt"), locked("requirements.txt")
    assert all(versions <= tested[name] for name, versions in wanted.items()), "make lock"
    extras = [one for name, few in PROJECT["project"]["optional-dependencies"].items() if name != "dev" for one in few]
    for text in [*PROJECT["project"]["dependencies"], *extras]:
        name = re.match(r"[A-Za-z0-9_.-]+", text)
        assert name is not None
        assert name[0].lower().replace("_", "-") in wanted, f"runtime.txt lacks {text}: make lock"
    gone = next(words for words in of("RUN", 1) if "uninstall" in words)
    assert set((ROOT / ".ci" / "build.in").read_text().split()) <= set(gone)


def test_it_ends_as_a_user_who_is_not_root_in_a_folder_of_its_own_and_runs_abs() -> None:
    made = " ".join(next(words for words in of("RUN", 2) if "useradd" in words))
    ((user,),) = of("USER")
    number = re.search(r"--uid (\d+)", made)
    assert number is not None
    assert user == f"{number[1]}:{number[1]}" != "0:0"
    ((folder,),) = of("WORKDIR", 2)
    assert f"mkdir {folder}" in made
    ((entry,),) = of("ENTRYPOINT")
    assert entry in {f'["{name}"]' for name in PROJECT["project"]["scripts"]}
    assert [step.name for step in STEPS].index("USER") > max(i for i, step in enumerate(STEPS) if step.name == "RUN")


def test_java_and_what_spark_s_scripts_call_is_installed() -> None:
    packages = " ".join(" ".join(words) for words in of("RUN", 2))
    assert "default-jre-headless" in packages
    assert "procps" in packages


def test_shells_take_every_step() -> None:
    for words in of("RUN"):
        subprocess.run(["sh", "-n", "-c", " ".join(words)], check=True)
    script = ROOT / ".ci" / "packages"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)


def test_nothing_that_is_made_while_working_gets_into_the_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert any(fnmatch.fnmatch("abscli/__pycache__", line) for line in ignored)
