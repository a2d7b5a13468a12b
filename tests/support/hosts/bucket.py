"""An S3 server on a host of its own, for stores that a host can be cut off from."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.hosts.network import Hosts
from tests.support.objects.servers import MOTO, s3_environment

PORT = 5000
NAME = "bucket"
SECONDS = 120
MAKE = """
import sys, time, urllib.request
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="PUT"), timeout=10)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of a server that runs. environment: of its clients."""

    store: str
    environment: Mapping[str, str]


@contextlib.contextmanager
def bucket_on(net: Hosts, host: str, folder: Path) -> Iterator[Bucket]:
    """Run moto on a host, with a bucket; skip where moto is not installed. folder: for the log of the server."""
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("flask_cors", reason="moto's server needs flask and flask-cors")
    address = net.addresses[host]
    server = [sys.executable, "-W", "ignore", "-c", MOTO.replace("127.0.0.1", address), str(PORT)]
    with (folder / "moto.log").open("wb") as log, net.run(host, server, stdout=log, stderr=log) as process:
        try:
            url = f"http://{address}:{PORT}"
            make = [sys.executable, "-c", MAKE, f"{url}/{NAME}", str(SECONDS)]
            with net.run(host, make, stderr=subprocess.PIPE) as making:
                _, errors = making.communicate(timeout=2 * SECONDS)
                assert making.returncode == 0, errors.decode()
            environment = {**s3_environment(PORT, "testing", "testing"), "AWS_ENDPOINT_URL": url}
            yield Bucket(f"s3://{NAME}/store", environment)
        finally:
            process.kill()
