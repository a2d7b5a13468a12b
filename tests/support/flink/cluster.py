"""A standalone Flink on this machine, as processes that a test or a bench may kill: one JobManager, and TaskManagers of
one slot each."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.objects.servers import free_port

OPENED = (
    "java.base/java.lang", "java.base/java.net", "java.base/java.io", "java.base/java.nio", "java.base/sun.nio.ch",
    "java.base/java.lang.reflect", "java.base/java.text", "java.base/java.time", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/java.util.concurrent.locks",
)  # fmt: skip
"""Packages that Flink's own configuration opens on Java 17."""

LOG4J = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""

MEMORY = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.managed.size": "16m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.jvm-metaspace.size": "128m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
}
"""What Flink's start scripts would compute; without them it has to be given."""

START_SECONDS = 120.0


class FlinkCluster:
    """Runs while it is entered; its logs and configuration are in `folder`.

    classes: a folder of user classes, on everybody's class path.
    options: of Flink, beside what lets it run here; what is not given is as Flink has it.
    """

    def __init__(
        self, jars: Sequence[Path], classes: Path, folder: Path, *, workers: int, options: dict[str, str]
    ) -> None:
        self.workers: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._count = workers
        self._class_path = ":".join(map(str, [*jars, classes]))
        self._options = options
        self._manager: subprocess.Popen[bytes]
        self._rest = 0

    def __enter__(self) -> FlinkCluster:
        (self._folder / "conf").mkdir(parents=True)
        (self._folder / "tmp").mkdir()
        self._rest, rpc = free_port(), free_port()
        options = {
            **MEMORY, "jobmanager.rpc.address": "127.0.0.1", "jobmanager.rpc.port": str(rpc),
            "jobmanager.bind-host": "127.0.0.1", "rest.address": "127.0.0.1", "rest.port": str(self._rest),
            "rest.bind-port": str(self._rest), "rest.bind-address": "127.0.0.1", "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1", "taskmanager.numberOfTaskSlots": "1",
            "io.tmp.dirs": str(self._folder / "tmp"), **self._options,
        }  # fmt: skip
        (self._folder / "conf" / "config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in options.items()))
        (self._folder / "conf" / "log4j2.properties").write_text(LOG4J)
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._manager = self._java("jobmanager", "512m", entry)
        try:
            for number in range(self._count):
                entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
                self.workers.append(self._java(f"taskmanager-{number}", "640m", entry))
            self._wait(lambda: len(self.get("/taskmanagers")["taskmanagers"]) == self._count)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    def submit(self, main: str, *arguments: str) -> str:
        """Runs a main class that submits a job to this cluster; the job's id."""
        target = [
            "execution.target=remote", "rest.address=127.0.0.1", f"rest.port={self._rest}",
            "jobmanager.rpc.address=127.0.0.1",
        ]  # fmt: skip
        command = self._command("256m", main, *arguments, *target)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{main} failed: {done.stderr[-2000:]}")
        self._wait(lambda: bool(self.get("/jobs")["jobs"]))
        return str(self.get("/jobs")["jobs"][0]["id"])

    def get(self, path: str) -> Any:
        """What the JobManager answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}{path}", timeout=10) as answer:
            return json.load(answer)

    def _command(self, memory: str, main: str, *arguments: str) -> list[str]:
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        log4j = f"-Dlog4j.configurationFile=file:{self._folder / 'conf' / 'log4j2.properties'}"
        folders = f"-Djava.io.tmpdir={self._folder / 'tmp'}"
        heap = [f"-Xms{memory}", f"-Xmx{memory}"]
        return ["java", *heap, *opened, log4j, folders, "-cp", self._class_path, main, *arguments]

    def _java(self, name: str, memory: str, main: str) -> subprocess.Popen[bytes]:
        command = self._command(memory, main, "--configDir", str(self._folder / "conf"))
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def _wait(self, fact: Callable[[], bool]) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                if fact():
                    return
            except OSError:  # it does not listen yet
                pass
            if any(process.poll() is not None for process in [self._manager, *self.workers]):
                raise RuntimeError(f"a process of Flink has ended: see the logs in {self._folder}")
            if time.monotonic() > until:
                raise RuntimeError(f"Flink was not ready within {START_SECONDS:.0f} s: see {self._folder}")
            time.sleep(0.1)

    def _stop(self) -> None:
        processes = [*self.workers, self._manager]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
