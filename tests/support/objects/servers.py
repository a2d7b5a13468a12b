"""Object stores on loopback: moto (a mock of S3), Azurite (an emulator of Azure's), and Ceph's real RGW beside them."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
AZURITE = ROOT / ".azurite"
AZURITE_VERSION = "3.35.0"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Not a secret: it is built into the emulator."""
SECONDS = 120
"""How long a busy machine may take until a server answers."""


# In one thread: moto looks whether an object is there and puts it in two steps, and of twenty that put one name at once
# two were told that they had, in 9 of 200 rounds. Behind a connection that a client holds open others would wait, so
# each is closed when it has been answered (HTTP/1.0, as werkzeug speaks by itself).
MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


@dataclass(frozen=True)
class ObjectServer:
    """One that runs. scheme: of its URIs; at: what stands in them before the name of a bucket; environment: what its
    clients are told. Other processes are told of one as JSON."""

    name: str
    scheme: str
    port: int
    environment: Mapping[str, str]
    at: str = ""

    def make(self, name: str) -> None:
        """Make a bucket of that name; a folder on HDFS comes with its first file."""
        if self.scheme == "s3":
            s3_client(self.environment).create_bucket(Bucket=name)
        elif self.scheme == "az":
            _make_container(self.port, name)
        elif self.scheme == "gs":
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT", data=b"")
            with urllib.request.urlopen(request, timeout=SECONDS):
                pass

    def through(self, port: int) -> Mapping[str, str]:
        """What clients are told that are to reach it by another port."""
        return {name: value.replace(f":{self.port}", f":{port}") for name, value in self.environment.items()}


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def s3_client(environment: Mapping[str, str]) -> Any:
    """AWS' own client, for what the project's cannot do, and for names that it refuses."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 10}),
    )


@contextlib.contextmanager
def moto() -> Iterator[ObjectServer]:
    """A mock of S3 in Python; skips where it is not installed."""
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("flask_cors", reason="moto's server needs flask and flask-cors")
    port = free_port()
    with running([sys.executable, "-W", "ignore", "-c", MOTO, str(port)], port):
        yield ObjectServer("S3 by moto", "s3", port, s3_environment(port, "testing", "testing"))


def s3_environment(port: int, key: str, secret: str) -> dict[str, str]:
    """What clients of S3 are told; profiles of this machine are none of theirs."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


@contextlib.contextmanager
def azurite() -> Iterator[ObjectServer]:
    """The emulator of Azure's object store, of npm, in `.azurite` or in ABS_AZURITE; skips where it cannot be had."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [*_azurite(), "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location", folder]
        with running([*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)], port):
            environment = {
                "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
                "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
            }
            yield ObjectServer("Azure by Azurite", "az", port, environment)


def _azurite() -> list[str]:
    """The command of its program. The first call takes 190 MB and half a minute. ABS_AZURITE=0: none is wanted."""
    wanted = os.environ.get("ABS_AZURITE", "")
    if wanted == "0":
        pytest.skip("ABS_AZURITE=0: no Azurite is wanted")
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Azurite needs node and npm, and they are not there")
    folder = Path(wanted or AZURITE).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of this test run wait for the first
        if not program.exists():
            install = [npm, "install", "--silent", "--no-audit", "--no-fund", f"azurite@{AZURITE_VERSION}"]
            done = subprocess.run([*install, "--prefix", str(folder)], capture_output=True, text=True)
            if done.returncode or not program.exists():
                pytest.skip(f"azurite {AZURITE_VERSION} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return [node, str(program)]


def _make_container(port: int, name: str) -> None:
    """Make a container, with the signature that Azure wants of it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    path = f"/{AZURE_ACCOUNT}/{name}"
    canonical = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + canonical + f"/{AZURE_ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}", "Content-Length": "0"}
    url = f"http://127.0.0.1:{port}{path}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=SECONDS):
        pass


GUARD = """
import os, subprocess, sys, threading

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (server.wait(), os._exit(1)), daemon=True).start()
sys.stdin.read()
server.kill()
"""
"""Ends a server when the process that wanted it ends, however that ends: its end of the pipe is closed then."""


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """While a server runs that listens on a port of loopback."""
    with tempfile.TemporaryFile() as out:
        guarded = [sys.executable, "-S", "-c", GUARD, *command]
        process = subprocess.Popen(
            guarded, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert process.stdin is not None
        try:
            await_port(port, lambda: process.poll() is None)
            yield
        except TimeoutError:
            out.seek(0)
            raise AssertionError(out.read()[-2000:].decode(errors="replace")) from None
        finally:
            process.stdin.close()
            process.wait()


def await_port(port: int, alive: Callable[[], bool]) -> None:
    """Until somebody listens there; TimeoutError where nobody will."""
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if not alive() or time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)
