"""Serve the metrics of a running job over HTTP from one thread, without taking resources from the job.

Clients are strangers. Every connection has a deadline and a size limit, and the number of connections is fixed. Their
descriptors are reserved when the server starts, so that no client can make the job run out of descriptors.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CollectorRegistry

from abscli.engine.channels.door import is_loopback
from abscli.engine.telemetry.metrics_http import HEAD_END, refuse, respond

BACKLOG = 128
"""Connections that the kernel keeps for the server to accept. They take no descriptors of the process."""

PAUSE_SECONDS = 0.1
"""Time without accepting after the process had no free descriptor."""

DISCARDED_BYTES = 1 << 18
"""Bytes after the request that are read and discarded before the connection is closed."""


_RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket resets the connection."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limit what clients may take. Times are in seconds.

    request_seconds: from the connection to the end of the request.
    answer_seconds: from there until the client has read the response and closed the connection.
    patience_seconds: time that every connection has even if others wait to be accepted.
    """

    connections: int = 16
    request_bytes: int = 8192
    request_seconds: float = 5.0
    answer_seconds: float = 5.0
    patience_seconds: float = 0.25


class MetricsServer:
    """Listen on an address and answer scrapes of a registry until closed.

    Raises OSError or UnicodeError if the address is not valid or is in use.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int, limits: Limits | None = None) -> None:
        self._registry = registry
        self._host = host
        self._limits = limits or Limits()
        self._listener = _listen(host, port)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._names = [host] if is_loopback(self._listener.getsockname()[0]) else None
        self._descriptors = ReservedDescriptors(_connection_limit(self._limits.connections))
        self._connections: list[_Connection] = []  # in the order in which they were accepted
        self._selector = selectors.DefaultSelector()
        self._paused_until: float | None = None
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ, lambda: None)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the URL of the metrics, with the host as the user wrote it."""
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{shown}:{self.port}/metrics"

    def close(self) -> None:
        """Stop the thread and close every connection."""
        self._stopping = True
        self._waker.send(b"\0")
        self._thread.join()
        for connection in list(self._connections):
            self._end(connection)
        self._selector.close()
        for sock in (self._listener, self._wake, self._waker):
            sock.close()
        self._descriptors.close()

    def _serve(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._seconds_until_next_deadline()):
                key.data()
            self._check_deadlines()

    def _seconds_until_next_deadline(self) -> float | None:
        times = [connection.deadline for connection in self._connections]
        if self._paused_until is not None:
            times.append(self._paused_until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for connection in [connection for connection in self._connections if now >= connection.deadline]:
            connection.leave(HTTPStatus.REQUEST_TIMEOUT, "The request was not complete in time.")
            self._end(connection)
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        """Accept one connection, in place of the oldest one if there are too many.

        The listener would wake the thread without end while a connection waits that cannot be accepted. It is
        therefore left out of the selector until there is room.
        """
        now = time.monotonic()
        if not self._descriptors.available():
            free_at = self._connections[0].accepted_at + self._limits.patience_seconds if self._connections else None
            if free_at is None or now < free_at:
                self._pause(free_at or now + PAUSE_SECONDS)
                return
            self._drop_oldest()
        try:
            sock = self._descriptors.accept(self._listener)
        except (BlockingIOError, ConnectionError):  # the client has closed the connection while it waited
            return
        except OSError:  # a thread of the job has taken the last descriptor, or the kernel has no memory
            self._pause(now + PAUSE_SECONDS)
            return
        connection = _Connection(sock, self._limits, self._respond)
        self._connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._step(connection))
        self._step(connection)  # the request mostly comes with the connection

    def _drop_oldest(self) -> None:
        oldest = self._connections[0]
        oldest.leave(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections.")
        self._end(oldest)

    def _pause(self, until: float) -> None:
        self._selector.unregister(self._listener)
        self._paused_until = until

    def _step(self, connection: _Connection) -> None:
        if connection not in self._connections:  # closed in the same round of the selector
            return
        try:
            connection.step()
        except BlockingIOError:
            pass
        except OSError:
            connection.phase = Phase.CLOSED
        if connection.phase is Phase.CLOSED:
            self._end(connection)
            return
        events = selectors.EVENT_WRITE if connection.phase is Phase.ANSWER else selectors.EVENT_READ
        self._selector.modify(connection.sock, events, lambda: self._step(connection))

    def _respond(self, head: bytes) -> bytes:
        try:
            return respond(head, self._registry, self._names)
        except Exception:  # a collector that fails must not end the thread
            return refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "The metrics cannot be read.")

    def _end(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection.sock)
        self._descriptors.close_socket(connection.sock)


class Phase(enum.Enum):
    """Name what a connection does next."""

    REQUEST = enum.auto()
    ANSWER = enum.auto()
    DISCARD = enum.auto()
    CLOSED = enum.auto()


class _Connection:
    """Read one request, send its response, and wait for the client to close the connection.

    respond: makes the response from the request's head.
    """

    def __init__(self, sock: socket.socket, limits: Limits, respond: Callable[[bytes], bytes]) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.phase = Phase.REQUEST
        self.accepted_at = time.monotonic()
        self.deadline = self.accepted_at + limits.request_seconds
        self._limits = limits
        self._respond = respond
        self._head = bytearray()
        self._unsent = memoryview(b"")
        self._discarded = 0

    def step(self) -> None:
        """Do what can be done without waiting. Raises OSError if the client has gone, or nothing can be done yet."""
        if self.phase is Phase.REQUEST:
            self._read()
        elif self.phase is Phase.DISCARD:
            self._discard()
        if self.phase is Phase.ANSWER:
            self._send()

    def leave(self, status: HTTPStatus, reason: str) -> None:
        """Tell the client why the connection is closed now, if it has had no response so far."""
        with contextlib.suppress(OSError):
            if self.phase is Phase.REQUEST:
                self.sock.send(refuse(status, reason))
            elif self.phase is Phase.ANSWER:  # the kernel would keep the rest of the response for a client that stalls
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _read(self) -> None:
        received = self.sock.recv(self._limits.request_bytes + 1 - len(self._head))
        if not received:
            self.phase = Phase.CLOSED
            return
        # Only what is new is searched, so that a request in single bytes takes linear time.
        searched = max(0, len(self._head) - len(HEAD_END) + 1)
        self._head += received
        end = self._head.find(HEAD_END, searched)
        if not self._head[:1].isalpha():
            self._answer(refuse(HTTPStatus.BAD_REQUEST, "The first line is not an HTTP request."))
        elif 0 <= end <= self._limits.request_bytes - len(HEAD_END):
            self._answer(self._respond(bytes(self._head[:end])))
        elif len(self._head) > self._limits.request_bytes:
            self._answer(refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long."))

    def _answer(self, response: bytes) -> None:
        self.phase = Phase.ANSWER
        self.deadline = time.monotonic() + self._limits.answer_seconds
        self._unsent = memoryview(response)

    def _send(self) -> None:
        self._unsent = self._unsent[self.sock.send(self._unsent) :]
        if not self._unsent:
            self.sock.shutdown(socket.SHUT_WR)
            self.phase = Phase.DISCARD

    def _discard(self) -> None:
        # A socket that is closed with unread data resets the connection, and the client may lose the response.
        received = len(self.sock.recv(1 << 16))
        self._discarded += received
        if not received or self._discarded > DISCARDED_BYTES:
            self.phase = Phase.CLOSED


class ReservedDescriptors:
    """Keep a fixed number of descriptors for sockets, so that accepting a connection takes none from the process.

    A free descriptor refers to /dev/null. Another thread may take a descriptor in the moment between its release and
    `accept`. The number is then smaller until `available` can reserve again.
    """

    def __init__(self, count: int) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._count = count
        self._used = 0
        self._free: list[int] = []
        self._reserve()

    def available(self) -> bool:
        """Return whether a socket can be accepted."""
        self._reserve()
        return bool(self._free)

    def accept(self, listener: socket.socket) -> socket.socket:
        """Accept a connection on a free descriptor. Raises OSError as `socket.accept` does."""
        if not self._free:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        os.close(self._free.pop())
        try:
            sock, _ = listener.accept()
        except OSError:
            self._reserve()
            raise
        self._used += 1
        return sock

    def close_socket(self, sock: socket.socket) -> None:
        """Close a socket that `accept` has returned and keep its descriptor."""
        self._used -= 1
        descriptor = sock.detach()
        try:
            self._free.append(os.dup2(self._null, descriptor, inheritable=False))  # closes the socket in the same step
        except OSError:
            os.close(descriptor)

    def close(self) -> None:
        """Release every descriptor that is free."""
        for descriptor in [*self._free, self._null]:
            os.close(descriptor)

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):
            while self._used + len(self._free) < self._count:
                self._free.append(os.dup(self._null))


def _connection_limit(most: int) -> int:
    """Return how many connections there may be: `most`, and at most a sixteenth of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(2, min(most, soft // 16))


def _listen(host: str, port: int) -> socket.socket:
    """Listen on the first address of a host. `::` is listened on for IPv4, too, where the system can do that."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
