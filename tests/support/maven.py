"""Jars from Maven Central, for tests that need what other systems are made of; such a test is skipped without Maven."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{more}</dependency>"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


REACTOR = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>all</artifactId><version>1</version><packaging>pom</packaging>
<modules>{modules}</modules></project>
"""


@cache
def versions_of(artifact: str, *versions: str) -> tuple[Path, ...]:
    """Return the jar of each version of `group:artifact`, alone, by one Maven for all of them.

    Skips the test, with the reason, where Maven is not there or cannot have them.
    """
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not there (mvn)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = "".join(f"<module>m{number}</module>" for number in range(len(versions)))
        (folder / "pom.xml").write_text(REACTOR.format(modules=modules))
        for number, version in enumerate(versions):
            (folder / f"m{number}").mkdir()
            wanted = DEPENDENCY.format(*artifact.split(":"), version, more=ALONE)
            pom = POM.format(dependencies=wanted).replace("<artifactId>jars<", f"<artifactId>jars{number}<", 1)
            (folder / f"m{number}" / "pom.xml").write_text(pom)
        _run_maven(folder, "classpath", artifact)
        return tuple(Path((folder / f"m{n}" / "classpath").read_text().strip()) for n in range(len(versions)))


@cache
def jars(*coordinates: str, alone: bool = False) -> tuple[Path, ...]:
    """Each `group:artifact:version` and, unless `alone`, all that it needs to run, in Maven's own repository. Skips the
    test, with the reason, where Maven is not there or cannot have them."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not there (mvn)")
    more = ALONE if alone else ""
    wanted = "".join(DEPENDENCY.format(*one.split(":"), more=more) for one in coordinates)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(POM.format(dependencies=wanted))
        out = Path(folder) / "classpath"
        _run_maven(Path(folder), str(out), ", ".join(coordinates))
        return tuple(map(Path, out.read_text().strip().split(":")))


def _run_maven(folder: Path, output: str, wanted: str) -> None:
    """Let Maven write the class path of each project in a folder; a relative `output` lies in the project's folder."""
    command = ["mvn", "-q", "-B", "dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={output}"]
    for network in (["-o"], []):  # what is there already needs none
        done = subprocess.run([*command, *network], cwd=folder, capture_output=True, text=True, timeout=900)
        if done.returncode == 0:
            return
    pytest.skip(f"Maven cannot have {wanted}: {done.stdout.strip().splitlines()[:1]}")
