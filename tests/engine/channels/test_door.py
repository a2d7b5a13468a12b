"""What strangers can do at the door of a coordinator or worker: end their own connection, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from abscli.engine.channels import door
from abscli.engine.channels.door import HELLO_BYTES, TOKEN_BYTES, Door, greeting
from abscli.engine.channels.messages import ChannelHello
from abscli.engine.coordinator import Progress, Service
from abscli.engine.errors import EngineStopped
from abscli.engine.job import run_job
from abscli.engine.sources.files import line_files
from abscli.engine.telemetry.news import Recovered
from abscli.engine.worker import Worker
from tests.support.doors import HELLO, House, turned_away
from tests.support.jobs.small import inline, last_counts, word_count, write_words
from tests.support.waiting import wait_for

pytestmark = pytest.mark.minutes

GARBAGE = [
    b"",
    b"\0",
    b"GET / HTTP/1.0\r\n\r\n",
    b'{"type":"Hello","token":"\xff"}',
    b"[" * (1 << 14),
    b"\xff" * (TOKEN_BYTES - 1),
    b"\0" * TOKEN_BYTES + b"\xff\xff\xff\xff",
    b"\xff" * (1 << 20),
]


def lengthy(token: bytes, length: int, body: bytes = b"") -> bytes:
    return token + length.to_bytes(4, "little") + body


def from_insiders(token: bytes) -> list[bytes]:
    """Greetings with the right token that are none."""
    return [
        lengthy(token, 0),
        lengthy(token, HELLO_BYTES + 1),
        lengthy(token, 2**32 - 1),
        lengthy(token, 5, b"\xff\xff\xff\xff\xff"),
        lengthy(token, HELLO_BYTES, b"[" * HELLO_BYTES),
        lengthy(token, 2, b"{}"),
        lengthy(token, 15, b'{"type":"Leave"'),
        lengthy(token, 16, b'{"type":"Leave"}'),
    ]


@pytest.fixture
def house() -> Iterator[House]:
    with House() as opened:
        yield opened


def comes_in(house: House, worker: int) -> None:
    with house.knock() as sock:
        sock.sendall(house.greeting_of(worker))
        wait_for(lambda: house.is_in(worker))


def test_who_knows_the_token_comes_in(house: House) -> None:
    comes_in(house, 7)


@pytest.mark.parametrize("data", [data for data in GARBAGE if len(data) >= TOKEN_BYTES])
def test_who_does_not_know_the_token_is_turned_away_without_being_read_further(
    house: House, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "decode_greeting", lambda payload: pytest.fail("parsed what a stranger said"))
    with house.knock() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        assert turned_away(sock)
    assert not house.admitted


def test_a_token_is_compared_whole_and_in_constant_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    whole = door.hmac.compare_digest
    monkeypatch.setattr(door.hmac, "compare_digest", lambda a, b: compared.append(len(a)) or whole(a, b))
    with house.knock() as sock:
        sock.sendall(b"\xff" * (TOKEN_BYTES - 1))
        wait_for(lambda: house.heard_of_one_stranger() == TOKEN_BYTES - 1)
        assert not compared
        sock.sendall(b"\xff")
        assert turned_away(sock)
    assert compared == [TOKEN_BYTES]


def test_a_token_with_no_greeting_behind_it_ends_that_connection(house: House) -> None:
    for data in from_insiders(house.token):
        with house.knock() as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            assert turned_away(sock)
    assert not house.admitted
    comes_in(house, 1)


def test_what_follows_a_greeting_is_left_in_the_socket(house: House) -> None:
    with house.knock() as sock:
        body = msgspec.json.encode(HELLO)
        sock.sendall(lengthy(house.token, len(body), body) + b"more")
        wait_for(lambda: bool(house.admitted))
        assert house.lines[0].sock.recv(64) == b"more"


def test_who_is_silent_or_drips_has_a_deadline(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HELLO_SECONDS", 0.5)
    with house.knock() as silent, house.knock() as dripping:
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for _ in range(TOKEN_BYTES - 1):  # each byte in time, but not all of them
                dripping.sendall(b"x")
                time.sleep(0.05)
        assert turned_away(silent)
        assert turned_away(dripping)
        assert time.monotonic() - begun < 60


def test_strangers_are_bounded_and_the_oldest_makes_room(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HELLO_SECONDS", 3600.0)
    house.door._most = 8
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(house.knock()) for _ in range(40)]
        comes_in(house, 3)
        assert len(house.door._strangers) <= 8
        assert turned_away(crowd[0])


def test_a_process_without_descriptors_left_pauses_and_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = socket.socket.accept
    full = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    def scarce(self: socket.socket) -> Any:
        if full:
            raise OSError(full.pop(), "no")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    comes_in(house, 4)
    assert not full


# -- whole jobs ---------------------------------------------------------------------------------------------------


class Crowd:
    """Sends all kinds of greetings to every door of a job while it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._doors: list[tuple[str, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._knock)
        self._sockets: list[socket.socket] = []
        self.knocked = 0
        made = Door.__init__

        def noted(door: Door, *args: Any, **more: Any) -> None:
            made(door, *args, **more)
            self._doors.append(door.address)

        monkeypatch.setattr(Door, "__init__", noted)

    def _knock(self) -> None:
        while not self._stop.is_set():
            for address in list(self._doors):
                for data in GARBAGE:
                    with contextlib.suppress(OSError):
                        sock = socket.create_connection(address, timeout=5)
                        self._sockets.append(sock)
                        sock.sendall(data)
                        self.knocked += 1
            for sock in self._sockets[:-50]:
                sock.close()
            del self._sockets[:-50]

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        for sock in self._sockets:
            sock.close()


def test_a_job_does_not_notice_strangers_at_any_of_its_doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = write_words(tmp_path, lines=2_000)
    with Crowd(monkeypatch) as crowd:
        outcome = run_job(word_count(), str(tmp_path / "store"), inline(tmp_path, interval=0.05))
        assert crowd.knocked > len(GARBAGE)
    assert outcome.finished
    assert last_counts(tmp_path) == counts


def test_a_second_sender_of_a_channel_is_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with the token: the first one's records go on to count."""
    counts = write_words(tmp_path, lines=20_000)
    monkeypatch.setattr(line_files, "CHUNK", 2048)
    workers: list[Worker] = []
    made = Worker.__init__

    def noted(worker: Worker, *args: Any) -> None:
        made(worker, *args)
        workers.append(worker)

    monkeypatch.setattr(Worker, "__init__", noted)
    ends: list[bool] = []

    def again(progress: Progress) -> None:
        if ends or not progress.epochs or not all(worker._peers.receiving for worker in workers):
            return
        for worker in workers:
            for channel in list(worker._peers.receiving):
                for attempt in (worker.spec.attempt, worker.spec.attempt - 1):
                    with socket.create_connection(worker._door.address, timeout=60) as sock:
                        sock.sendall(greeting(worker.spec.token, ChannelHello(channel, attempt)))
                        ends.append(turned_away(sock))

    outcome = run_job(word_count(), str(tmp_path / "store"), inline(tmp_path, interval=0.02), again)
    assert ends
    assert all(ends)
    assert outcome.finished
    assert last_counts(tmp_path) == counts


def test_a_hello_for_a_number_that_is_taken_ends_the_attempt_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has started the worker again: with the token it is no stranger, and the first one is lost."""
    write_words(tmp_path, lines=20_000)
    monkeypatch.setattr(line_files, "CHUNK", 2048)
    services: list[Service] = []

    def again(progress: Progress) -> None:
        if progress.epochs and services:
            service = services.pop()
            with socket.create_connection(service.address, timeout=60) as sock:
                sock.sendall(greeting(service.token, msgspec.structs.replace(HELLO, worker=1)))

    options = inline(tmp_path, interval=0.02, restarts=0)
    with pytest.raises(EngineStopped, match=r"worker 1 .* was started again"):
        run_job(word_count(), str(tmp_path / "store"), options, again, services.append)


def test_a_worker_that_is_started_again_takes_the_place_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when it is gone at once, another one is started."""
    counts = write_words(tmp_path, lines=20_000)
    monkeypatch.setattr(line_files, "CHUNK", 2048)
    services: list[Service] = []
    news: list[object] = []

    def again(progress: Progress) -> None:
        if progress.epochs and services:
            service = services.pop()
            with socket.create_connection(service.address, timeout=60) as sock:
                sock.sendall(greeting(service.token, msgspec.structs.replace(HELLO, worker=1)))

    options = inline(tmp_path, interval=0.02)
    outcome = run_job(word_count(), str(tmp_path / "store"), options, again, services.append, on_news=news.append)
    assert outcome.finished
    assert [one for one in news if isinstance(one, Recovered) and "was started again" in one.recovery.cause]
    assert last_counts(tmp_path) == counts


CROWDED = """
import os, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from abscli.engine.channels import door
from abscli.engine.sources.files import line_files
from abscli.engine.job import run_job
from abscli.engine.losses import restarting
from tests.support.jobs.small import inline, last_counts, word_count

restarting.RENDEZVOUS_SECONDS = 600  # on a busy machine a worker is let in late
made, doors = door.Door.__init__, []
def noted(self, *args, **more):
    made(self, *args, **more)
    os.write(2, f"{self.address[1]}\\n".encode())  # in one piece: workers are threads
    doors.append(self)
    if len(doors) == 1:  # a worker that waited here would stand before the coordinator's door without a word
        sys.stdin.readline()  # the crowd stands before it
door.Door.__init__ = noted
folder = Path(sys.argv[1])
outcome = run_job(word_count(), str(folder / "store"), inline(folder, interval=0.05))
assert outcome.finished
print(sum(last_counts(folder).values()), flush=True)
"""


def test_a_thousand_silent_connections_at_each_door_do_not_end_a_job_with_256_descriptors(tmp_path: Path) -> None:
    counts = write_words(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_000:
        pytest.skip("this process may not open three thousand connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_000), hard))
    crowd: list[socket.socket] = []
    try:
        with subprocess.Popen(
            [sys.executable, "-c", CROWDED, str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as job:  # fmt: skip
            assert job.stdin
            assert job.stdout
            assert job.stderr
            for _ in range(3):  # the doors of the coordinator and of two workers
                port = int(job.stderr.readline())
                for _ in range(1_000):  # what the queue of the listener does not hold goes on trying
                    sock = socket.socket()
                    sock.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        sock.connect(("127.0.0.1", port))
                    crowd.append(sock)
                job.stdin.write("\n")
                job.stdin.flush()
            said = job.stdout.read()
            errors = job.stderr.read()
        assert job.returncode == 0, errors
        assert int(said) == sum(counts.values())
    finally:
        for sock in crowd:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
