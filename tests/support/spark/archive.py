"""The classes of Spark as an archive for JVMs, which start with half the work of a processor when they have it.

`python -m tests.support.spark.archive` makes it, from what a query and a job load, until its stdin ends. Java looks
whether an archive is of its own version and of just these jars, and does without it where it is not.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

PLACE = Path(sys.prefix) / "share" / "abs-tests" / f"spark-{version('pyspark')}.jsa"
OPTIONS = "SPARK_SUBMIT_OPTS"
"""What Spark's own script hands to the JVM of a driver, and no other Java sees."""


def with_archive(environment: Mapping[str, str]) -> str:
    """The value of OPTIONS with which drivers look for the archive; it may be made later."""
    return f"{environment.get(OPTIONS, '')} -Xshare:auto -XX:SharedArchiveFile={PLACE}".strip()


def main() -> None:
    part = PLACE.with_suffix(f".{os.getpid()}")
    threading.Thread(target=_end_with_stdin, args=(part,), daemon=True).start()
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={part}"
        try:
            _load(Path(name))
            part.rename(PLACE)
        finally:
            part.unlink(missing_ok=True)


def _load(folder: Path) -> None:
    """Runs a job of the engine's kind and queries with either store of state, and ends the JVM, which writes then."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.spark import start_context
    from tests.support.spark import words

    context = start_context("local[2]")
    session = SparkSession(context)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    context.parallelize(range(4), 2).map(str).collect()
    words.add_files(folder / "source", range(2))
    for name, conf in words.CONFS.items():
        for option, value in conf.items():
            session.conf.set(option, value)
        words.go_on(session, folder / "source", folder / name)
    session.range(10).write.parquet(str(folder / "parquet"))
    session.read.parquet(str(folder / "parquet")).collect()
    jvm = SparkContext._gateway.proc
    context.stop()
    jvm.stdin.close()
    jvm.wait()


def _end_with_stdin(part: Path) -> None:
    """The run of the tests that wanted it is over, before it is whole."""
    from pyspark import SparkContext

    sys.stdin.read()
    if (gateway := SparkContext._gateway) is not None:
        gateway.proc.kill()
        gateway.proc.wait()
    part.unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    main()
