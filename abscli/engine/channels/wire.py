"""Frames on TCP connections, without blocking: between workers, and between a worker and the coordinator.

A frame is kind (1 byte), number (8 bytes, little-endian), length (4 bytes), payload. Control frames carry one JSON
message. A data channel sends its Arrow schema before the first batch and whenever that changes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import msgspec

HEADER = struct.Struct("<BQI")
MAX_FRAME = 1 << 31
READ_AHEAD = 16


class Frame(IntEnum):
    """Kinds of frames. number: of the first record (RECORDS), of the epoch (BARRIER), otherwise 0. TRACE: lines for
    the coordinator's trace file.

    Where lost tasks take their steps again, frames of records and of barriers end with what their sender's worker
    knows of schedules, and how long that is: 4 bytes, little-endian.
    """

    CONTROL = 0
    SCHEMA = 1
    RECORDS = 2
    BARRIER = 3
    TRACE = 4


class Connection:
    """One non-blocking socket in a selector, whose other end has been greeted. on_frame(kind, number, payload) takes
    what comes, on_close its end.

    `pending` is how many bytes are still to be sent; `reading(False)` leaves what comes to TCP's flow control.
    """

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        on_frame: Callable[[Frame, int, memoryview], None],
        on_close: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = 0
        self.closed = False
        self._sock = sock
        self._selector = selector
        self._on_frame = on_frame
        self._on_close = on_close
        self._out: deque[memoryview] = deque()
        self._header = bytearray(HEADER.size)
        self._buffer = memoryview(self._header)
        self._got = 0
        self._frame: tuple[Frame, int] | None = None
        self._interest = selectors.EVENT_READ
        selector.register(sock, self._interest, self._ready)

    def send(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """Queue a frame, and send what the socket takes now."""
        self.queue(kind, number, *payload)
        if not self.closed:
            self._write()

    def queue(self, kind: Frame, number: int, *payload: bytes | memoryview) -> None:
        """A frame that goes together with the one behind it."""
        if self.closed:
            return
        views = [memoryview(part).cast("B") for part in payload if len(part)]
        length = sum(map(len, views))
        self._out.append(memoryview(HEADER.pack(kind, number, length)))
        self._out += views
        self.pending += HEADER.size + length

    def send_message(self, message: msgspec.Struct) -> None:
        """Queue a control frame."""
        self.send(Frame.CONTROL, 0, msgspec.json.encode(message))

    def reading(self, on: bool) -> None:
        """Whether to take what comes."""
        self._want(selectors.EVENT_READ, on)

    def _want(self, event: int, on: bool) -> None:
        interest = self._interest | event if on else self._interest & ~event
        if interest == self._interest or self.closed:
            return
        if not self._interest:
            self._selector.register(self._sock, interest, self._ready)
        elif not interest:
            self._selector.unregister(self._sock)
        else:
            self._selector.modify(self._sock, interest, self._ready)
        self._interest = interest

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if mask & selectors.EVENT_READ and not self.closed:
            self._read()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._sock.sendmsg([*self._out][:64] if len(self._out) > 1 else [self._out[0]])
                self.pending -= sent
                while sent:
                    head = self._out[0]
                    if sent < len(head):
                        self._out[0] = head[sent:]
                        break
                    sent -= len(head)
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._ended()
            return
        self._want(selectors.EVENT_WRITE, bool(self._out))

    def _read(self) -> None:
        """Read whole frames while they come, a few at most, so that other sockets get their turn."""
        for _ in range(READ_AHEAD):
            try:
                got = self._sock.recv_into(self._buffer[self._got :])
            except BlockingIOError:
                return
            except OSError:
                got = 0
            if got == 0:
                self._ended()
                return
            self._got += got
            if self._got < len(self._buffer):
                continue
            self._advance()
            # Whoever took the frame may have closed this, or want no more for now.
            if self.closed or not self._interest & selectors.EVENT_READ:
                return

    def _advance(self) -> None:
        if self._frame is None:
            kind, number, length = HEADER.unpack(self._header)
            if kind > Frame.TRACE or length > MAX_FRAME:
                self._ended()
                return
            self._frame = Frame(kind), number
            if length:
                # Memory of its own for each frame: the rows that are decoded from it go on pointing into it.
                self._buffer, self._got = memoryview(bytearray(length)), 0
                return
            payload = memoryview(b"")
        else:
            payload = self._buffer
        frame, self._frame = self._frame, None
        self._buffer, self._got = memoryview(self._header), 0
        self._on_frame(*frame, payload)

    def _ended(self) -> None:
        if not self.closed:
            self.close()
            self._on_close()

    def close(self) -> None:
        """Close the socket; what is pending is dropped."""
        if self.closed:
            return
        self.closed = True
        if self._interest:
            self._selector.unregister(self._sock)
        self._interest = 0
        self._sock.close()

    def hang_up(self) -> None:
        """End the connection for both sides at once; safe from another thread than the one that uses it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def finish(self, seconds: float) -> None:
        """Send what is pending, blocking for at most so long, and close."""
        with contextlib.suppress(OSError):
            if self.closed:
                return
            self._sock.settimeout(seconds)
            for part in self._out:
                self._sock.sendall(part)
            self._out.clear()
            self._sock.shutdown(socket.SHUT_WR)
        self.close()


class Wakeup:
    """Lets another thread, or a signal handler, end a selector's wait."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        selector.register(self._near, selectors.EVENT_READ, self._drain)

    def __call__(self) -> None:
        """Wake the loop; never blocks."""
        with contextlib.suppress(OSError):
            self._far.send(b"\0")

    def _drain(self, mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends, after the selector is closed."""
        self._near.close()
        self._far.close()
