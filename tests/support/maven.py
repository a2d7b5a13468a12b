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
        command = ["mvn", "-q", "-B", "dependency:build-classpath", "-DincludeScope=runtime"]
        for network in (["-o"], []):  # what is there already needs none
            full = [*command, *network, f"-Dmdep.outputFile={out}"]
            done = subprocess.run(full, cwd=folder, capture_output=True, text=True, timeout=900)
            if done.returncode == 0:
                return tuple(map(Path, out.read_text().strip().split(":")))
    pytest.skip(f"Maven cannot have {', '.join(coordinates)}: {done.stdout.strip().splitlines()[:1]}")
