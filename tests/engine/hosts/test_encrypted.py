"""What somebody on the network of several hosts sees of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts.jobs import HostJob
from tests.support.hosts.network import Hosts, needs_hosts

LISTEN = """
import socket, sys
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.bind(("eth0", 0))
print("listens", flush=True)
with open(sys.argv[1], "wb") as file:
    while True:
        file.write(sock.recv(1 << 16))
        file.flush()
"""


@contextmanager
def overheard(net: Hosts, host: str, path: Path) -> Iterator[None]:
    """All frames that a host sends and gets go to the file."""
    with net.run(host, [sys.executable, "-c", LISTEN, str(path)], stdout=subprocess.PIPE) as listener:
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == b"listens\n"
            yield
        finally:
            listener.kill()


@needs_hosts
@pytest.mark.parametrize("insecure", [False, True])
def test_who_listens_reads_nothing_unless_the_job_is_insecure(tmp_path: Path, insecure: bool) -> None:
    path = tmp_path / "frames"
    with (
        Hosts("driver", "h1", "h2") as net,
        overheard(net, "h1", path),
        HostJob(net, tmp_path, [["h1"], ["h2"]], insecure=insecure, master="elsewhere") as job,
    ):
        job.runs_for(2)
        job.finish()
    frames = path.read_bytes()
    assert len(frames) > 1 << 16
    plain = {word for word in (b"Hello", b"Alive", b"TaskAcked", b"EpochTriggered", b"ChannelHello") if word in frames}
    assert (len(plain) == 5) == insecure
    assert bool(plain) == insecure
