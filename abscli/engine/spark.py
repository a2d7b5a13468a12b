"""The Spark driver: one single-task Spark job a worker, so that losing one leaves the others' jobs alone.

Spark places the workers and says who died; records flow between them directly.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from abscli.engine.errors import EngineError, EngineStopped
from abscli.engine.java import use_java
from abscli.engine.wire import JobSpec
from formats.native.facts import digest

CONF = {
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


def start_session(master: str) -> Any:
    """A SparkSession for workers; UsageError without Java, EngineStopped if the cluster cannot be reached."""
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("abs")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    with _quiet_log4j() as options:
        builder = builder.config("spark.driver.extraJavaOptions", CONF["spark.driver.extraJavaOptions"] + options)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise EngineStopped(f"Spark did not start on {master}: {str(error).splitlines()[0]}") from error
    session.sparkContext.setLogLevel("OFF")
    return session


@contextlib.contextmanager
def _quiet_log4j() -> Iterator[str]:
    """JVM options that keep Spark's start off the terminal; the file is needed only while the JVM starts."""
    with tempfile.TemporaryDirectory(prefix="abs-log4j-") as folder:
        path = Path(folder) / "log4j2.properties"
        path.write_text(LOG4J)
        yield f" -Dlog4j.configurationFile=file:{path} -Dlog4j2.configurationFile=file:{path}"


class SparkWorkers:
    """Launches workers as Spark jobs. session: one to use and leave running; otherwise one is made and stopped.

    abandon(error) is called, from another thread, when a worker's job fails before the worker has said why.
    """

    def __init__(self, master: str, abandon: Callable[[EngineError], None], session: Any = None) -> None:
        self._own = session is None
        self._session = session or start_session(master)
        self.abandon = abandon
        self._threads: list[threading.Thread] = []
        self._leaving = False

    @property
    def host(self) -> str:
        """Where the coordinator listens: as executors reach the driver."""
        host: str = self._session.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
        return host

    def slots(self) -> int | None:
        """Tasks that can run at once."""
        context = self._session.sparkContext
        local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", context.master)
        if local:
            count = local.group(1)
            return int(os.cpu_count() or 1) if count == "*" else int(count or 1)
        executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        cores = int(context.getConf().get("spark.executor.cores", "0"))
        return executors * cores if cores else max(int(context.defaultParallelism), executors)

    def launch(self, spec: JobSpec) -> None:
        """Submit a job a worker, each from a thread of its own."""
        context = self._session.sparkContext
        archive = _zip_modules(spec.root) if not context.master.startswith("local") else None
        if archive:
            context.addPyFile(archive)
        data = msgspec.json.encode(spec)
        name = os.path.basename(archive) if archive else None
        for number in range(spec.workers):
            thread = threading.Thread(
                target=self._submit, args=(context, data, name, number), name=f"abs-job-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _submit(self, context: Any, data: bytes, archive: str | None, number: int) -> None:
        try:
            context.parallelize([number], 1).mapPartitions(_worker_main(data, archive)).collect()
        except Exception as error:
            if not self._leaving:
                self.abandon(EngineStopped(f"worker {number}: its Spark job failed: {_first_line(error)}"))

    def __enter__(self) -> SparkWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._leaving = True
        for thread in self._threads:
            thread.join(timeout=15)
        if self._own:
            self._session.stop()


def _worker_main(data: bytes, archive: str | None) -> Callable[[Iterator[int]], Iterator[int]]:
    def main(numbers: Iterator[int]) -> Iterator[int]:
        import signal

        from pyspark import SparkFiles

        from abscli.engine.worker import Worker

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the driver's to handle
        spec = msgspec.json.decode(data, type=JobSpec)
        if archive is not None:
            spec = msgspec.structs.replace(spec, root=SparkFiles.get(archive))
        for number in numbers:
            Worker(spec, number).run()
            yield number

    return main


def _zip_modules(root: str) -> str | None:
    """The Python modules and packages beside the job file, as a zip named after its content; None if there are none."""
    base = Path(root)
    files = sorted(p for p in base.glob("*.py")) + sorted(p for p in base.glob("*/**/*.py"))
    if not files:
        return None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in files:
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(base))), path.read_bytes())
    data = buffer.getvalue()
    target = Path(tempfile.gettempdir()) / f"abs-job-{digest(data)[:16]}.zip"
    target.write_bytes(data)
    return str(target)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]

