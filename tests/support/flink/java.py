"""Jobs of tests/flink_java on a real Flink in a JVM of their own, which is gone at the end of the block."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.flink.venv import flink_jars
from tests.support.java import QUICK, compile_java

SOURCES = Path(__file__).parents[2] / "flink_java"

PATIENCE = 900.0
"""Seconds until a job that does not move, or a compiler, is given up: most take twenty on a machine that is quiet."""


def compiled(folder: Path, *sources: str | Path, more: Sequence[Path] = ()) -> str:
    """The class path that a job runs with, its classes in a new folder.

    sources: names of files of tests/flink_java, or paths of others.
    more: jars that it needs beside Flink's own.
    """
    jars = [*flink_jars(), *more]
    compile_java(folder, jars, *(SOURCES / source for source in sources), sources=SOURCES)
    return os.pathsep.join(map(str, [folder, *jars]))


@contextmanager
def java_job(class_path: str, log: Path, main: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A job while it runs; killed at the end of the block. log: what it prints."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.lang", "java.time")]
    logging = "-Dorg.apache.logging.log4j.level=INFO"
    command = ["java", *QUICK, "-Xmx512m", *opened, logging, "-cp", class_path, main, *map(str, arguments)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
