"""A TCP proxy on loopback between a client and a server that stalls, delays, resets and loses replies.

It knows no protocol. A rule names bytes of a request, such as `b"COMMIT"`, and what becomes of the reply. Objects over
HTTP have a proxy of their own (`tests.support.objects.proxy`), which knows requests and lists.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK = 1 << 16
POLL = 0.02
"""Seconds between two looks at whether the proxy has ended."""
Address = tuple[str, int] | str
"""Host and port, or the path of a unix socket."""


class Fate(enum.Enum):
    """What becomes of a request that a rule names, and of its reply."""

    SILENCE = "the server gets the request; the client gets no byte any more, and the connection stays open"
    HOLD = "neither the request nor anything after it goes through, and the connection stays open"
    RESET = "the server gets the request; the client gets a reset when the server has answered"
    REFUSE = "the client gets a reset at once, and the server does not get the request"
    LATE = "the reply comes `seconds` later"


@dataclass(slots=True)
class Rule:
    """Requests that contain some bytes, in one direction of one connection.

    times: requests that it still applies to.
    seconds: see `Fate.LATE`.
    """

    request: bytes
    fate: Fate
    times: int = 1
    seconds: float = 0.0


class FaultyProxy:
    """A proxy that runs; all attributes may be set while it does.

    server: the address that it forwards to.
    delay: seconds that each piece of data takes longer, in both directions.
    struck: requests that a rule applied to, in order.
    connections: how many clients have connected.
    """

    def __init__(self, server: Address) -> None:
        self.server = server
        self.delay = 0.0
        self.struck: list[bytes] = []
        self.connections = 0
        self._rules: list[Rule] = []
        self._flows = threading.Event()
        self._flows.set()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """Return its HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def add(self, rule: Rule) -> None:
        """Apply a rule from now on."""
        with self._lock:
            self._rules.append(rule)

    def lose(self, request: bytes, fate: Fate = Fate.SILENCE, *, times: int = 1) -> None:
        """Lose the replies to the next requests that contain these bytes."""
        self.add(Rule(request, fate, times))

    def stall(self) -> None:
        """Forward nothing, also of new connections; all of them stay open."""
        self._flows.clear()

    def resume(self) -> None:
        """Forward again what was held by `stall`."""
        self._flows.set()

    def reset(self) -> None:
        """End every connection with a reset."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.reset()

    def fate_of(self, data: bytes) -> Rule | None:
        """Return the rule that applies to a request, and count it."""
        with self._lock:
            for rule in self._rules:
                if rule.times > 0 and rule.request in data:
                    rule.times -= 1
                    self.struck.append(rule.request)
                    return rule
        return None

    def may_flow(self) -> bool:
        """Wait while the proxy stalls; False if it has ended."""
        while not self._flows.wait(POLL):
            if self._ended.is_set():
                return False
        return not self._ended.is_set()

    def has_ended(self) -> bool:
        """Tell whether the proxy is closed."""
        return self._ended.is_set()

    def accept(self) -> None:
        """Serve clients until the proxy is closed."""
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End it with all of its connections."""
        self._ended.set()
        self._flows.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        for thread in self._threads:
            thread.join(10)

    def _serve(self, client: socket.socket) -> None:
        if not self.may_flow():
            client.close()
            return
        try:
            server = _connect(self.server)
        except OSError:
            _reset(client)
            return
        connection = _Connection(self, client, server)
        with self._lock:
            self._open.add(connection)
        try:
            connection.run()
        finally:
            with self._lock:
                self._open.discard(connection)


class _Connection:
    """A client's connection and the one to the server, with a thread for each direction."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._rule: Rule | None = None
        self._late_until = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        """Forward until one end closes; the other is closed then."""
        for sock in (self._client, self._server):
            sock.settimeout(POLL)
        replies = threading.Thread(target=self._forward_replies, daemon=True)
        replies.start()
        self._forward_requests()
        replies.join()
        self._client.close()
        self._server.close()

    def reset(self) -> None:
        """End both ends; the client gets a reset."""
        self._over.set()
        _reset(self._client)
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)

    def _forward_requests(self) -> None:
        tail = b""
        while (data := self._receive(self._client)) is not None:
            if self._rule is None or self._rule.fate is Fate.LATE:
                found = self._proxy.fate_of(tail + data)
                tail = b"" if found is not None else (tail + data)[-64:]
                if found is not None:
                    self._rule, self._late_until = found, time.monotonic() + found.seconds
            fate = self._rule.fate if self._rule is not None else None
            if fate is Fate.REFUSE:
                self.reset()
                return
            if fate is not Fate.HOLD and not self._send(self._server, data):
                break
        self._over.set()

    def _forward_replies(self) -> None:
        while (data := self._receive(self._server)) is not None:
            fate = self._rule.fate if self._rule is not None else None
            if fate is Fate.RESET:
                self.reset()
                return
            if fate is Fate.SILENCE:
                continue
            while time.monotonic() < self._late_until and not self._over.wait(POLL):
                pass
            if not self._send(self._client, data):
                break
        if self._rule is not None and self._rule.fate in (Fate.SILENCE, Fate.HOLD):
            self._over.wait()  # the client is to learn nothing of the server's end
        self._over.set()

    def _receive(self, sock: socket.socket) -> bytes | None:
        """Return the next piece of data; None at the end."""
        while not self._over.is_set() and not self._proxy.has_ended():
            try:
                data = sock.recv(CHUNK)
            except TimeoutError:
                continue
            except OSError:
                return None
            return data or None
        return None

    def _send(self, sock: socket.socket, data: bytes) -> bool:
        """Forward a piece of data, now or when the proxy does not stall any more; False if that cannot be done."""
        if self._proxy.delay:
            self._over.wait(self._proxy.delay)
        if not self._proxy.may_flow():
            return False
        view = memoryview(data)
        while view and not self._over.is_set():
            try:
                view = view[sock.send(view) :]
            except TimeoutError:
                continue
            except OSError:
                return False
        return not view


def _connect(server: Address) -> socket.socket:
    if not isinstance(server, str):
        return socket.create_connection(server, 10)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(10)
    try:
        sock.connect(server)
    except OSError:
        sock.close()
        raise
    return sock


def _reset(sock: socket.socket) -> None:
    """Close with a reset in place of an orderly end."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextlib.contextmanager
def faulty_proxy(server: Address) -> Iterator[FaultyProxy]:
    """While a proxy to a server runs."""
    proxy = FaultyProxy(server)
    thread = threading.Thread(target=proxy.accept, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)
