"""The door of a coordinator or a worker: who connects shows the attempt's token before anything else of it is read.

Where the attempt has a certificate, who connects shows that first. A greeting is the token, a length (4 bytes,
little-endian), and so many bytes: the hello, one JSON message. Until it is whole the connection is a stranger's.
Whatever a stranger sends ends that connection and nothing else; strangers have a deadline, and there are never so many
that descriptors run out.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import resource
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable

import msgspec

from abscli.engine.channels.line import PLAIN, Line, Lines
from abscli.engine.channels.messages import Greeting, decode_greeting
from abscli.protocol.events import ProtocolError

TOKEN_BYTES = 32
HELLO_BYTES = 1 << 14
HELLO_SECONDS = 10.0
"""Time for a whole greeting, however it drips in."""

HANDSHAKE_SECONDS = 60.0
"""The same where a handshake goes before it, in which the other end's turn may come while it is in a function that
takes long."""

PATIENCE_SECONDS = 0.5
"""What every stranger has of that when others wait for its place: who knows the token has sent all by then."""

HANDSHAKE_PATIENCE_SECONDS = 2.0
"""The same where that takes a handshake, on a bad line."""

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between probes, and probes without an answer, after which a connection has ended."""

TCP_RTO_MAX_MS, RETRANSMIT_MS = 44, 1000
"""An option of Linux 6.15 and later, and the longest time that TCP then waits until it retransmits, in milliseconds. By
default the time doubles: after an interruption of 7 s, TCP waits for 5 s more although the network works again."""

MOST_STRANGERS = 128
ACCEPTED_AT_ONCE = 16

_LENGTH = struct.Struct("<I")
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def new_token() -> bytes:
    """The secret of one attempt."""
    return secrets.token_bytes(TOKEN_BYTES)


def reach(address: tuple[str, int], *, seconds: float) -> socket.socket:
    """A connection on which nothing has been said; OSError if there is none within so many seconds."""
    sock = socket.create_connection(address, timeout=seconds)
    guard(sock)
    return sock


def guard(sock: socket.socket, seconds: float | None = None) -> None:
    """Have the kernel end a connection whose other end is gone without a goodbye.

    seconds: also when it has not acknowledged something for so long. Not for data channels: Linux takes a receiver that
    takes nothing for so long for one that is gone, and it may just be slow.
    """
    if sock.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # the connection has ended already, which its reader notices; or an older kernel
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if seconds is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
            # Only together with it: Linux gives up after 15 retransmissions, which would be 15 s.
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, RETRANSMIT_MS)


def is_loopback(host: str) -> bool:
    """Whether this is an address that means another machine on every machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(host: str) -> bool:
    """Return whether this is a numeric IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def greeting(token: bytes, hello: msgspec.Struct) -> bytes:
    """What a new connection begins with."""
    body = msgspec.json.encode(hello)
    return token + _LENGTH.pack(len(body)) + body


class Door:
    """Listens on `host`, and from `open` on lets those in who know the token.

    admit: what to do with a hello and its line; False turns it away, True has taken the line over. `keep_time` is to be
    called in every round of the loop that drives the selector.
    """

    def __init__(
        self,
        host: str,
        token: bytes,
        selector: selectors.BaseSelector,
        admit: Callable[[Greeting, Line], bool],
        *,
        backlog: int,
        lines: Lines = PLAIN,
    ) -> None:
        self._lines = lines
        self._token = token
        self._selector = selector
        self._admit = admit
        self._strangers: list[_Stranger] = []  # in the order in which they came
        self._most = _most_strangers()
        self._shut_until: float | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=backlog)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def open(self) -> None:
        """From now on; who came before waits in the listener's queue."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def busy(self) -> bool:
        """Whether somebody stands in it, so that time is to be kept."""
        return bool(self._strangers) or self._shut_until is not None

    @property
    def _hello_seconds(self) -> float:
        return HANDSHAKE_SECONDS if self._lines.secure else HELLO_SECONDS

    @property
    def _patience(self) -> float:
        return HANDSHAKE_PATIENCE_SECONDS if self._lines.secure else PATIENCE_SECONDS

    def keep_time(self) -> None:
        """Turn away who has taken too long, and open again after a pause."""
        now = time.monotonic()
        for stranger in [s for s in self._strangers if now - s.since >= self._hello_seconds]:
            stranger.leave()
        if self._shut_until is not None and now >= self._shut_until:
            self._shut_until = None
            self.open()

    def close(self) -> None:
        """Turn everybody away and stop listening."""
        for stranger in list(self._strangers):
            stranger.leave()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, mask: int) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if len(self._strangers) >= self._most and not self._drop_oldest():
                self._pause()
                return
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # others are of a connection that has ended while it waited
                if error.errno in _NO_DESCRIPTOR and not self._drop_oldest():
                    self._pause()
                return
            guard(sock)
            stranger = _Stranger(self._lines.accepted(sock), self._token, self._heard, self._selector)
            self._strangers.append(stranger)
            stranger.read()  # a greeting mostly comes with the connection

    def _drop_oldest(self) -> bool:
        """Make room; False if nobody has been here for long enough."""
        if not self._strangers or time.monotonic() - self._strangers[0].since < self._patience:
            return False
        self._strangers[0].leave()
        return True

    def _pause(self) -> None:
        """A listener that cannot be served would wake the loop without end."""
        self._selector.unregister(self._listener)
        self._shut_until = time.monotonic() + PATIENCE_SECONDS / 5

    def _heard(self, stranger: _Stranger, hello: Greeting | None) -> None:
        """The stranger's greeting is whole (None: it was none), and it is no stranger any more."""
        self._strangers.remove(stranger)
        if hello is None or not self._admit(hello, stranger.line):
            stranger.line.sock.close()


class _Stranger:
    """A connection until its greeting is whole. heard: called once, with the hello, or None when it has no right to be
    here, or is gone; the socket is then in no selector."""

    def __init__(
        self,
        line: Line,
        token: bytes,
        heard: Callable[[_Stranger, Greeting | None], None],
        selector: selectors.BaseSelector,
    ) -> None:
        line.sock.setblocking(False)
        self.line = line
        self.since = time.monotonic()
        self._token = token
        self._heard = heard
        self._selector = selector
        self._take = self._take_token
        self._buffer = memoryview(bytearray(TOKEN_BYTES))
        self._filled = 0
        self._here = True
        selector.register(line.sock, selectors.EVENT_READ, self.read)

    def read(self, mask: int = selectors.EVENT_READ) -> None:
        """Take what has come, never more than belongs to the greeting."""
        while self._here:
            try:
                count = self.line.receive(self._buffer[self._filled :])
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self.leave()
                return
            self._filled += count
            if self._filled == len(self._buffer):
                self._filled = 0
                self._take()

    def leave(self) -> None:
        """Turn it away."""
        self._end(None)

    def _take_token(self) -> None:
        if not hmac.compare_digest(self._buffer, self._token):
            self.leave()
            return
        self._buffer, self._take = memoryview(bytearray(_LENGTH.size)), self._take_length

    def _take_length(self) -> None:
        (length,) = _LENGTH.unpack(self._buffer)
        if not 0 < length <= HELLO_BYTES:
            self.leave()
            return
        self._buffer, self._take = memoryview(bytearray(length)), self._take_hello

    def _take_hello(self) -> None:
        try:
            hello = decode_greeting(self._buffer)
        except ProtocolError:
            hello = None
        self._end(hello)

    def _end(self, hello: Greeting | None) -> None:
        if self._here:
            self._here = False
            self._selector.unregister(self.line.sock)
            self._heard(self, hello)


def _most_strangers() -> int:
    """A part of the descriptors that this process may have: the job needs the others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_STRANGERS if soft == resource.RLIM_INFINITY else max(8, min(MOST_STRANGERS, soft // 8))
