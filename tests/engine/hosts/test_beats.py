"""Beats and their answers: what keeps a worker's lease, and what a coordinator hears."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from abscli.engine.channels import vigil as vigil_module
from abscli.engine.channels.door import Door, new_token
from abscli.engine.channels.lease import Lease
from abscli.engine.channels.line import PLAIN, Line
from abscli.engine.channels.messages import Alive, Greeting, JobSpec, Patience, PeerAlive, Unheard
from abscli.engine.channels.pulse import Pulse
from abscli.engine.channels.vigil import Vigil
from abscli.engine.channels.wire import HEADER, Frame
from tests.support.doors import closes
from tests.support.jobs.small import word_count
from tests.support.waiting import wait_for

HELLO = Alive(1, 0, "one")
LONG = 60.0



# -- the coordinator's side -----------------------------------------------------------------------------------


@pytest.fixture
def told() -> list[Unheard]:
    return []


@pytest.fixture
def vigil(told: list[Unheard]) -> Iterator[Vigil]:
    opened = Vigil(Patience.of(15.0), told.append)
    yield opened
    opened.close()


@pytest.fixture
def worker(vigil: Vigil) -> Iterator[socket.socket]:
    near, far = socket.socketpair()
    vigil.admit(HELLO, Line(far))
    near.settimeout(LONG)
    with near:
        yield near


def test_a_beat_comes_back_as_it_was(worker: socket.socket) -> None:
    for stamp in (17, 4711):
        worker.sendall(HEADER.pack(Frame.CONTROL, stamp, 0))
        assert worker.recv(HEADER.size, socket.MSG_WAITALL) == HEADER.pack(Frame.CONTROL, stamp, 0)


def test_one_that_is_dismissed_gets_no_answer_any_more(vigil: Vigil, worker: socket.socket) -> None:
    vigil.dismiss(HELLO.incarnation)
    assert closes(worker)


def test_what_a_worker_says_of_a_peer_is_told(worker: socket.socket, told: list[Unheard]) -> None:
    said = Unheard(HELLO, 2, ("10.77.0.12", 4711), 6.5)
    payload = msgspec.json.encode(said)
    worker.sendall(HEADER.pack(Frame.CONTROL, 0, len(payload)) + payload)
    wait_for(lambda: told)
    assert told == [said]


class Clock:
    """As far as a vigil asks for the time."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_silence_is_not_counted_while_the_driver_itself_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(vigil_module, "time", clock)
    opened = Vigil(Patience.of(15.0), lambda message: None)
    try:
        opened.hears("one")
        clock.now += 1.5
        assert opened.silent_for("one") == 1.5
        clock.now += 60.0
        assert opened.silent_for("one") == 1.5
        clock.now += 1.0
        assert opened.silent_for("one") == 2.5
    finally:
        opened.close()


# -- the worker's side ----------------------------------------------------------------------------------------


class Other:
    """A coordinator, or a peer: a door, and whether what comes through it is answered."""

    def __init__(self, token: bytes, *, answers: bool) -> None:
        self.admitted: list[Greeting] = []
        self.answers = answers
        self._selector = selectors.DefaultSelector()
        self._door = Door("127.0.0.1", token, self._selector, self._admit, backlog=8)
        self._door.open()
        self.address = self._door.address
        self._sockets: list[socket.socket] = []
        self.heard: list[bytes] = []
        self._stop = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _admit(self, hello: Greeting, line: Line) -> bool:
        sock = line.sock
        self.admitted.append(hello)
        self._sockets.append(sock)
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._read(sock))
        return True

    def _read(self, sock: socket.socket) -> None:
        data = sock.recv(4096)
        if not data:
            self._selector.unregister(sock)
            return
        self.heard.append(data)
        if self.answers:
            sock.sendall(data)

    def hang_up(self) -> None:
        for sock in self._sockets:
            sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._stop:
            for key, mask in self._selector.select(0.02):
                key.data(mask)

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._door.close()
        for sock in self._sockets:
            sock.close()
        self._selector.close()


def spec_of(coordinator: Other, token: bytes, lost: float) -> JobSpec:
    return JobSpec(
        topology=word_count(), store="", directory="", root="", attempt=1, attempt_id="", policy="aligned", workers=2,
        read_sources=True, token=token, address=coordinator.address, pulse=Patience.of(lost),
    )  # fmt: skip


@pytest.fixture
def meet() -> Iterator[Callable[..., Any]]:
    """Makes a pulse towards a coordinator that answers or not: both, and whether the lease ran out."""
    token, closing = new_token(), []

    def make(*, answers: bool, lost: float) -> tuple[Other, Pulse, threading.Event]:
        coordinator, expired = Other(token, answers=answers), threading.Event()
        spec = spec_of(coordinator, token, lost)
        pulse = Pulse(spec, HELLO, Lease(spec.pulse.lease if spec.pulse else None), PLAIN, expired.set)
        closing.extend([pulse.stop, coordinator.close])
        return coordinator, pulse, expired

    make.token = token  # type: ignore[attr-defined]
    yield make
    for close in closing:
        close()


def test_a_worker_whose_beats_are_not_answered_leaves(meet: Callable[..., Any]) -> None:
    _, _, expired = meet(answers=False, lost=1.0)
    assert expired.wait(LONG)


@pytest.mark.integration
def test_a_worker_whose_beats_are_answered_stays_until_they_are_not(meet: Callable[..., Any]) -> None:
    coordinator, _, expired = meet(answers=True, lost=2.0)
    wait_for(lambda: len(coordinator.heard) >= 40)  # ten per second: twice as long as its lease
    assert not expired.is_set()
    coordinator.answers = False
    assert expired.wait(LONG)


def test_a_worker_that_is_dismissed_leaves_at_once(meet: Callable[..., Any]) -> None:
    coordinator, _, expired = meet(answers=True, lost=3600.0)
    wait_for(lambda: coordinator.heard)
    coordinator.hang_up()
    assert expired.wait(LONG)


@pytest.mark.integration
def test_a_peer_that_answers_once_and_no_more_is_complained_of(meet: Callable[..., Any]) -> None:
    coordinator, pulse, _ = meet(answers=True, lost=30.0)
    peer = Other(meet.token, answers=True)  # type: ignore[attr-defined]
    try:
        pulse.watch({2: peer.address})
        wait_for(lambda: len(peer.heard) >= 2)
        assert PeerAlive(1) in peer.admitted
        peer.answers = False
        wait_for(lambda: any(b"Unheard" in data for data in coordinator.heard))
    finally:
        peer.close()


@pytest.mark.integration
def test_of_a_peer_that_has_not_answered_yet_nothing_is_said(meet: Callable[..., Any]) -> None:
    coordinator, pulse, _ = meet(answers=True, lost=3.0)
    peer = Other(meet.token, answers=False)  # its loop is in a function that takes long
    try:
        pulse.watch({2: peer.address})
        wait_for(lambda: len(peer.heard) >= 4)
        beats = len(coordinator.heard)
        wait_for(lambda: len(coordinator.heard) >= beats + 4)
        assert not any(b"Unheard" in data for data in coordinator.heard)
    finally:
        peer.close()
