"""The ports that Spark opens on loopback, asked by a client that does not authenticate, as another user could ask."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.scratch import scratch
from tests.engine.recovering.test_executors import JOB, command
from tests.support.jobs.kills import check_counted, write_rows
from tests.support.jobs.small import open_gate
from tests.support.processes import descendants
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="finds the ports of a process in /proc"),
]

ROOT = Path(__file__).parents[2]
TRIES = 8
ABS = ["-m", "abscli", "run", "job.yaml", "--store", "store", "--interval", "200ms", "--workers", "2"]
WITHOUT_AUTHENTICATION = """
import sys
from pyspark import SparkConf, SparkContext
from abscli.engine.drivers.java import use_java
use_java()
conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
conf.set("spark.cleaner.referenceTracking", "false")  # else a collection of garbage removes what the client asks for
context = SparkContext(conf=conf.set("spark.driver.bindAddress", "127.0.0.1"))
token = "9f3a1c7be2d4"
assert context.parallelize([1, 2], 2).map(lambda number: (number, token)).count() == 2
print("ready", flush=True)
sys.stdin.read()
"""
CHUNK_REQUEST, CHUNK, RPC, RPC_ANSWER = 0, 1, 3, 4
"""Types of messages of Spark's transport protocol."""

OPEN_BLOCKS = 0
NO_JAVA_OBJECT = bytes(4) + b"garbage"
"""A message to Spark's RPC, which has Java read the object that follows the four bytes."""


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


class Client:
    """Speaks Spark's transport protocol without a word about who it is."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=5)

    def ask(self, kind: int, body: bytes) -> bytes:
        """Send a message; the answer from its type on, empty if there is none."""
        try:
            self._sock.sendall(struct.pack(">qB", 9 + len(body), kind) + body)
            (length,) = struct.unpack(">q", self._read(8))
            return self._read(length - 8)
        except OSError:
            return b""

    def rpc(self, body: bytes) -> bytes:
        return self.ask(RPC, struct.pack(">qi", 1, len(body)) + body)

    def block(self, name: str) -> bytes:
        """The bytes of a block; empty if it is not given out."""
        answer = self.rpc(bytes([OPEN_BLOCKS]) + text("app") + text("driver") + struct.pack(">i", 1) + text(name))
        if answer[:1] != bytes([RPC_ANSWER]):
            return b""
        stream = answer[14:22]
        chunk = self.ask(CHUNK_REQUEST, stream + struct.pack(">i", 0))
        return chunk[1:] if chunk[:1] == bytes([CHUNK]) else b""

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


def listening(process: int) -> list[int]:
    """The TCP ports on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    mine = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return sorted({int(address.rpartition(":")[2], 16) for address in mine})


def jvm_of(process: int) -> int:
    (jvm,) = [pid for pid in descendants(process) if "org.apache.spark.deploy.SparkSubmit" in command(pid)]
    return jvm


def spark_ports(process: int) -> list[int]:
    """Of the driver's RPC and of its block manager: the ports of its JVM that answer Spark's protocol."""
    found = []
    for port in listening(jvm_of(process)):
        with Client(port) as client:
            if client.rpc(b"\0"):
                found.append(port)
    return found


@contextlib.contextmanager
def running(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job that has completed an epoch, and goes on until the gate is open."""
    (folder / "job.yaml").write_text(JOB)
    errors = folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, stdout=file, stderr=file,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **environment},
        )  # fmt: skip
    try:
        wait_for(lambda: list(folder.glob("store/epochs/*/outcome.json")), process, errors.read_text, seconds=300)
        yield process
        open_gate(folder)
        assert process.wait(180) == 0, errors.read_text()
    finally:
        process.kill()
        process.wait()


def blocks(port: int) -> Iterator[bytes]:
    for number in range(2):
        with Client(port) as client:
            yield client.block(f"broadcast_{number}_piece0")


def test_spark_of_a_run_gives_nothing_to_a_client_without_its_secret(tmp_path: Path, jvm: None) -> None:
    """Also where the user's own configuration says that Spark need not authenticate."""
    counts = write_rows(tmp_path, files=1500)
    (tmp_path / "spark-defaults.conf").write_text("spark.authenticate false\n")
    with running(tmp_path, *ABS, SPARK_CONF_DIR=str(tmp_path)) as process:
        ports = spark_ports(process.pid)
        assert len(ports) == 2
        for port in ports * TRIES:
            assert set(blocks(port)) == {b""}
            with Client(port) as client:
                answer = client.rpc(NO_JAVA_OBJECT)
            assert b"SaslMessage" in answer  # and not of Java's deserialization
            assert b"StreamCorrupted" not in answer
    check_counted(tmp_path, counts)


@pytest.mark.soak
def test_a_spark_that_does_not_authenticate_gives_what_its_tasks_are_told(jvm: None) -> None:
    """The control of the test above: the client speaks the protocol, and gets what there is to get."""
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_AUTHENTICATION],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        # Without authentication the block manager leaves a message that is none of its own without an answer.
        ports = listening(jvm_of(process.pid))
        assert len(ports) >= 2
        assert b"9f3a1c7be2d4" in b"".join(block for port in ports for block in blocks(port))
        answers = []
        for port in ports:
            with Client(port) as client:
                answers.append(client.rpc(NO_JAVA_OBJECT))
        assert any(b"StreamCorrupted" in answer for answer in answers)
        process.communicate()
    assert process.returncode == 0


def test_the_secret_of_spark_is_in_no_file_command_line_or_environment(spark: Any) -> None:
    hadoop = spark._jvm.org.apache.hadoop
    credentials = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = bytes(credentials.getSecretKey(hadoop.io.Text("sparkCookie")))
    assert len(secret) >= 32
    assert sum(spark.parallelize([1, 2], 2).map(abs).collect()) == 3
    assert secret.decode() not in str(spark.getConf().getAll())
    jvm = jvm_of(os.getpid())
    shown = [Path(f"/proc/{pid}/{name}") for pid in (jvm, *descendants(jvm)) for name in ("cmdline", "environ")]
    kept = [path for folder in (scratch(), spark._temp_dir) for path in Path(folder).rglob("*") if path.is_file()]
    assert len(shown) >= 4
    assert kept
    for path in shown + kept:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert secret not in path.read_bytes(), path
