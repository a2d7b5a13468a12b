"""Other releases of Flink than the one that most tests run, from Maven Central, and savepoints of theirs.

tests/flink_java/UpgradeJob.java made the savepoints: of every release the same state, but for times, positions and the
order in which records came.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from tests.support.archives import unpacked
from tests.support.flink.java import PATIENCE, SOURCES, java_job
from tests.support.flink.truth import DATA
from tests.support.flink.venv import VERSION, flink_jars
from tests.support.java import compile_java
from tests.support.maven import jars

WRITERS = ("1.14.6", "1.15.4", "1.17.2", "1.20.5", "2.3.0")
"""Releases that savepoints are there of."""
STARTED = {"1.20": "1.20.5", "2.0": "2.0.2", "2.1": "2.1.3", "2.2": "2.2.0", "2.3": VERSION}
"""Of each minor release the one that is started."""


ENDED = re.compile(r"switched from state FAILING to FAILED|SAVEPOINT file:.*\n")
"""In the log of a job that has no more to say."""


def unpack() -> dict[str, Path]:
    """Return the savepoint of each release. Tests must not change it."""
    folder = unpacked(DATA / "releases.tar.xz")
    return {version: next((folder / version).iterdir()) for version in WRITERS}


def release_jars(version: str, *more: str) -> list[Path]:
    """The jars of a release, with a log. Skips the test where Maven cannot have them.

    more: further artifacts of it, of those that the distribution of Flink contains.
    """
    if version == VERSION:
        return list(flink_jars())
    wanted = (f"org.apache.flink:{name}:{version}" for name in ("flink-clients", "flink-cep", *more))
    return [*jars(*wanted), *(path for path in flink_jars() if path.name.startswith("log4j"))]


def compiled_for(version: str, folder: Path, *more: str, **sources: str) -> str:
    """The class path that a job runs with on a release.

    more: see `release_jars`. sources: by name of the class, `shop_Order` for shop.Order.
    """
    class_path = release_jars(version, *more)
    files = []
    for name, text in sources.items():
        path = folder / "sources" / f"{name.replace('_', '/')}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files.append(path)
    compile_java(folder / "classes", class_path, *files, sources=SOURCES)
    return os.pathsep.join(map(str, [folder / "classes", *class_path]))


def run(class_path: str, folder: Path, main: str, *arguments: object) -> tuple[Path | None, str]:
    """The savepoint that a job took before it ended, and its log; None: it failed before."""
    folder.mkdir()
    log = folder / "log"
    until = time.monotonic() + PATIENCE
    with java_job(class_path, log, main, *arguments, "restart-strategy.type=none") as process:
        while process.poll() is None and time.monotonic() < until:
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                # once it has its savepoint a JVM has been seen to hang in its shutdown hooks, on a busy machine
                if ENDED.search(log.read_text(errors="replace")):
                    break
    text = log.read_text(errors="replace")
    taken = re.findall(r"SAVEPOINT file:(\S+)", text)
    return (Path(taken[-1]) if taken else None), text
