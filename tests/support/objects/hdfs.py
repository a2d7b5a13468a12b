"""A real HDFS on loopback, Hadoop's own minicluster of Maven Central: a NameNode and two DataNodes in one JVM."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.java import QUICK
from tests.support.maven import jars
from tests.support.objects.servers import SECONDS, ObjectServer, free_port, running

VERSION = "3.5.0"
"""That of the Spark which is tested."""
PROGRAM = Path(__file__).with_name("MiniCluster.java")
SITE = "<configuration><property><name>{}</name><value>{}</value></property></configuration>"
WEB_FOLDERS = ("hdfs", "datanode")


@dataclass(frozen=True)
class Hdfs(ObjectServer):
    """One that runs. Clients find its NameNode's HTTP address by the configuration in HADOOP_CONF_DIR."""

    folder: Path = Path()
    rpc: int = 0

    def through(self, port: int) -> Mapping[str, str]:
        return configured(self.folder / f"conf-{port}", self.rpc, port)


def configured(folder: Path, rpc: int, http: int) -> dict[str, str]:
    """What clients are told of a NameNode on these ports."""
    folder.mkdir(exist_ok=True)
    (folder / "core-site.xml").write_text(SITE.format("fs.defaultFS", f"hdfs://127.0.0.1:{rpc}"))
    (folder / "hdfs-site.xml").write_text(SITE.format("dfs.namenode.http-address", f"127.0.0.1:{http}"))
    return {"HADOOP_CONF_DIR": str(folder)}


@contextlib.contextmanager
def minicluster() -> Iterator[ObjectServer]:
    """It; skips, with the reason, where Maven or Java cannot be had. ABS_HDFS=0 says that none is wanted."""
    if os.environ.get("ABS_HDFS") == "0":
        pytest.skip("ABS_HDFS=0: no HDFS is wanted")
    if shutil.which("java") is None:
        pytest.skip("Java is not there (java)")
    classes = [str(jar) for jar in jars(f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}")]
    rpc, http = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="abs-hdfs-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for web in WEB_FOLDERS:  # else its web server unpacks the whole jar, which takes half a minute
            (folder / "web" / "webapps" / web).mkdir(parents=True)
        path = os.pathsep.join([str(folder / "web"), *classes])
        command = ["java", *QUICK, "-Xmx400m", "-cp", path, str(PROGRAM), name, str(rpc), str(http)]
        with running(command, http):
            deadline = time.monotonic() + SECONDS
            while not (folder / "ready").exists():
                assert time.monotonic() < deadline, "the minicluster does not become ready"
                time.sleep(0.1)
            environment = configured(folder / "conf", rpc, http)
            at = f"127.0.0.1:{rpc}/"
            yield Hdfs("HDFS", "hdfs", http, environment, at=at, folder=folder, rpc=rpc)
