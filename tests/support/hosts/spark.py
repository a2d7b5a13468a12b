"""A standalone cluster of Spark over hosts: a master and workers, real JVMs, that encrypt or do not."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

from abscli.engine.drivers.java import use_java
from tests.support.hosts.network import Hosts
from tests.support.java import QUICK

PORT = 7077
PATIENCE = 180.0


class Cluster:
    """A master on `driver`; `start` starts a worker with one core on a host.

    secure: whether its processes authenticate and encrypt what they send each other.
    environment: of drivers, with the configuration of the cluster.
    """

    def __init__(self, net: Hosts, folder: Path, *, secure: bool = True) -> None:
        use_java()
        self._conf = {} if not secure else {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.network.crypto.enabled": "true",
        }  # fmt: skip
        (folder / "conf").mkdir()
        lines = [f"{name} {value}\n" for name, value in self._conf.items()]
        (folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
        self.environment = {**os.environ, "SPARK_CONF_DIR": str(folder / "conf")}
        self.master = f"spark://{net.addresses['driver']}:{PORT}"
        self._net = net
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._run("driver", "master.Master", "--port", str(PORT))
        self._until("driver", "I have been elected leader")

    def start(self, host: str) -> None:
        """Returns when the master knows it."""
        self._run(host, "worker.Worker", "--cores", "1", "--memory", "1g", self.master)
        self._until(host, "Successfully registered with master")

    def _run(self, host: str, what: str, *words: str) -> None:
        import pyspark  # here: it takes a tenth of what collecting all tests takes

        home = Path(pyspark.__file__).parent
        address = self._net.addresses[host]
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", address,
                   "--webui-port", "0", *words]  # fmt: skip
        log4j = self._folder / "log4j2.properties"
        log4j.write_text("rootLogger.level = info\nrootLogger.appenderRef.a.ref = a\nappender.a.type = Console\n"
                         "appender.a.name = a\nappender.a.layout.type = PatternLayout\n")  # fmt: skip
        environment = {
            **self.environment, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": address,
            "SPARK_WORKER_DIR": str(self._folder / f"work-{host}"), "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={log4j}", "JDK_JAVA_OPTIONS": " ".join(QUICK),
        }  # fmt: skip
        with self._log(host).open("wb") as log:
            self._processes.append(self._net.run(host, command, env=environment, stdout=log, stderr=log))

    def _log(self, host: str) -> Path:
        return self._folder / f"spark-{host}.log"

    def _until(self, host: str, words: str) -> None:
        end = time.monotonic() + PATIENCE
        while words not in (log := self._log(host).read_text()):
            assert self._processes[-1].poll() is None, log
            assert time.monotonic() < end, log
            time.sleep(0.1)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
