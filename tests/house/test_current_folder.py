"""`python -m abscli` in a folder with modules of somebody else: none of them is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.imports import ROOT

Done = subprocess.CompletedProcess[str]

MODULES = {
    *sys.stdlib_module_names, *(name for name in packages_distributions() if name.isidentifier()), "formats",
} - {"abscli"}  # fmt: skip
HOSTILE = "open({marker!r}, 'a').write({name!r} + chr(10))\nraise ImportError('a module of the current folder')\n"

JOB = """version: 1
job: loud
operators:
  lines:
    source: {type: text, path: in.txt}
  loud:
    from: lines
    map: shout:shout
  out:
    from: loud
    sink: {type: jsonl, path: out}
"""


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Modules that Python imports for `-m` before any module of the package that it runs."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "probe").mkdir()
    (folder / "probe" / "__init__.py").write_text("import sys\nprint(*sys.modules)\nraise SystemExit\n")
    done = subprocess.run([sys.executable, "-m", "probe"], cwd=folder, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def make_hostile(folder: Path, names: set[str]) -> None:
    """Modules of these names that write their names into a file when they are imported."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text(HOSTILE.format(marker=str(folder.parent / "marker"), name=name))


@pytest.fixture
def folder(tmp_path: Path, early: set[str]) -> Path:
    """A folder with a hostile module for each package that is installed, and each module of Python's library."""
    hostile = tmp_path / "downloaded"
    make_hostile(hostile, MODULES - early)
    return hostile


def run(folder: Path, *words: str, options: tuple[str, ...] = (), path: str = str(ROOT)) -> Done:
    """The command, in the folder. path: PYTHONPATH."""
    return subprocess.run(
        [sys.executable, *options, "-m", "abscli", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def imported(folder: Path) -> str:
    marker = folder.parent / "marker"
    return marker.read_text() if marker.exists() else ""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job, whose functions are in two modules, and its input."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "in.txt").write_text("a\n")
    (folder / "shout.py").write_text("import louder\ndef shout(batch): return louder.louder(batch)\n")
    (folder / "louder.py").write_text("def louder(batch): return batch\n")
    (folder / "job.yaml").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def store(job: Path) -> Path:
    """A store of the job, written by a command that was started next to it, so that its modules are found there."""
    done = run(job.parent, "run", f"{job.name}/job.yaml", "--store", f"{job.name}/store", "--engine", "inline")
    assert done.returncode == 0, done.stderr
    return job / "store"


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["validate"], ["inspect"], ["topology"]])
def test_no_module_of_the_current_folder_is_imported(words: list[str], folder: Path, store: Path) -> None:
    given = {"validate": [str(store)], "inspect": [str(store)], "topology": [str(store.parent / "job.yaml")]}
    done = run(folder, *words, *given.get(words[0], []))
    assert (imported(folder), done.returncode) == ("", 0), done.stderr


def test_what_python_imports_before_is_protected_with_its_option(tmp_path: Path) -> None:
    """The guide recommends `python -P -m abscli`."""
    make_hostile(tmp_path / "downloaded", MODULES | {"abscli"})
    done = run(tmp_path / "downloaded", "--version", options=("-P",))
    assert (imported(tmp_path / "downloaded"), done.returncode) == ("", 0), done.stderr


def test_the_hostile_modules_include_those_that_abs_imports(folder: Path) -> None:
    there = {path.stem for path in folder.iterdir()}
    assert {"typing", "json", "msgspec", "typer", "rich", "yaml", "numpy", "pyarrow", "formats", "__future__"} <= there


def test_modules_of_a_job_in_the_current_folder_are_imported(job: Path, store: Path, tmp_path: Path) -> None:
    """Those of a job in another folder are: the fixture has run one."""
    assert (store / "epochs").is_dir()
    shutil.copytree(job, tmp_path / "here", ignore=shutil.ignore_patterns("store", "out"))
    done = run(tmp_path / "here", "run", "job.yaml", "--store", "store", "--engine", "inline")
    assert done.returncode == 0, done.stderr


def test_a_program_of_the_current_folder_that_imports_abs_keeps_its_own_modules(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import abscli, helper\nprint(abscli.Job, helper.__name__)\n")
    (tmp_path / "helper.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "program"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("helper\n")


def test_the_command_runs_where_its_sources_are_the_current_folder(tmp_path: Path) -> None:
    """Without an installation and without PYTHONPATH, as in a clone: only the current folder has abs then."""
    for name in ("abscli", "formats"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = run(tmp_path, "--version", path="")
    assert (done.returncode, done.stderr) == (0, "")
    program = "import abscli.cli.main, formats, sys; print(formats.__file__)"
    there = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert there.stdout.startswith(str(tmp_path))


def test_the_command_runs_in_a_folder_that_has_been_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-m", "abscli", "--version"],
        cwd=gone, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
