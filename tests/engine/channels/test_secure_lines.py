"""Connections that go through TLS: frames as on plain ones."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.engine.channels.line import ENCRYPT_BYTES, Line, Lines, SecureLine
from abscli.engine.channels.wire import Connection, Frame
from tests.support.doors import House
from tests.support.secure import LINES
from tests.support.waiting import wait_for
from tests.tiers import examples


class Pair:
    """Two connections through TLS, in one selector. heard: by the one that dialled, and by the other one."""

    def __init__(self, lines: Lines = LINES, greeting: bytes = b"") -> None:
        self.selector = selectors.DefaultSelector()
        one, other = socket.socketpair()
        self.heard: tuple[list[tuple[Frame, int, bytes]], ...] = ([], [])
        self.ended: list[int] = []
        self.dialler = self._connect(0, lines.dialled(one), greeting)
        self.accepter = self._connect(1, lines.accepted(other), b"")

    def _connect(self, number: int, line: Line, greeting: bytes) -> Connection:
        frames = self.heard[number]
        return Connection(
            line, self.selector, lambda k, n, p: frames.append((k, n, bytes(p))), lambda: self.ended.append(number),
            greeting=greeting,
        )  # fmt: skip

    def turn(self) -> bool:
        """One round; whether anybody had anything to do."""
        ready = self.selector.select(0)
        for key, mask in ready:
            key.data(mask)
        return bool(ready)

    def settle(self) -> None:
        """Rounds until nobody has anything to do: a connection that asks for more and more rounds fails."""
        for _ in range(100_000):
            if not self.turn():
                return
        pytest.fail("there is always something to do")

    def close(self) -> None:
        self.dialler.close()
        self.accepter.close()
        self.selector.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    opened = Pair()
    yield opened
    opened.close()


FRAMES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**63), st.sampled_from([0, 1, 13, 300, 17_000, 70_000])))


@settings(max_examples=examples(40))
@given(FRAMES, FRAMES, st.data())
def test_frames_arrive_both_ways_whatever_is_read_when(
    there: list[tuple[int, int, int]], back: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    pair = Pair()
    ways = [(pair.dialler, there), (pair.accepter, back)]
    try:
        for connection, frames in ways:
            for kind, number, size in frames:
                connection.send(Frame(kind), number, bytes(size // 2), b"x" * (size - size // 2))
                if data.draw(st.booleans()):
                    pair.turn()
                connection.reading(data.draw(st.booleans()))
        pair.dialler.reading(True)
        pair.accepter.reading(True)
        pair.settle()
        for frames, heard in zip((there, back), reversed(pair.heard), strict=True):
            assert [(kind, number, len(payload)) for kind, number, payload in heard] == [tuple(f) for f in frames]
        assert pair.dialler.pending == pair.accepter.pending == 0
        assert not pair.ended
    finally:
        pair.close()


def test_who_waits_for_the_other_end_does_not_keep_the_loop_awake() -> None:
    """The socket takes more all the time, but what is queued waits for a handshake that nobody answers."""
    selector = selectors.DefaultSelector()
    one, other = socket.socketpair()
    connection = Connection(LINES.dialled(one), selector, lambda *_: None, lambda: None, greeting=b"hello")
    try:
        rounds = 0
        while ready := selector.select(0):
            rounds += 1
            assert rounds < 10
            for key, mask in ready:
                key.data(mask)
        assert not connection.greeted
        assert connection.pending == len(b"hello")
    finally:
        connection.close()
        other.close()
        selector.close()


def test_what_has_left_the_socket_comes_when_it_is_asked_for_again(pair: Pair) -> None:
    """A hundred frames come in one piece. After the first nothing is wanted for now, and the socket has no more."""
    pair.settle()
    stops: list[int] = []

    def stop(kind: Frame, number: int, payload: memoryview) -> None:
        stops.append(number)
        pair.accepter.reading(False)

    pair.accepter._on_frame = stop
    for number in range(100):
        pair.dialler.queue(Frame.BARRIER, number)
    pair.dialler.send(Frame.BARRIER, 100)
    pair.settle()
    assert stops == [0]
    for number in range(1, 101):
        pair.accepter.reading(True)
        pair.settle()
        assert stops == list(range(number + 1))


def test_a_greeting_goes_before_everything_and_what_follows_it_at_once_is_not_lost() -> None:
    """It comes with the first frames, so that whoever reads the greeting has taken these from the socket."""
    with House(LINES) as house, house.knock() as sock:
        selector = selectors.DefaultSelector()
        connection = Connection(
            LINES.dialled(sock), selector, lambda *_: None, lambda: None, greeting=house.greeting_of(4)
        )
        for number in range(50):
            connection.send(Frame.BARRIER, number)
        while connection.pending:
            for key, mask in selector.select(1):
                key.data(mask)
        wait_for(lambda: house.is_in(4))
        heard: list[int] = []
        mine = selectors.DefaultSelector()
        accepted = Connection(house.lines[0], mine, lambda kind, number, _: heard.append(number), lambda: None)
        while len(heard) < 50:
            for key, mask in mine.select(60):
                key.data(mask)
        assert heard == list(range(50))
        for one in (accepted, connection):
            one.close()
        for one in (mine, selector):
            one.close()


def test_both_may_send_more_than_sockets_take_before_either_reads(pair: Pair) -> None:
    pair.settle()
    payload = bytes(range(256)) * (1 << 15)
    for _ in range(3):
        pair.dialler.send(Frame.RECORDS, 1, payload)
        pair.accepter.send(Frame.RECORDS, 2, payload)
    assert pair.dialler.pending > ENCRYPT_BYTES
    pair.settle()
    assert [frame[2] == payload for heard in pair.heard for frame in heard] == [True] * 6


def test_a_slow_reader_makes_what_waits_visible_to_its_sender(pair: Pair) -> None:
    """Back pressure is by `pending`: what has been encrypted and not sent is bounded."""
    pair.settle()
    pair.accepter.reading(False)
    for _ in range(64):
        pair.dialler.send(Frame.RECORDS, 1, bytes(1 << 16))
        pair.turn()
    line = pair.dialler._line
    assert isinstance(line, SecureLine)
    assert pair.dialler.pending > 2 << 20
    assert len(line._outgoing) + line._encrypted.pending < 2 * ENCRYPT_BYTES


def test_who_is_hung_up_on_hears_the_end_and_nothing_else(pair: Pair) -> None:
    """From another thread, while there is something to read: what is encrypted is never taken for frames."""
    pair.settle()
    for _ in range(5):
        pair.accepter.send(Frame.RECORDS, 1, bytes(1 << 18))
    thread = threading.Thread(target=pair.dialler.hang_up)
    thread.start()
    thread.join()
    pair.settle()
    assert sorted(set(pair.ended)) == [0, 1]
    assert all(payload == bytes(1 << 18) for _, _, payload in pair.heard[0])


def test_what_is_pending_is_sent_before_a_connection_is_finished(pair: Pair) -> None:
    pair.settle()
    pair.dialler.send(Frame.RECORDS, 1, bytes(8 << 20))

    def finish() -> None:
        pair.dialler.finish(60.0)

    selector = pair.selector
    selector.unregister(pair.dialler._sock)
    pair.dialler._interest = 0
    thread = threading.Thread(target=finish)
    thread.start()
    while 1 not in pair.ended:
        for key, mask in selector.select(1):
            key.data(mask)
    thread.join()
    assert [len(payload) for _, _, payload in pair.heard[1]] == [8 << 20]


def test_an_end_without_a_goodbye_is_an_end(pair: Pair) -> None:
    pair.settle()
    pair.dialler.close()
    pair.settle()
    assert pair.ended == [1]


def test_a_line_that_is_changed_on_its_way_ends(pair: Pair) -> None:
    pair.settle()
    pair.dialler._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    pair.settle()
    assert 1 in pair.ended
    assert pair.heard[1] == []
