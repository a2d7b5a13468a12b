"""The metrics server against clients that are slow, idle, hostile or too many, and a job that must not notice them."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from abscli.engine.errors import UsageError
from abscli.engine.telemetry.metrics import JobMetrics, served
from abscli.engine.telemetry.metrics_server import Limits, MetricsServer, ReservedDescriptors
from tests.support.schemas import checked
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
SHORT = Limits(request_seconds=1.0, answer_seconds=1.0)
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
DESCRIPTORS = 256

JOB = """version: 1
job: waiting
operators:
  lines:
    source: {type: text, path: in/*.txt}
  waits:
    from: lines
    map: waits:waits
  out:
    from: waits
    sink: {type: jsonl, path: out}
"""
WAITS = """
import time
from pathlib import Path
def waits(batch):
    (Path(__file__).parent / "waiting").touch()
    while not (Path(__file__).parent / "finish").exists():
        time.sleep(0.02)
    return batch
"""
"""Keeps the job running until a file is there."""


def registry(help_bytes: int = 1) -> CollectorRegistry:
    """A registry whose page has at least so many bytes."""
    made = CollectorRegistry()
    Gauge("depth", "d" * help_bytes, registry=made).set(7)
    return made


@contextlib.contextmanager
def serving(limits: Limits = SHORT, host: str = "127.0.0.1", help_bytes: int = 1) -> Iterator[int]:
    """The port of a server on which scrapes are answered before and after the block."""
    with contextlib.closing(MetricsServer(registry(help_bytes), host, 0, limits)) as server:
        yield server.port
        assert scrape(server.port, host) == (200, generate_latest(registry(help_bytes)))
        assert server._thread.is_alive()


def scrape(port: int, host: str = "127.0.0.1", seconds: float = 60) -> tuple[int, bytes]:
    """Scrape as Prometheus does."""
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        return response.status, response.read()


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, port), timeout=60)


def received(sock: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def exchange(port: int, request: bytes) -> bytes:
    with connect(port) as sock:
        sock.sendall(request)
        return received(sock)


def idle(port: int, count: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Begin connections that send nothing, without waiting until the server's queue has room for them."""
    clients = [stack.enter_context(socket.socket()) for _ in range(count)]
    for sock in clients:
        sock.setblocking(False)
        assert sock.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
    return clients


def idle_one_by_one(port: int, count: int, stack: contextlib.ExitStack) -> None:
    """Open connections that send nothing, each when the server had time to accept the one before it."""
    for _ in range(count):
        with contextlib.suppress(OSError):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1))
            select.select([sock], [], [], 0.005)


def test_an_idle_connection_is_closed_with_408_after_its_time() -> None:
    with serving() as port, connect(port) as sock:
        before = time.monotonic()
        assert received(sock).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - before >= SHORT.request_seconds * 0.9


def test_a_request_in_single_bytes_does_not_extend_its_time() -> None:
    with serving() as port, connect(port) as sock:
        before = time.monotonic()
        sock.settimeout(0.02)
        answer = b""
        for byte in SCRAPE[:20] * 1000:
            with contextlib.suppress(TimeoutError):
                sock.send(bytes([byte]))
                answer = sock.recv(1 << 16)
                break
        assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))
        assert time.monotonic() - before < 30


def test_a_whole_request_in_single_bytes_is_answered() -> None:
    with serving(Limits()) as port, connect(port) as sock:
        for byte in SCRAPE:
            sock.send(bytes([byte]))
        assert received(sock).endswith(generate_latest(registry()))


def test_a_client_that_does_not_read_the_answer_is_closed_after_its_time() -> None:
    """The page is larger than what the kernel buffers for a connection."""
    size = 16 << 20
    with serving(help_bytes=size) as port, connect(port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(SCRAPE)
        wait_for(lambda: descriptors_of(port) == 1)
        wait_for(lambda: descriptors_of(port) == 0)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


def descriptors_of(port: int) -> int:
    """How many connections to a port of this process the process itself has accepted."""
    mine = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    accepted = [row for row in rows if int(row[1].split(":")[1], 16) == port and row[3] != "0A"]
    return sum(f"socket:[{row[9]}]" in mine for row in accepted)


def test_a_client_that_has_its_answer_and_does_not_close_is_closed_after_its_time() -> None:
    with serving() as port, connect(port) as sock:
        sock.sendall(SCRAPE)
        assert received(sock).endswith(generate_latest(registry()))
        wait_for(lambda: descriptors_of(port) == 0)


def test_a_huge_header_gets_431_though_its_client_sends_more() -> None:
    with serving() as port:
        assert exchange(port, SCRAPE[:-2] + b"X: " + b"x" * 100_000).startswith(b"HTTP/1.1 431 ")
        assert exchange(port, b"G" * 100_000).startswith(b"HTTP/1.1 431 ")


def test_a_head_of_the_largest_size_is_answered() -> None:
    limit = Limits().request_bytes
    padding = b"X: " + b"x" * (limit - len(SCRAPE) - 5) + b"\r\n\r\n"
    with serving() as port:
        assert len(SCRAPE[:-2] + padding) == limit
        assert exchange(port, SCRAPE[:-2] + padding).startswith(b"HTTP/1.1 200 ")
        assert exchange(port, SCRAPE[:-2] + b"Y" + padding).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"\0", b"\r\n\r\n", os.urandom(4096) + b"\xff"])
def test_bytes_that_are_not_http_are_refused_without_waiting(garbage: bytes) -> None:
    first = b"\xff" + garbage
    with serving(Limits(request_seconds=3600.0)) as port:
        assert exchange(port, first).startswith(b"HTTP/1.1 400 ")


def test_pipelined_requests_get_one_answer() -> None:
    with serving() as port:
        answer = exchange(port, SCRAPE * 100)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(generate_latest(registry()))


def test_a_request_with_a_body_gets_its_whole_answer() -> None:
    with serving() as port:
        answer = exchange(port, SCRAPE[:-2] + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)
        assert answer.endswith(generate_latest(registry()))


def test_a_client_that_sends_without_end_is_closed() -> None:
    with serving(Limits(answer_seconds=3600.0)) as port, connect(port) as sock:
        sock.sendall(SCRAPE)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            sock.sendall(b"x" * (64 << 20))


def test_clients_that_leave_in_the_midst_end_nothing_else() -> None:
    with serving() as port:
        for request in (b"", b"GET /met", SCRAPE):
            for _ in range(20):
                sock = connect(port)
                sock.sendall(request)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
                sock.close()
            assert scrape(port)[0] == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_is_served_and_foreign_hosts_are_refused_on_it() -> None:
    with serving(host="::1") as port, connect(port, "::1") as sock:
        sock.sendall(SCRAPE.replace(b"localhost", b"evil.example"))
        assert received(sock).startswith(b"HTTP/1.1 421 ")
    with served(JobMetrics("words"), "::1", 0) as url:
        assert url.startswith("http://[::1]:")
        assert urlsplit(url).path == "/metrics"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_every_address_of_ipv6_includes_those_of_ipv4() -> None:
    with contextlib.closing(MetricsServer(registry(), "::", 0, SHORT)) as server:
        assert scrape(server.port, "127.0.0.1")[0] == scrape(server.port, "::1")[0] == 200


def test_a_foreign_host_is_refused_on_loopback_and_answered_on_every_address() -> None:
    foreign = SCRAPE.replace(b"localhost", b"evil.example:80")
    with serving() as port:
        assert exchange(port, foreign).startswith(b"HTTP/1.1 421 ")
    with serving(host="0.0.0.0") as port:
        assert exchange(port, foreign).startswith(b"HTTP/1.1 200 ")


def test_a_host_name_that_cannot_be_one_is_a_usage_error() -> None:
    for host in ("a..b", "x" * 100, "no.such.host.invalid"):
        with pytest.raises(UsageError, match="cannot listen on"), served(JobMetrics("words"), host, 0):
            pass


def test_a_collector_that_fails_gets_500_and_the_server_answers_on() -> None:
    made = CollectorRegistry()
    gauge = Gauge("depth", "d", registry=made)
    gauge.set_function(lambda: 1 / 0)
    with contextlib.closing(MetricsServer(made, "127.0.0.1", 0, SHORT)) as server:
        assert scrape(server.port)[0] == 500
        gauge.set_function(lambda: 1)
        assert scrape(server.port)[0] == 200


def count_descriptors() -> None:
    """Count the descriptors of a process that has a server and nothing else to do, while 100 connections are idle."""
    with contextlib.ExitStack() as stack:
        before = len(os.listdir("/proc/self/fd"))
        server = stack.enter_context(contextlib.closing(MetricsServer(registry(), "127.0.0.1", 0, SHORT)))
        started = len(os.listdir("/proc/self/fd"))
        idle(server.port, 100, stack)
        seen = set()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            seen.add(len(os.listdir("/proc/self/fd")) - 100)
        # One less for the moment in which a reserved descriptor is released for `accept`.
        assert seen <= {started, started - 1}
        assert scrape(server.port)[0] == 200
    assert len(os.listdir("/proc/self/fd")) == before


def test_connections_take_no_descriptors_beyond_those_that_are_reserved() -> None:
    """In a process of its own: threads that earlier tests left in this one open and close files."""
    count = f"from {__name__} import count_descriptors; count_descriptors()"
    assert subprocess.run([sys.executable, "-c", count], cwd=ROOT).returncode == 0


def test_a_scrape_among_idle_connections_is_answered_in_one_try() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(MetricsServer(registry(), "127.0.0.1", 0)))
        idle(server.port, 300, stack)
        assert scrape(server.port) == (200, generate_latest(registry()))


def test_one_thread_serves_every_connection() -> None:
    before = threading.active_count()
    with serving() as port, contextlib.ExitStack() as stack:
        idle(port, 50, stack)
        wait_for(lambda: descriptors_of(port) == Limits().connections)
        assert threading.active_count() == before + 1


def test_a_descriptor_that_another_thread_has_taken_is_reserved_again_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        reserved = ReservedDescriptors(2)
        stack.callback(reserved.close)
        port = listener.getsockname()[1]
        clients = [stack.enter_context(connect(port)) for _ in range(2)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no new descriptor is small enough
            for _ in clients:
                with pytest.raises(OSError, match="Too many open files"):
                    reserved.accept(listener)
            assert not reserved.available()
            with pytest.raises(OSError, match="Too many open files"):
                reserved.accept(listener)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert reserved.available()
        first, second = reserved.accept(listener), reserved.accept(listener)
        assert not reserved.available()
        reserved.close_socket(first)
        assert reserved.available()
        reserved.close_socket(second)


@contextlib.contextmanager
def waiting_job(folder: Path, interval: str) -> Iterator[subprocess.Popen[str]]:
    """A job that serves its metrics, may have 256 descriptors, and runs until the file `finish` is there."""
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("some words\n" * 100)
    (folder / "waits.py").write_text(WAITS)
    (folder / "job.yaml").write_text(JOB)
    words = ["run", "job.yaml", "--store", "store", "--engine", "inline", "--interval", interval]
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh",
         sys.executable, "-m", "abscli", *words, "--metrics", "0", "--log-format", "json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def port_of(job: subprocess.Popen[str]) -> int:
    """The port that the job's log names."""
    assert job.stderr is not None
    for text in job.stderr:
        if (line := checked(text, "abs.log")).get("event") == "metrics":
            return int(urlsplit(line["url"]).port or 0)
    raise AssertionError("the job has ended without metrics")


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_connections_do_not_end_a_job(tmp_path: Path) -> None:
    with waiting_job(tmp_path, "200ms") as job, contextlib.ExitStack() as stack:
        port = port_of(job)
        wait_for((tmp_path / "waiting").exists, job)
        idle_one_by_one(port, 300, stack)
        (tmp_path / "finish").touch()
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
    assert len(list((tmp_path / "out").rglob("*.jsonl"))) > 0


def test_a_scrape_of_a_job_among_idle_connections_is_answered_in_one_try(tmp_path: Path) -> None:
    with waiting_job(tmp_path, "200ms") as job, contextlib.ExitStack() as stack:
        port = port_of(job)
        idle(port, 300, stack)
        status, page = scrape(port)
        assert status == 200
        assert b"abs_job_info" in page
        (tmp_path / "finish").touch()
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors


@pytest.mark.integration
def test_a_process_without_free_descriptors_keeps_its_job_and_its_processor(tmp_path: Path) -> None:
    """No descriptor is below the limit, which is lowered while the job needs none for a store."""
    with waiting_job(tmp_path, "1h") as job, contextlib.ExitStack() as stack:
        port = port_of(job)
        wait_for((tmp_path / "waiting").exists, job)
        hard = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (3, hard))
        idle(port, 100, stack)
        before = cpu_seconds(job.pid)
        time.sleep(3)
        assert cpu_seconds(job.pid) - before < 1.5
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        assert scrape(port)[0] == 200
        (tmp_path / "finish").touch()
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
