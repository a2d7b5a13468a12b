"""A worker's signs of life, from a thread and on connections of their own: a function that takes long is no hang, a
process that stands still is.

Beats are empty frames whose number is the sender's clock, in milliseconds; who gets one sends it back. So the worker
hears of its coordinator, without which it has to leave, and of the peers that its tasks send to or hear from: two
workers may both reach the coordinator and not each other. That is for the coordinator to decide about; data channels
do not tell it, since a receiver that takes nothing for a while is as silent as one that is cut off.
"""

from __future__ import annotations

import errno
import queue
import selectors
import socket
import threading
from collections.abc import Callable, Mapping

from abscli.engine.channels.door import greeting, guard, reach
from abscli.engine.channels.lease import Lease, now
from abscli.engine.channels.line import Line, Lines
from abscli.engine.channels.messages import Alive, JobSpec, PeerAlive, Unheard
from abscli.engine.channels.wire import BEAT_BYTES, Connection, Frame, Wakeup

CONNECT_SECONDS = 30.0

MOST_PENDING = 1 << 12
"""Bytes of beats on one connection beyond which they are left out: it does not take any."""

Address = tuple[str, int]


class Pulse:
    """Beats from now on until `stop`, or until the lease has run out, or the coordinator has ended the connection: it
    does so when it counts on the worker no more. OSError if it cannot be reached.

    lines: of the attempt. expired: called then, from another thread.
    """

    def __init__(
        self, spec: JobSpec, hello: Alive, lease: Lease, lines: Lines, expired: Callable[[], None]
    ) -> None:
        assert spec.pulse is not None
        self._patience = spec.pulse
        self._token = spec.token
        self._lines = lines
        self._hello = hello
        self._lease = lease
        self._expired = expired
        self._stop = False
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._peers: dict[int, _Peer] = {}
        self._answered: list[Connection] = []
        sock = reach(spec.address, seconds=CONNECT_SECONDS)
        guard(sock, self._patience.lost)
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup(self._selector)
        self._coordinator = Connection(
            lines.dialled(sock), self._selector, lambda kind, stamp, payload: lease.renew(stamp / 1000), lease.revoke,
            greeting=greeting(spec.token, hello), largest=BEAT_BYTES,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name=f"abs-pulse-{hello.worker}", daemon=True)
        self._thread.start()

    def watch(self, peers: Mapping[int, Address]) -> None:
        """Whom to hear of from now on; safe from other threads."""
        self._call(lambda: self._watch(peers))

    def answer(self, line: Line) -> None:
        """Send a peer's beats back, which come on this connection; safe from other threads."""
        self._call(lambda: self._answer(line))

    def stop(self) -> None:
        """No more beats; returns when the thread has ended."""
        self._call(self._end)
        self._thread.join()
        self._wakeup.close()

    def _call(self, function: Callable[[], None]) -> None:
        self._calls.put(function)
        self._wakeup()

    # -- in the thread ------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._stop = True

    def _run(self) -> None:
        looked_at = next_at = now()
        while not self._stop:
            at = now()
            if self._lease.expired:
                self._expired()
                break
            if (asleep := at - looked_at) > 1.0 + self._patience.beat:
                # While this process itself stood still it could hear nobody; its lease ran on.
                for peer in self._peers.values():
                    peer.slept(asleep)
            looked_at = at
            if at >= next_at:
                self._beat(at)
                next_at = at + self._patience.beat
            for key, mask in self._selector.select(max(0.0, min(next_at - at, self._lease.remaining))):
                key.data(mask)
            while not self._calls.empty():
                self._calls.get()()
        self._watch({})
        for connection in [self._coordinator, *self._answered]:
            connection.close()
        self._selector.close()

    def _beat(self, at: float) -> None:
        send_beat(self._coordinator, at)
        for number, peer in self._peers.items():
            peer.beat(at)
            if (seconds := peer.silent_for(at)) is not None and seconds > self._patience.stall:
                self._coordinator.send_message(Unheard(self._hello, number, peer.address, seconds))

    def _watch(self, peers: Mapping[int, Address]) -> None:
        for number, peer in list(self._peers.items()):
            if peers.get(number) != peer.address:
                self._peers.pop(number).close()
        words = greeting(self._token, PeerAlive(self._hello.worker))
        for number, address in peers.items():
            if number not in self._peers:
                self._peers[number] = _Peer(address, self._lines, words, self._selector, self._patience.lost)

    def _answer(self, line: Line) -> None:
        guard(line.sock, self._patience.lost)
        connection = Connection(
            line, self._selector, lambda kind, stamp, _: echo(connection, stamp), lambda: None, largest=BEAT_BYTES
        )
        self._answered = [*(other for other in self._answered if not other.closed), connection]


def send_beat(connection: Connection, at: float) -> None:
    """One that says when it was sent, if the connection takes any."""
    echo(connection, int(at * 1000))


def echo(connection: Connection, stamp: int) -> None:
    """Send a beat back."""
    if connection.pending < MOST_PENDING:
        connection.send(Frame.CONTROL, stamp)


class _Peer:
    """A peer that is beaten to, and dialled again whenever the connection has ended."""

    def __init__(
        self, address: Address, lines: Lines, words: bytes, selector: selectors.BaseSelector, patience: float
    ) -> None:
        self.address = address
        self._lines = lines
        self._greeting = words
        self._selector = selector
        self._patience = patience
        self._dialling: socket.socket | None = None
        self._connection: Connection | None = None
        self._silent_since: float | None = now()

    def silent_for(self, at: float) -> float | None:
        """Seconds; None where nothing can be said."""
        return None if self._silent_since is None else at - self._silent_since

    def slept(self, seconds: float) -> None:
        """So long nobody could be heard."""
        if self._silent_since is not None:
            self._silent_since += seconds

    def beat(self, at: float) -> None:
        """Send one, or dial."""
        if self._connection is not None:
            send_beat(self._connection, at)
        elif self._dialling is None:
            self._dial()

    def close(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            self._connection.close()
        if (sock := self._dialled()) is not None:
            sock.close()

    def _dial(self) -> None:
        sock = self._dialling = socket.socket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET)
        sock.setblocking(False)
        sock.connect_ex(self.address)
        self._selector.register(sock, selectors.EVENT_WRITE, self._ready)

    def _dialled(self) -> socket.socket | None:
        """What was being dialled, and is no more."""
        sock, self._dialling = self._dialling, None
        if sock is not None:
            self._selector.unregister(sock)
        return sock

    def _ready(self, mask: int) -> None:
        sock = self._dialled()
        assert sock is not None
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            if error:
                raise OSError(error, "")
            guard(sock, self._patience)
        except OSError:
            sock.close()
            if error == errno.ECONNREFUSED:
                self._silent_since = None  # its host answers: what became of the process the coordinator hears itself
            return
        # It answers when its loop has come to the door; a function may keep it from that.
        self._silent_since = None
        self._connection = Connection(
            self._lines.dialled(sock), self._selector, self._heard, self._gone, greeting=self._greeting,
            largest=BEAT_BYTES,
        )  # fmt: skip

    def _heard(self, kind: Frame, stamp: int, payload: memoryview) -> None:
        self._silent_since = now()

    def _gone(self) -> None:
        self._connection = None
        self._silent_since = self._silent_since or now()
