"""The Spark driver: one single-task Spark job a worker, so that losing one leaves the others' jobs alone.

Spark places the workers and says who died; records flow between them directly.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import signal
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from abscli.engine.channels.door import is_loopback
from abscli.engine.channels.messages import JobSpec
from abscli.engine.drivers.java import use_java
from abscli.engine.errors import EngineError, EngineStopped, UsageError
from formats.decoding import decode
from formats.native.facts import digest
from formats.packages import require_package
from formats.redaction import refuse_credentials
from formats.scratch import scratch
from formats.storage.credentials import use_hadoop

SLOTS_SECONDS = 90.0
"""For executors to come."""

SETTLED_SECONDS = 3.0
"""When none has come for so long, and there are enough, no more are awaited."""

LEAVE_SECONDS = 15.0
"""For the jobs of all workers, when the work is done; again for those that did not end and are cancelled."""

CONF = {
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
AUTHENTICATION = "spark.authenticate"
SECRET = "spark.authenticate.secret"
ENCRYPTIONS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")
"""Each encrypts all that Spark's processes send each other; the first is what Spark recommends."""

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
LOG4J = """rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark.log.1
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{{1}}: %m%n
"""


def start_context(master: str, *, advertise: str | None = None, bind: str | None = None) -> Any:
    """Start a SparkContext for workers. Raises MissingPackage, JavaMissing, or EngineStopped if no cluster answers.

    advertise, bind: the driver's address for others, and the one on which it listens; None: as Spark finds them.

    A context starts in half the time of a SparkSession, which workers do not need. The JVM keeps its log and whatever
    it makes for a while in a folder that goes with this process; its log is shown only when it does not start.
    """
    refuse_credentials(master, "--master")
    require_package("pyspark")
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setAppName("abs").setAll(list(CONF.items()))
    if is_local(master):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        # Every user of this machine can connect to loopback. The JVM generates the secret and keeps it in memory. This
        # setting overrides spark-defaults.conf, wherever SPARK_CONF_DIR says that it is.
        conf.set(AUTHENTICATION, "true")
    for name, value in (("spark.driver.host", advertise), ("spark.driver.bindAddress", bind)):
        if value is not None:
            conf.set(name, value)
    folder = scratch()
    log4j = Path(folder) / "log4j2.properties"
    log4j.write_text(LOG4J.format(folder=folder))
    properties = {f"{name}.configurationFile": log4j.as_uri() for name in ("log4j", "log4j2")}
    properties["java.io.tmpdir"] = folder  # Java does not look at TMPDIR
    options = [JAVA_OPTIONS, *(f'"-D{name}={value}"' for name, value in properties.items())]
    conf.set("spark.driver.extraJavaOptions", " ".join(options))
    stderr = _Stderr()
    try:
        with stderr.caught(), _same_interrupt_handler():
            gateway = SparkContext._gateway or _launch(conf, folder, stderr)
            if master.startswith("local-cluster"):  # the one local master for which Spark generates no secret
                # Not before `_launch`, which puts the configuration on a command line.
                conf.set(SECRET, secrets.token_hex(32))
            context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        lines = [*stderr.lines, *_log(folder)]
        errors = [line.strip() for line in lines if "ERROR" in line or "Exception" in line]
        why = errors[0] if errors else first_line(error)
        raise EngineStopped(
            f"Spark did not start on {master}: {why[:300]}", hint="check --master, and that the cluster is running"
        ) from error
    # The first SQL of a session makes this folder, by default where the command was called.
    context._jsc.sc().conf().set("spark.sql.warehouse.dir", f"file:{context._temp_dir}/warehouse")
    return context


def is_local(master: str) -> bool:
    """Return whether all processes of this Spark master run on this machine."""
    return master.startswith("local")


def try_spark(master: str) -> None:
    """Starts Spark, runs a task of Python on it, and stops it; JavaMissing or EngineStopped if that does not work."""
    context = start_context(master)
    try:
        context.parallelize([1], 1).map(str).collect()
    except Exception as error:
        raise EngineStopped(
            f"Spark runs on {master}, but a Python task failed there: {first_line(error)[:300]}",
            hint="set PYSPARK_PYTHON: workers need the same Python version as the driver",
        ) from error
    finally:
        context.stop()


def _launch(conf: Any, folder: str, stderr: _Stderr) -> Any:
    """A JVM in a process group of its own: a signal to ours asks us for a last epoch, which needs the JVM. It ends when
    its stdin does, and that is ours to hold."""
    from pyspark.java_gateway import launch_gateway

    before, tempfile.tempdir = tempfile.tempdir, folder  # for the folder in which the JVM says its port
    try:
        return launch_gateway(conf, {"process_group": 0, "stdout": stderr.writer, "stderr": stderr.writer})
    finally:
        tempfile.tempdir = before


def _log(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return (Path(folder) / "spark.log").read_text("utf-8", "replace").splitlines()
    return []


@contextlib.contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """A SparkContext takes SIGINT for itself, to cancel jobs; a job of ours is to take a last epoch instead."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


class _Stderr:
    """What a JVM and its Python workers print: kept while it starts, for an error to quote, and passed on to stderr
    from then on. writer: the descriptor that it gets for its stdout and stderr."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=200)
        self._starting = True
        self._reader, self.writer = os.pipe()
        self._thread = threading.Thread(target=self._read, name="abs-spark-stderr", daemon=True)

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Keeps what is printed while the block runs."""
        self._thread.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            os.close(self.writer)
            self._starting = False
            if failed:
                self._thread.join(timeout=1)  # a JVM that has ended has said all

    def _read(self) -> None:
        with open(self._reader, "rb") as printed:
            for line in printed:
                if self._starting:
                    self.lines.append(line.decode("utf-8", "replace"))
                else:
                    with contextlib.suppress(OSError):
                        os.write(2, line)


class SparkWorkers:
    """Launches workers as Spark jobs. context: one to use and leave running; otherwise one is made and stopped."""

    pulse = True

    def __init__(
        self, master: str, context: Any = None, *, advertise: str | None = None, bind: str | None = None
    ) -> None:
        self._own = context is None
        self._context = context or start_context(master, advertise=advertise, bind=bind)
        self._advertise = advertise
        self._bind = bind
        self._threads: list[threading.Thread] = []
        self._leaving = False
        self._main: Callable[[Iterator[tuple[int, int]]], Iterator[int]] | None = None
        self._groups: dict[int, str] = {}

    @property
    def host(self) -> str:
        """Where the coordinator is: as executors reach the driver."""
        host: str = self._advertise or self._context.getConf().get("spark.driver.host", "127.0.0.1")
        return host

    @property
    def bind(self) -> str:
        """Where the driver listens."""
        address: str = self._bind or self._context.getConf().get("spark.driver.bindAddress", self.host)
        return address

    @property
    def in_clear(self) -> UsageError | None:
        """Return an error if others could read what Spark sends to workers; None if they cannot."""
        one_machine = is_local(self._context.master) or (is_loopback(self.host) and is_loopback(self.bind))
        return unprotected(self._context.master, self._context.getConf(), one_machine=one_machine)

    def slots(self, least: int, most: int, waiting: Callable[[int], None]) -> int | None:
        """Tasks that can run at once, counted when executors have registered."""
        local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", self._context.master)
        if local:
            count = local.group(1)
            return int(os.cpu_count() or 1) if count == "*" else int(count or 1)
        bound = int(self._context.getConf().get("spark.cores.max", "0"))
        if bound and bound < least:
            return bound
        return self._registered(least, min(most, bound or most), waiting)

    def _registered(self, least: int, most: int, waiting: Callable[[int], None]) -> int:
        """Executors come one after the other, each when its machine has started a JVM."""
        begun = changed = time.monotonic()
        seen = 0
        while (slots := self._slots_now()) < most:
            now = time.monotonic()
            if slots != seen:
                seen, changed = slots, now
            if slots >= least and now - changed > SETTLED_SECONDS:
                break
            if now - begun > SLOTS_SECONDS:
                raise EngineStopped(
                    f"{least} worker{'s need' if least > 1 else ' needs'} {least} slot{'s'[: least != 1]}, but only "
                    f"{slots} became available within {SLOTS_SECONDS:.0f} s on {self._context.master}",
                    hint="check that the cluster is running and has free slots"
                    + (f"; or use --workers {slots}" if slots else ": the web UI of its master lists its workers"),
                )
            waiting(slots)
            time.sleep(0.2)
        return slots

    def _slots_now(self) -> int:
        try:
            spark = self._context._jsc.sc()
            return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
        except Exception as error:
            raise EngineStopped(
                f"cannot reach Spark master {self._context.master}: {first_line(error)}", hint="is --master right?"
            ) from error

    def prepare(self, spec: JobSpec) -> None:
        """What every worker gets: the job, and the user's modules where executors may be elsewhere."""
        context = self._context
        archive = _zip_modules(spec.root) if not is_local(context.master) else None
        if archive:
            context.addPyFile(archive)
        self._main = _worker_main(msgspec.json.encode(spec), os.path.basename(archive) if archive else None)

    def launch(self, number: int, launch: int, failed: Callable[[EngineError], None]) -> None:
        """Submit a worker's job, from a thread of its own; `failed` is called from there when it fails."""
        group = self._groups[number] = f"abs-{uuid.uuid4().hex[:12]}-worker-{number}-{launch}"
        thread = threading.Thread(
            target=self._submit, args=(number, launch, group, failed), name=f"abs-job-{number}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _submit(self, number: int, launch: int, group: str, failed: Callable[[EngineError], None]) -> None:
        context = self._context
        assert self._main is not None
        try:
            # Properties of jobs belong to the thread that submits them.
            context.setJobGroup(group, f"worker {number}", interruptOnCancel=True)
            context.parallelize([(number, launch)], 1).mapPartitions(self._main).collect()
        except Exception as error:
            if not self._leaving:
                failed(_failure(number, error))

    def has_slot(self, number: int) -> bool | None:
        """Return whether a task of the worker's newest job has been sent to an executor."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._groups[number])]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
        except Exception:  # the JVM is gone, or knows nothing of the group yet
            return None

    def kill(self, number: int, pid: int | None) -> None:
        """End the worker's process where it is on this machine; elsewhere Spark ends its job."""
        if is_local(self._context.master):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        if (group := self._groups.get(number)) is not None:
            with contextlib.suppress(Exception):  # a cluster that is gone has ended it already
                self._context.cancelJobGroup(group)

    def __enter__(self) -> SparkWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._leaving = True
        # A job that is cancelled is over for the driver while its worker still writes: so each may end by itself first.
        if not self._all_ended():
            for number in self._groups:  # of a worker that is cut off Spark may not hear for minutes
                self._cancel(number)
            self._all_ended()
        if self._own:
            self._context.stop()

    def _all_ended(self) -> bool:
        until = time.monotonic() + LEAVE_SECONDS
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def unprotected(master: str, conf: Any, *, one_machine: bool) -> UsageError | None:
    """Return an error that lists the settings that `conf` lacks; None if others cannot read what Spark sends.

    one_machine: whether all connections are on loopback. Other users of the machine can connect to loopback, but cannot
        read its packets, so authentication is enough.
    """
    authenticates = _is_on(conf, AUTHENTICATION)
    encrypts = one_machine or any(_is_on(conf, name) for name in ENCRYPTIONS)
    if authenticates and encrypts:
        return None
    if is_local(master):
        return UsageError(
            f"the SparkContext on {master} has no {AUTHENTICATION}: every user of this machine can connect to its "
            "ports and read the token of this job",
            hint=f'set .config("{AUTHENTICATION}", "true") before the SparkContext is created, or pass insecure=True '
            "if no other user can log in to this machine",
        )
    missing = [AUTHENTICATION] * (not authenticates) + [ENCRYPTIONS[0]] * (not encrypts)
    return UsageError(
        f"Spark does not {'encrypt' if authenticates else 'authenticate'} its connections on {master}, "
        "so the encryption key of this job's workers could be intercepted",
        hint=f"set {' and '.join(f'{name} true' for name in missing)} in spark-defaults.conf, with the cluster's "
        "values (and spark.authenticate.secret if Spark generates none), or use --insecure on a trusted network",
    )


def _is_on(conf: Any, name: str) -> bool:
    return str(conf.get(name, "false")).strip().lower() == "true"


def _worker_main(data: bytes, archive: str | None) -> Callable[[Iterator[tuple[int, int]]], Iterator[int]]:
    def main(launches: Iterator[tuple[int, int]]) -> Iterator[int]:
        from pyspark import SparkFiles

        from abscli.engine.worker import Worker

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the driver's to handle
        spec = decode(data, JobSpec)
        if archive is not None:
            spec = msgspec.structs.replace(spec, root=SparkFiles.get(archive))
        use_hadoop(spec.hadoop)
        for number, launch in launches:
            Worker(spec, number, launch).run()
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
    target = Path(scratch()) / f"abs-job-{digest(data)[:16]}.zip"
    target.write_bytes(data)
    return str(target)


def _failure(number: int, error: Exception) -> EngineStopped:
    """Why a worker's job failed: for the cluster's reason, where it gave the whole application up."""
    given_up = "Application has been killed. Reason: "
    reasons = [line.partition(given_up)[2] for line in _log(scratch()) if given_up in line]
    if reasons:
        return EngineStopped(
            f"Spark ended the application: {reasons[-1]}", hint="check --master, and that the cluster is running"
        )
    said = f"{EngineStopped.__module__}.{EngineStopped.__qualname__}: "
    own = [line.partition(said)[2] for line in str(error).splitlines() if line.startswith(said)]
    if own:  # the worker itself said why it could not start
        return EngineStopped(own[0])
    return EngineStopped(f"worker {number}: its Spark job failed: {first_line(error)}")


def first_line(error: Exception) -> str:
    """What Spark says first: behind what Py4J puts before it."""
    lines = [line.removeprefix(": ").strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (telling or [type(error).__name__])[0][:300]

