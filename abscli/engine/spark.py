"""The Spark driver: one single-task Spark job a worker, so that losing one leaves the others' jobs alone.

Spark places the workers and says who died; records flow between them directly.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
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
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


def start_context(master: str) -> Any:
    """A SparkContext for workers; JavaMissing, or EngineStopped if the cluster cannot be reached.

    A context starts in half the time of a SparkSession, which workers do not need. What the JVM writes to stderr while
    it lives goes to a file that is shown only when it does not start.
    """
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setAppName("abs").setAll(list(CONF.items()))
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    with tempfile.TemporaryFile() as log, _log4j() as options:
        options += f' "-Djava.io.tmpdir={tempfile.gettempdir()}"'  # Java does not look at TMPDIR
        conf.set("spark.driver.extraJavaOptions", JAVA_OPTIONS + options)
        try:
            with _stderr_to(log.fileno()), _same_interrupt_handler():
                context = SparkContext(conf=conf)
        except Exception as error:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").splitlines()
            said = [line.strip() for line in lines if "ERROR" in line or "Exception" in line]
            why = said[0] if said else (str(error).splitlines() or [type(error).__name__])[0]
            raise EngineStopped(
                f"Spark did not start on {master}: {why[:300]}", hint="is --master right, and the cluster up?"
            ) from error
    # The first SQL of a session makes this folder, by default where the command was called.
    context._jsc.sc().conf().set("spark.sql.warehouse.dir", f"file:{context._temp_dir}/warehouse")
    return context


@contextlib.contextmanager
def _log4j() -> Iterator[str]:
    """JVM options that keep Spark's own log to errors; the file is needed only while the JVM starts."""
    with tempfile.TemporaryDirectory(prefix="abs-log4j-") as folder:
        path = Path(folder) / "log4j2.properties"
        path.write_text(LOG4J)
        yield f" -Dlog4j.configurationFile=file:{path} -Dlog4j2.configurationFile=file:{path}"


@contextlib.contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """A SparkContext takes SIGINT for itself, to cancel jobs; a job of ours is to take a last epoch instead."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Let what is started meanwhile inherit another stderr."""
    saved = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


class SparkWorkers:
    """Launches workers as Spark jobs. context: one to use and leave running; otherwise one is made and stopped."""

    def __init__(self, master: str, context: Any = None) -> None:
        self._own = context is None
        self._context = context or start_context(master)
        self._threads: list[threading.Thread] = []
        self._leaving = False

    @property
    def host(self) -> str:
        """Where the coordinator listens: as executors reach the driver."""
        host: str = self._context.getConf().get("spark.driver.host", "127.0.0.1")
        return host

    def slots(self) -> int | None:
        """Tasks that can run at once."""
        context = self._context
        local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", context.master)
        if local:
            count = local.group(1)
            return int(os.cpu_count() or 1) if count == "*" else int(count or 1)
        try:
            executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        except Exception as error:
            raise EngineStopped(f"cannot reach Spark master {context.master}", hint="is --master right?") from error
        cores = int(context.getConf().get("spark.executor.cores", "0"))
        return executors * cores if cores else max(int(context.defaultParallelism), executors)

    def launch(self, spec: JobSpec, abandon: Callable[[EngineError], None]) -> None:
        """Submit a job a worker, each from a thread of its own; `abandon` is called from there when one fails before
        its worker has said why."""
        context = self._context
        archive = _zip_modules(spec.root) if not context.master.startswith("local") else None
        if archive:
            context.addPyFile(archive)
        data = msgspec.json.encode(spec)
        name = os.path.basename(archive) if archive else None
        for number in range(spec.workers):
            job = (context, data, name, number, abandon)
            thread = threading.Thread(target=self._submit, args=job, name=f"abs-job-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _submit(
        self,
        context: Any,
        data: bytes,
        archive: str | None,
        number: int,
        abandon: Callable[[EngineError], None],
    ) -> None:
        try:
            context.parallelize([number], 1).mapPartitions(_worker_main(data, archive)).collect()
        except Exception as error:
            if not self._leaving:
                abandon(EngineStopped(f"worker {number}: its Spark job failed: {_first_line(error)}"))

    def __enter__(self) -> SparkWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._leaving = True
        for thread in self._threads:
            thread.join(timeout=15)
        if self._own:
            self._context.stop()


def _worker_main(data: bytes, archive: str | None) -> Callable[[Iterator[int]], Iterator[int]]:
    def main(numbers: Iterator[int]) -> Iterator[int]:
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

