"""Optional packages: each can be missing, and the command that needs one names it and the way to install it."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from abscli.cli import exits
from abscli.cli.bundle.contents import VARIANTS, pins
from formats import packages
from formats.packages import PACKAGES, as_missing_package, install_command, is_installed, pip_install
from tests.support.blocked import run_without
from tests.support.flink.truth import DATA
from tests.support.imports import ROOT

HASHMAP = next((DATA / "hashmap-checkpoint").iterdir())
ROCKSDB = next((DATA / "state" / "rocksdb").glob("*/chk-4")).parent
NATIVE = DATA.parent / "golden-store"
NEEDED_BY_ALL = ["msgspec", "typer"]
OPTIONAL = sorted(PACKAGES.keys() - {*NEEDED_BY_ALL})

LOAD_ALL = """
from abscli.cli.app import load
from abscli.cli.overview import COMMANDS
for name in COMMANDS:
    load(name)
print(*COMMANDS)
"""
JOB = """version: 1
job: numbers
operators:
  rows: {source: {type: generate, rows: 3, columns: {id: row}}}
  out: {from: rows, sink: {type: jsonl, path: out}}
"""


def test_the_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for name, texts in project["optional-dependencies"].items() if name != "dev" for text in texts]
    listed = {package.requirement for package in PACKAGES.values()}
    assert listed == {*project["dependencies"], *extras}


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_is_installed_under_the_name_that_pip_is_given(module: str) -> None:
    if not is_installed(module):
        pytest.skip(f"{module} is not installed")
    name = PACKAGES[module].name
    assert Requirement(PACKAGES[module].requirement).name == name
    try:
        assert version(name)
    except PackageNotFoundError:
        pytest.fail(f"{module} is no module of {name}")


@pytest.mark.parametrize("module", OPTIONAL)
def test_every_command_can_be_imported_without_an_optional_package(module: str) -> None:
    done = run_without([module], code=LOAD_ALL)
    assert done.returncode == 0, done.stderr
    assert "plan-recovery" in done.stdout


def test_every_command_can_be_imported_without_all_optional_packages() -> None:
    done = run_without(OPTIONAL, code=LOAD_ALL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("jinja2", ("report", HASHMAP, "--out", "report.html")),
        ("mmh3", ("rewrite", HASHMAP, "--changes", "changes.yaml", "--to", "copy")),
        ("numpy", ("diff", HASHMAP, HASHMAP)),
        ("numpy", ("validate", NATIVE)),
        ("obstore", ("inspect", "s3://bucket/store")),
        ("obstore", ("validate", "gs://bucket/store")),
        ("pyarrow", ("state", HASHMAP, "totals", "--state", "sum")),
        ("pyarrow", ("diff", HASHMAP, HASHMAP)),
        ("pyarrow", ("state", NATIVE, "count")),
        ("pyspark", ("run", "job.yaml", "--store", "store")),
        ("pyspark", ("demo", "demo")),
        ("rocksdict", ("state", ROCKSDB, "op", "--state", "v")),
        ("yaml", ("topology", "job.yaml")),
    ],
    ids=str,
)
def test_a_command_names_the_package_that_it_lacks(
    module: str, arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    Path("changes.yaml").write_text("moved: {totals: sums}\n")
    done = run_without([module], *arguments)
    requirement = PACKAGES[module].requirement
    assert (done.returncode, done.stdout) == (exits.USAGE, ""), done.stderr
    assert PACKAGES[module].name in done.stderr
    assert f"hint: {sys.executable} -m pip install '{requirement}'\n" in done.stderr
    assert not Path("store").exists()


def test_a_missing_package_has_a_name_in_json() -> None:
    done = run_without(["pyarrow"], "diff", HASHMAP, HASHMAP, "-o", "json")
    assert '"name": "missing-package"' in done.stderr
    assert '"code": 2' in done.stderr


def test_validate_says_what_it_could_not_check_without_rocksdict() -> None:
    done = run_without(["rocksdict"], "validate", ROCKSDB, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "pip install 'rocksdict>=" in done.stdout


def test_a_module_that_an_installed_package_lacks_stays_a_bug() -> None:
    error = ModuleNotFoundError("No module named 'numpy.nowhere'", name="numpy.nowhere")
    assert as_missing_package(error) is None
    assert as_missing_package(ModuleNotFoundError("No module named 'helpers'", name="helpers")) is None
    assert as_missing_package(ValueError("numpy")) is None


def test_a_library_that_cannot_be_loaded_is_installed_again() -> None:
    error = ImportError("libarrow.so.1:\n wrong ELF class", name="pyarrow.lib", path="/site/pyarrow/lib.so")
    missing = as_missing_package(error)
    assert missing is not None
    assert missing.message == "the package pyarrow cannot be loaded: libarrow.so.1: wrong ELF class"
    assert "pip install --force-reinstall 'pyarrow>=" in (missing.hint or "")
    assert as_missing_package(ImportError("no name x", name="pyarrow", path="/site/pyarrow/__init__.py")) is None


def test_a_library_that_the_system_lacks_is_installed_with_its_package() -> None:
    text = "libstdc++.so.6: cannot open shared object file: No such file or directory"
    missing = as_missing_package(ImportError(text, name="numpy._core", path="/site/numpy/_core.so"))
    assert missing is not None
    assert missing.message == "the package numpy cannot be loaded: this system has no libstdc++.so.6"
    assert missing.hint == "apt-get install libstdc++6"


@pytest.mark.parametrize("module", NEEDED_BY_ALL)
def test_a_package_without_which_nothing_works_is_named_as_well(module: str) -> None:
    done = run_without([module], "inspect", HASHMAP)
    assert (done.returncode, done.stdout) == (exits.USAGE, ""), done.stderr
    assert done.stderr.startswith(f"abs: error: every command needs the package {module}, which is not installed\n")


def test_the_command_is_one_for_a_shell_and_for_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my python/bin/python3")
    assert install_command("pyspark", "psycopg") == (
        "'/opt/my python/bin/python3' -m pip install 'pyspark>=4' 'psycopg[binary]>=3.2'"
    )
    monkeypatch.setattr(packages, "is_installed", lambda module: module != "pip")
    assert pip_install("obstore") == "pip --python '/opt/my python/bin/python3' install 'obstore'"


def test_the_guide_names_every_extra_and_what_the_single_file_lacks() -> None:
    page = (ROOT / "man" / "guide" / "pages" / "installation.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(f"pip install '.[{name}]'" in page for name in extras if name != "dev")
    locked = {pin.name for pin in pins((ROOT / ".ci" / "reader.txt").read_text())}
    without = {package.name for package in PACKAGES.values()} - locked | VARIANTS["abs-reader"].without
    assert [name for name in sorted(without) if f"`{name}`" not in page] == []


UNPUBLISHED = re.compile(r"(?:pip|pipx|uv) [^`\n]*\babscli\b|\babscli\[")
PLACES = ("abscli", "formats", "man", "completions", "tests", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def test_no_hint_names_a_distribution_that_is_not_published() -> None:
    """`abscli` is not on PyPI: whoever registers the name would be installed by our own hints."""
    files = [
        path for place in PLACES
        for path in ([ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*")))
        if path.suffix in (".py", ".md", ".1", ".txt", ".yml") and path.name != Path(__file__).name
    ]  # fmt: skip
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files for line in path.read_text(encoding="utf-8").splitlines() if UNPUBLISHED.search(line)
    ]  # fmt: skip
    assert not found, "\n".join(found)
